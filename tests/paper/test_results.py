"""The committed page, tables and figures are what the bundled records give, to the byte."""

import re

from heldin.lab.bundles import read_records, write_records
from paper.harness import Runs
from paper.harness.items import build_items
from paper.harness.pages import path_name, readme, write_pages
from paper.harness.running import Part, add_other_profile, build_part, collect_runs
from paper.items import ITEMS, PAPER
from paper.settings import KFOLD_SETTINGS, RELATED
from paper.settings_table import settings_table

REMEDY = "run `python -m paper build all`"


def test_the_committed_files_are_rebuilt_to_the_byte(tmp_path):
    parts = add_other_profile(PAPER, build_part(PAPER, ITEMS, "laptop"))
    names = {str(path.relative_to(tmp_path)) for path in write_pages(PAPER, parts, tmp_path)} - {"report.html"}
    committed = {
        str(path.relative_to(PAPER.folder))
        for part in ("items", "tables", "figures")
        for path in (PAPER.folder / part).rglob("*")
        if path.is_file()
    }
    assert names == committed | {"README.md", "judging.md", "gallery.html"}, REMEDY
    differing = [name for name in sorted(names) if (tmp_path / name).read_bytes() != (PAPER.folder / name).read_bytes()]
    assert not differing, REMEDY


def test_the_project_readme_quotes_the_page(pytestconfig):
    text = (pytestconfig.rootpath / "README.md").read_text()
    section = text.partition("## Do the paper's results hold?")[2].partition("\n## ")[0]
    page = (PAPER.folder / "README.md").read_text()
    headlines = page.partition("## Headline claims")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in headlines.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 10
    quoted = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert quoted == [f"| {claim} | {verdict} |" for claim, *_, verdict, _ in rows]
    (num,) = re.findall(r"(\d+) runs at laptop size", page)
    assert f"{num} runs" in text


def test_the_introduction_counts_the_verdicts_of_the_headlines():
    introduction, _, table = (PAPER.folder / "README.md").read_text().partition("## Headline claims")
    text = " ".join(introduction.split())
    verdicts = re.findall(r"(holds|does not hold|partly|unclear) \(laptop", table.partition("## Further")[0])
    numbers = [verdicts.count(verdict) for verdict in ("holds", "does not hold", "partly")]
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    held, failed, partly = (words[number] for number in numbers)
    assert sum(numbers) == 10
    assert f"At laptop size {held} of the ten headline claims hold" in text
    assert f"{failed} do not" in text
    assert f"{partly} hold partly" in text
    own_size = re.findall(r"(holds|does not hold|partly|unclear) \(paper's size", table.partition("## Further")[0])
    num_run, unclear = words[len(own_size)], words[own_size.count("unclear")]
    assert f"At the paper's size {num_run} were run, mostly with one seed, and {unclear} are unclear" in text


def test_every_item_has_a_page_with_verdicts():
    pages = [(PAPER.folder / "items" / f"{path_name(item.label)}.md").read_text() for item in ITEMS]
    for item, page in zip(ITEMS, pages, strict=True):
        assert page.startswith(f"# {item.heading}\n")
    for verdict in ("reproduced", "same direction", "not reproduced", "not run"):
        assert any(verdict in page for page in pages)


def test_without_records_nothing_is_run():
    runs = Runs("laptop", ())
    text = readme(PAPER, [Part(runs, PAPER.judge(build_items(ITEMS, runs)))])
    assert "| not run | not run | not run |" in text
    assert not re.search(r"\b(?:holds|partly|not hold)\b", text.partition("## Headline")[2])


def test_bundled_records_are_valid_and_written_again_to_the_byte(tmp_path):
    specs = [spec for item in ITEMS for spec in item.specs("laptop")]
    files = write_records(tmp_path, *read_records(PAPER.results("laptop"), specs))
    assert files
    for file in files:
        assert file.read_bytes() == (PAPER.results("laptop") / file.name).read_bytes()


def test_the_introduction_names_the_settings_whose_networks_do_not_learn():
    table = settings_table(collect_runs(PAPER, [PAPER.items["settings"]], "laptop"))
    learns = {row["setting"]: row["learns"] for row in table.rows}
    failing = {each.key for each in (*KFOLD_SETTINGS, *RELATED) if learns[each.title].startswith("no: test error")}
    assert failing == {"c100_r34", "c10_vgg13_noisy", "rw_d"}
    named = (
        "CIFAR-100 and noisy CIFAR-10 do not pass the rule of the item [choice](items/choice.md), by their test error"
    )
    assert f"{named}, nor does (d) of the four settings of tab:RW." in " ".join(PAPER.about.split())


def test_the_item_settings_says_which_networks_of_the_papers_size_do_not_learn():
    table = settings_table(collect_runs(PAPER, [PAPER.items["settings"]], "paper"))
    learns = {row["setting"]: row["learns"] for row in table.rows}
    assert learns["MNIST, AlexNet, limited"] == "no: best epoch (4 of 5)"
    assert learns["CIFAR-10, VGG-13, limited"] == "no: test error (1 of 1), best epoch (1 of 1)"
    assert learns["MNIST, AlexNet, noisy"] == "no: best epoch (1 of 1)"
    assert learns["MNIST, fully connected"] == "yes (1 of 1 runs)"
