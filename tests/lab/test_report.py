"""The report page: its content, and how a browser shows it."""

from __future__ import annotations

import base64
import html
import json
import math
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plotly.offline import get_plotlyjs
from tests.records import group_of, record_of

from heldin.errors import ArgumentError, StoreError
from heldin.lab.answer import Answer, describe
from heldin.lab.conclusion import best_outcome
from heldin.lab.methods import Kind, StoppingMethod, default_rule_method
from heldin.lab.report import comparison_html, cost_html, embed_json, html_page, write_report
from heldin.lab.run import run as train
from heldin.lab.select import outcomes_of
from heldin.lab.spec import RunSpec
from heldin.lab.store import Store
from heldin.lab.tables import Markup, element

NASTY = "</script><script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'> & {{plotly}}"
SPEC = RunSpec(dataset="digits", num_samples=200, batch_size=50, epochs=8, signals=())
RISING = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
OVERFITS = [0.5, 0.4, 0.2, 0.3, 0.3, 0.4, 0.6, 0.7]
FIRST = "gradient disparity, at the 5th rise default"
UNITS = {"batch_gradient": 1.0, "distance": 0.1, "optimizer_step": 0.0, "batch_evaluation": 0.0}


def run(error=OVERFITS, *, val=None, loss=None, also=None, done=True, signals=("gradient_disparity",), **changes):
    curves = {"train_loss": error, "test_loss": loss or [2 * value for value in error], "test_error": error}
    curves |= {name: [value] * len(error) for name, value in (also or {}).items()} | dict.fromkeys(signals, RISING)
    return record_of(SPEC.with_(signals=tuple(signals), **changes), done=done, val_loss=val, **curves)


class Page(HTMLParser):
    """The elements of a page, the texts outside of scripts, and the rows of its tables."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.rows, self.links, self.data = [], [], [], [], ""
        self.inside, self.in_cell = None, False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href", "action", "data")]
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
            self.in_cell = True
        elif tag in ("script", "style"):
            self.inside = "charts" if ("id", "charts") in attrs else tag

    def handle_endtag(self, tag):
        self.in_cell = self.in_cell and tag not in ("td", "th")
        self.inside = None if tag in ("script", "style") else self.inside

    def handle_data(self, data):
        if self.inside == "charts":
            self.data += data
        elif self.inside is None and data.strip():
            self.texts.append(data.strip())
            if self.in_cell:
                self.rows[-1][-1] = f"{self.rows[-1][-1]} {data.strip()}".strip()

    @property
    def text(self):
        return " ".join(self.texts)

    def row(self, *beginning):
        return next(row for row in self.rows if row[: len(beginning)] == [*beginning])


@pytest.fixture
def report(tmp_path):
    def made(*records, **options):
        return Page(write_report(records, tmp_path / "report.html", **options).read_text(encoding="utf-8"))

    return made


def test_the_comparison_shows_both_protocols_and_the_lost_points(report):
    alone = report(run()).row(FIRST)
    assert alone[1:] == ["20.0", "5", "40.0", "0.800", "5", "40.0", "0.800"]
    page = report(run(), run([e + 0.1 for e in OVERFITS], seed=1))
    row = page.row(FIRST)
    assert row[1:] == ["20.0", "5.0 ± 0.0", "45.0 ± 7.1", "0.900 ± 0.141", "5", "45.0 ± 7.1", "0.900 ± 0.141"]
    assert page.row("no early stopping")[1] == "50.0"
    assert page.row("best epoch by test accuracy")[1:3] == ["0.0", "2.0 ± 0.0"]
    assert "the 5th rise of gradient disparity lost 20.0 points of test error" in page.text


def test_runs_are_grouped_by_setting(report):
    folds = [run(val=RISING, fold=fold, folds=2) for fold in (0, 1)]
    page = report(run(), run(seed=1), *folds, run(learning_rate=0.5), title="All of them")
    assert page.tags.count("section") == 2 + 1  # two settings, and how to read the page
    assert "2 (seeds 0, 1)" in page.text
    assert "runs without one of 2 folds" in page.text
    assert "5 runs, 2 settings" in page.text
    assert {"#setting-1", "#setting-2"} <= {*page.links}
    assert page.row("2-fold cross-validation, at the 5th rise")


def test_the_page_contains_the_curves_and_stops(report):
    (chart,) = json.loads(report(run()).data)
    assert chart["metrics"][0]["curves"][0]["mean"] == [50.0, 40.0, 20.0, 30.0, 30.0, 40.0, 60.0, 70.0]
    assert [(stop["rule"], stop["epoch"]) for stop in chart["signals"][0]["stops"]] == [("t1", 5), ("t2", 5)]


def test_the_page_loads_nothing_and_contains_plotly_once(tmp_path):
    text = write_report([run()], tmp_path / "report.html").read_text()
    plotly = re.search(r'<script type="text/plain" id="plotly">(.*?)</script>', text)[1]
    assert zlib.decompress(base64.b64decode(plotly)).decode() == get_plotlyjs()
    assert len(plotly) < len(get_plotlyjs()) / 2
    ours = text.replace(plotly, "")
    assert len(ours) < 60_000
    assert [link for link in Page(text).links if not link.startswith("#")] == []
    assert not re.search(r"https?:|url\(|@import", ours)
    assert "default-src 'none'" in ours


def test_all_texts_are_escaped(report):
    page = report(
        run(dataset=NASTY), run(dataset=NASTY, seed=1, done=False), title=NASTY, environment={NASTY: NASTY, "time": 0.0}
    )
    assert page.tags.count("script") == 3  # plotly, the curves, what draws them
    assert "img" not in page.tags
    assert page.text.count(NASTY) >= 5  # in the title, the heading, the facts, and the environment


def test_the_cost_is_in_seconds_if_there_are_timings(report):
    record = run()
    counted = report(record).row(FIRST, "6.0")
    assert counted[2:] == ["48"]  # 6 epochs of 4 batches, and 4 probes after each: there are no 5
    timings = {record.id: [{"begun": {}, "at_epoch": 0}, {"epoch": 0, "unit_seconds": UNITS}]}
    timed = report(record, timings=timings).row(FIRST, "6.0")
    assert timed[2:] == ["48", "51.6"]  # 6 times the 6 distances between the probes, a tenth of a second each


def test_the_cost_is_in_epochs_if_the_size_of_the_data_is_unknown(report):
    record = run(num_samples=None)
    page = report(record)
    assert page.row("no early stopping", "8.0") == ["no early stopping", "8.0"]
    assert "The records do not contain the number of samples of digits" in page.text
    assert report(record, num_samples={"digits": 1000}).row("no early stopping", "8.0")[2] == "160"
    known = replace(record, data="1000+10-0123456789abcdef")
    assert report(known).row("no early stopping", "8.0")[2] == "160"


def test_a_network_no_better_than_the_most_frequent_class_has_a_flag(report):
    assert "not better than one class" in report(replace(run(), constant_error=0.1)).text
    assert "not better than one class" not in report(run()).text


def test_the_environments_in_the_timings_have_one_row_each(report):
    records = [run(), run(seed=1)]
    begun = {
        records[0].id: [{"torch": "2.0", "time": 2 * 86400.0}, {"torch": "2.0", "time": 0.0}],
        records[1].id: [{"torch": "2.1", "cpus": 2}, {"torch": "2.2", "time": 86400.0}],
    }
    timings = {run_id: [{"begun": one, "at_epoch": 0} for one in some] for run_id, some in begun.items()}
    page = report(*records, timings=timings)
    assert page.row("1970-01-01 to 1970-01-03")[1:] == ["2.0", "-", "2"]
    assert page.row("-", "2.1")[2:] == ["2", "1"]
    assert page.row("1970-01-02")[1:] == ["2.2", "-", "1"]
    assert "The environment" not in report(*records).text


def test_unfinished_runs_are_listed_and_left_out(report):
    unfinished = run(done=False, seed=1)
    assert unfinished.id in report(run(), unfinished).text
    page = report(unfinished)
    assert "no run has reached its horizon yet" in page.text
    assert json.loads(page.data) == []


def test_another_signal_can_be_shown_first(report):
    both = run(signals=("gradient_disparity", "noise_scale"))
    (chart,) = json.loads(report(both, signal="noise_scale").data)
    assert [signal["title"] for signal in chart["signals"]] == ["noise scale", "gradient disparity"]
    with pytest.raises(ArgumentError, match="did not measure 'noise_scal'.*Did you mean 'noise_scale'"):
        report(both, signal="noise_scal")


def test_a_report_without_records_raises(report):
    with pytest.raises(ArgumentError, match="at least one record"):
        report()


def test_a_path_that_cannot_be_written_raises_and_leaves_no_file(tmp_path):
    (tmp_path / "file").write_text("old")
    with pytest.raises(StoreError, match="file/report.html cannot be written: .* Choose another file"):
        write_report([run()], tmp_path / "file" / "report.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        write_report([run()], tmp_path / "folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


TEXTS = st.text("ab<>&\"'\\/{}\u00e9\u2028", max_size=9)


@settings(max_examples=40)
@given(st.lists(TEXTS | st.integers() | st.none() | st.lists(TEXTS) | st.dictionaries(TEXTS, TEXTS), max_size=5))
def test_embedded_json_round_trips_and_cannot_close_its_element(value):
    text = embed_json([value, NASTY])
    assert json.loads(text) == [value, NASTY]
    assert text.isascii()
    assert not {"<", ">", "&"} & {*text}


def test_inserted_texts_are_not_searched_for_placeholders():
    text = html_page("{{plotly}}", header=element("p", "{{charts}}"), main=Markup(""), charts=["{{main}}"])
    assert "<title>{{plotly}}</title>" in text
    assert "<p>{{charts}}</p>" in text
    assert '["{{main}}"]' in text
    assert text.count('id="plotly">eN') == 1  # the first bytes of zlib, in base64


def folded(val, *, seeds=(0,)):
    """Runs without each of two folds, whose validation loss is `val`."""
    return [run(val=val, signals=(), seed=seed, fold=fold, folds=2) for seed in seeds for fold in (0, 1)]


def outcomes(*records):
    return outcomes_of(group_of(*records))


def compared(found, signal):
    winner = best_outcome(found)
    return comparison_html(found, signal, winner.method if winner else None)


def raw_rows(page):
    return re.findall(r"<tr[^>]*>.*?</tr>", page, re.DOTALL)


def rows(page):
    """The texts of the cells, row by row."""
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in raw_rows(page)]
    return [[html.unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in cells]


def cells_of(page, name):
    (found,) = (row for row in rows(page) if row[0] == name)
    return found[1:]


FOLDS = [
    "2-fold cross-validation", "2-fold cross-validation and retraining on all the data",
    "2-fold cross-validation, each fold by itself", "1/2 held out",
]  # fmt: skip
BY_BOTH_RULES = [
    f"{name}, {when}"
    for name in ("gradient disparity", *FOLDS)
    for when in ("at the 5th rise", "after 5 rises in a row")
]


def test_the_order_of_methods():
    page = compared(outcomes(run(), *folded(RISING)), "gradient_disparity")
    names = [row[0].removesuffix(" default") for row in rows(page)[2:]]
    assert names == ["best epoch by test loss", "best epoch by test accuracy", *BY_BOTH_RULES, "no early stopping"]
    classes = [re.search(r'^<tr class="([\w ]+)"', row)[1] for row in raw_rows(page) if "<tr class" in row]
    assert classes == ["over", "oracle", "oracle", "best"]


def test_the_best_method_and_rules_that_never_fired_are_marked():
    falling = RISING[::-1]  # no rise for 2-fold, and no fall for a cosine that rises
    found = outcomes(run([0.5, 0.4, 0.3, 0.2, 0.2, 0.2, 0.2, 0.1], signals=("cosine",)), *folded(falling))
    page = compared(found, "cosine")
    assert [row[0] for row in rows(page) if "rule never fired" in row[0]] == [
        f"{name}, {when} 1 2 rule never fired"
        for name, change in (("cosine", "fall"), *((name, "rise") for name in FOLDS))
        for when in (f"at the 5th {change}", f"after 5 {change}s in a row")
    ]
    (best,) = (row for row in raw_rows(page) if row.startswith('<tr class="best"'))
    assert "no early stopping" in best


@pytest.mark.parametrize(
    "best",
    [StoppingMethod(Kind.NEVER), default_rule_method("sign"), default_rule_method("gradient_disparity")],
    ids=str,
)
def test_the_method_that_the_answer_names_is_bold_wherever_it_is(tmp_path, best):
    record = run(signals=("gradient_disparity", "sign"))
    path = write_report(
        [record],
        tmp_path / "report.html",
        answers={record.spec.with_(signals=()).id: Answer(("Best here.",), (), best)},
    )
    page = path.read_text(encoding="utf-8")
    shown, _, collapsed = page.partition("<details>")
    bold = [row for row in raw_rows(page) if row.startswith('<tr class="best"')]
    assert len(bold) == 2  # in the comparison, and in the cost
    assert all(rows(row)[0][0].startswith(describe(best)) for row in bold)
    assert 'class="best"' in shown
    assert 'class="best"' not in collapsed.partition("</details>")[0]
    defaults = {row[0] for row in rows(page) if row[0].endswith(" default")}
    assert defaults == {FIRST}
    points = {point["name"]: point["role"] for point in json.loads(Page(page).data)[1]["points"]}
    assert points.pop(describe(best)) == "best"
    assert points.pop("gradient disparity, at the 5th rise", "default") == "default"
    assert {*points.values()} <= {"other"}
    assert re.search(r'<li class="is-best">(.*?) \(best(, default)?\)</li>', page)[1] == describe(best)


VERSIONS = ("task:mine-aaaaaaaa01234567", "task:mine-bbbbbbbb01234567")


def test_an_earlier_version_of_a_task_is_marked(report):
    spec = SPEC.with_(num_samples=None, dataset=VERSIONS[0], model="task", loss="task", optimizer="task")
    curves = {"train_loss": OVERFITS, "test_loss": OVERFITS, "test_error": OVERFITS}
    records = [record_of(spec.with_(dataset=version), **curves) for version in VERSIONS]
    timings = {r.id: [{"begun": {"time": float(day)}, "at_epoch": 0}] for r, day in zip(records, (2, 1), strict=True)}
    page = report(*records, timings=timings)
    assert page.texts.count("Your task: mine") == 2  # in the overview, and above its section
    assert page.texts.count("Your task: mine, an earlier version") == 2
    assert "an earlier version" not in report(*records).text  # it is not known which is the later one


@pytest.mark.parametrize(
    ("signals", "summary"),
    [
        (("gradient_disparity",), []),
        (("gradient_disparity", "sign"), ["1 other signal"]),
        (("sign", "gradient_disparity", "noise_scale"), ["2 other signals"]),
    ],
    ids=str,
)
def test_other_signals_are_collapsed(signals, summary):
    page = compared(outcomes(run(signals=signals)), "gradient_disparity")
    assert re.findall("<summary>(.*?)</summary>", page) == summary
    shown, _, hidden = page.partition("<details>")
    assert FIRST in [row[0] for row in rows(shown)]
    assert ("sign, at" in shown, "sign, at the 5th fall" in hidden) == (False, "sign" in signals)


def test_bars_are_relative_to_the_largest_loss():
    def bars(error):
        page = compared(outcomes(run(error)), "gradient_disparity")
        widths = [re.findall(r'style="width:(\d+)%"', row) for row in raw_rows(page)]
        return {name[0]: width[0] for name, width in zip(rows(page), widths, strict=True) if width}

    found = bars(OVERFITS)
    assert (found[FIRST], found["no early stopping"], found["best epoch by test accuracy"]) == ("40", "100", "0")
    assert {*bars([0.5] * 8).values()} == {"0"}


def test_unknown_values_are_dashes_and_further_metrics_have_columns():
    lost = compared(outcomes(run(loss=[1.0] * 5 + [math.nan] * 3)), "gradient_disparity")
    assert cells_of(lost, FIRST)[:4] == ["20.0", "5", "40.0", "-"]
    more = compared(outcomes(run(also={"test_top5": 0.125, "test_auc": 0.75})), "gradient_disparity")
    assert cells_of(more, FIRST)[1:6] == ["5", "40.0", "0.800", "12.5", "0.750"]
    assert re.findall(r'colspan="(\d+)"', more) == ["1", "6", "3"]


def test_notes_are_numbered_and_listed_once():
    falling = RISING[::-1]
    page = compared(outcomes(run(signals=("cosine",)), *folded(falling)), "cosine")  # bad is a cosine that falls
    names = [row[0] for row in rows(page)]
    assert {
        "cosine, at the 5th fall 1 2",
        f"{FOLDS[0]}, at the 5th rise 1 2",
        "cosine, after 5 falls in a row 1 2",
    } <= {name.removesuffix(" rule never fired") for name in names}
    assert "no early stopping" in names
    assert re.findall("<li>(.*?)</li>", page) == [
        f"{seen}: the rule never fired, so the last epoch is used"
        for seen in ("each run by its own curve", "the mean curve")
    ]


def test_the_cost_of_one_seed_includes_folds_and_retraining():
    records = [run(), run(seed=1), *folded(RISING, seeds=(0, 1))]
    page = cost_html(SPEC, outcomes(*records), "gradient_disparity", None, [], None)
    assert rows(page)[0] == ["method", "epochs trained", "batch gradients"]
    assert cells_of(page, FIRST) == ["6.0", "48"]  # 6 epochs of 4 batches, and 4 probes after each
    assert cells_of(page, f"{FOLDS[0]}, at the 5th rise") == ["12.0", "24"]  # 2 models, 6 epochs each of 2 batches
    assert cells_of(page, f"{FOLDS[1]}, at the 5th rise") == ["18.0", "48"]  # and 6 epochs of 4 batches
    assert cells_of(page, "1/2 held out, at the 5th rise") == ["6.0", "12"]
    assert cells_of(page, "no early stopping") == ["8.0", "32"]
    assert "best epoch" not in page


LISTEN = """<script>
window.problems = [];
window.addEventListener("error", function (event) { problems.push("error: " + event.message); });
window.addEventListener("unhandledrejection", function (event) { problems.push("rejected: " + event.reason); });
window.addEventListener("securitypolicyviolation", function (event) { problems.push("blocked: " + event.blockedURI); });
["error", "warn"].forEach(function (level) {
  console[level] = function () { problems.push(level + ": " + Array.from(arguments).join(" ")); };
});
</script>"""

PLAY = """<script>
(function () {
  var plot = document.querySelector(".plot"), found = {};
  function drawn() { return plot.querySelectorAll(".scatterlayer .js-line").length; }
  function names() { return plot.data.filter(function (t) { return t.visible !== "legendonly"; })
    .map(function (t) { return t.name; }).filter(Boolean); }
  function bars() { return plot.querySelectorAll(".shapelayer path").length; }
  function text(selector) {
    return Array.from(plot.querySelectorAll(selector)).map(function (e) { return e.textContent; });
  }
  function click(name) {
    var item = Array.from(plot.querySelectorAll(".legend .traces")).find(function (item) {
      return item.textContent === name;
    }).querySelector(".legendtoggle");
    ["mousedown", "mouseup"].forEach(function (kind) { item.dispatchEvent(new MouseEvent(kind, { bubbles: true })); });
  }
  function after(wait, step) { return function () {
    return new Promise(function (done) { step(); setTimeout(done, wait); }); }; }
  function drawnOnce() {
    return plot.data ? Promise.resolve() : new Promise(function (done) { setTimeout(done, 100); }).then(drawnOnce);
  }
  drawnOnce()
    .then(after(500, function () {}))
    .then(after(1000, function () {
      found.plots = document.querySelectorAll(".js-plotly-plot").length;
      found.drawn = drawn(); found.names = names(); found.legend = text(".legendtext"); found.bars = bars();
      found.summary = document.querySelector("p.summary").textContent;
      found.buttons = Array.from(plot.querySelectorAll(".modebar-btn")).map(function (b) { return b.dataset.title; });
      click("test error");
    }))
    .then(after(1000, function () {
      found.clickedNames = names(); found.clickedDrawn = drawn();
      click("at the 5th rise");
    }))
    .then(after(500, function () {
      found.clickedBars = bars();
      var select = document.querySelector("select");
      select.value = "1"; select.dispatchEvent(new Event("change", { bubbles: true }));
    }))
    .then(after(500, function () {
      found.switchedNames = names();
      var radio = document.querySelectorAll("input[type=radio]")[1];
      radio.checked = true; radio.dispatchEvent(new Event("change", { bubbles: true }));
    }))
    .then(function () {
      found.metricNames = names(); found.problems = problems; found.hacked = window.hacked || 0;
      found.title = document.title;
      var place = document.createElement("pre");
      place.id = "found"; place.textContent = JSON.stringify(found); document.body.appendChild(place);
    });
}());
</script>"""


@pytest.fixture(scope="module")
def browsed(tmp_path_factory):
    """A page on real runs, opened in a browser that reports what it saw and did."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("there is no Chromium here (neither chromium nor chromium-browser is on the PATH)")
    folder = tmp_path_factory.mktemp("report")
    store = Store(folder)
    spec = RunSpec(dataset="digits", num_samples=40, batch_size=8, scale=0.02, epochs=9, learning_rate=0.1,
                   label_noise=0.5, signals=("gradient_disparity", "sign"))  # fmt: skip
    records = [train(spec.with_(seed=seed), store) for seed in (0, 1)]
    nasty = run(dataset=NASTY)
    timings = {record.id: store.folder(record.spec).timings() for record in records}
    path = write_report([*records, nasty], folder / "report.html", title=NASTY, timings=timings)
    text = path.read_text(encoding="utf-8")
    path.write_text(
        text.replace("<head>", f"<head>{LISTEN}", 1).replace("</body>\n", f"{PLAY}</body>\n"), encoding="utf-8"
    )
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,1600",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=15000", "--dump-dom", path.as_uri(),
    ]  # fmt: skip
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    found = re.search(r'<pre id="found">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found, f"the page never got to its end: {ran.stderr[-2000:]}"
    unescaped = found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return json.loads(unescaped)


def test_a_browser_reports_no_problems(browsed):
    assert browsed["problems"] == []
    assert browsed["hacked"] == 0
    assert browsed["title"] == NASTY


def test_a_browser_draws_the_curves_and_the_stops(browsed):
    assert browsed["plots"] == 2
    assert browsed["names"] == ["test error", "training error", "best epoch", "gradient disparity"]
    assert browsed["drawn"] >= 3
    assert set(browsed["names"]) <= set(browsed["legend"])
    assert "Stopped at the 5th rise: epoch" in browsed["summary"]
    assert "at the 5th rise" in browsed["legend"]
    assert browsed["bars"] >= 1


def test_a_click_in_the_legend_hides_a_curve_and_a_bar(browsed):
    assert browsed["clickedNames"] == ["training error", "best epoch", "gradient disparity"]
    assert browsed["clickedDrawn"] < browsed["drawn"]
    assert browsed["clickedBars"] < browsed["bars"]


def test_the_selected_signal_and_metric_are_drawn(browsed):
    assert browsed["switchedNames"] == ["training error", "best epoch", "sign"]  # and what was hidden stays hidden
    assert browsed["metricNames"] == ["test loss", "training loss", "best epoch", "sign"]


def test_no_button_uploads_the_chart(browsed):
    assert browsed["buttons"] == ["Download plot as a PNG", "Zoom", "Pan", "Zoom in", "Zoom out", "Reset axes"]
