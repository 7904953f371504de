"""RunSpec: identity, checks, labels of signals, TOML files."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heldin.errors import ArgumentError
from heldin.lab.spec import ADDED_FIELDS, DEFAULT_SIGNALS, RunSpec, parse_signal, spec_from, specs_from_toml
from heldin.signals import GradientDisparity

TASK = {"dataset": "task:mine-0123456789abcdef", "model": "task", "optimizer": "task", "loss": "task"}


def test_the_id_is_a_hash_of_the_canonical_json():
    spec = RunSpec(dataset="digits", label_noise=0.5, seed=3)
    assert json.loads(spec.canonical)["label_noise"] == 0.5
    assert len(spec.id) == 16
    assert spec.id == RunSpec(seed=3, label_noise=0.5, dataset="digits").id
    assert spec.id != spec.with_(seed=4).id


def test_the_id_of_a_spec_never_changes():
    """Records are found by it: after a change of a default or a new field they would not be."""
    assert RunSpec().id == "5ba66ee080733c07"


def test_fields_added_later_do_not_change_ids_of_earlier_runs():
    assert not {*ADDED_FIELDS} & RunSpec().as_dict().keys()
    assert RunSpec(num_test=100).as_dict()["num_test"] == 100
    assert len({RunSpec().id, RunSpec(num_test=100).id, RunSpec(detailed_readings=4).id}) == 3


@pytest.mark.parametrize("field", ["label_noise", "scale", "learning_rate", "weight_decay", "until_loss"])
def test_an_integer_and_the_equal_float_give_the_same_spec(field):
    assert RunSpec(**{field: 1}).id == RunSpec(**{field: 1.0}).id


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "num_samples": st.integers(200, 1000),
            "label_noise": st.floats(0, 1),
            "augment": st.booleans(),
            "model": st.sampled_from(["fully_connected", "vgg13", "resnet18"]),
            "learning_rate": st.floats(1e-6, 10),
            "epochs": st.integers(1, 500),
            "until_loss": st.none() | st.floats(0, 1),
            "seed": st.integers(0, 2**31),
            "num_test": st.none() | st.integers(1, 1000),
            "optimizer_options": st.sampled_from([(), ("momentum=0.9",), ("momentum=0.9", "nesterov=True")]),
            "scheduler": st.sampled_from([None, "ConstantLR"]),
            "detailed_readings": st.integers(0, 9),
            "signals": st.lists(st.sampled_from(DEFAULT_SIGNALS), unique=True).map(tuple),
        },
    )
)
def test_a_spec_written_as_json_and_read_back_is_the_same(values):
    spec = RunSpec(**values)
    assert spec_from(json.loads(spec.canonical)) == spec


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"model": "resnet43"}, "Did you mean 'resnet34'"),
        ({"model": "a b:c"}, "should be one of"),
        ({"model": 3}, "should be one of"),
        ({"optimizer": "adm"}, "'adam'"),
        ({"init": "he"}, "he_normal"),
        ({"loss": "nll"}, "cross_entropy"),
        ({"num_samples": 1}, "at least 2"),
        ({"num_samples": 100, "batch_size": 128}, "at most `num_samples`"),
        ({"label_noise": 1.5}, "at most 1"),
        ({"label_noise": -0.1}, "at least 0"),
        ({"batch_size": 0}, "at least 1"),
        ({"epochs": 0}, "horizon"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"scale": -1.0}, "above 0"),
        ({"weight_decay": -1.0}, "at least 0"),
        ({"until_loss": -1.0}, "at least 0"),
        ({"seed": -1}, "at least 0"),
        ({"num_test": -1}, "at least 0"),
        ({"num_test": 0, "detailed_readings": 1}, "include the test loss"),
        ({"optimizer": "AdamV"}, "'AdamW'"),
        ({"optimizer": "LBFGS"}, "should be one of"),
        ({"optimizer_options": ["momentum"]}, "name=value"),
        ({"optimizer_options": ["momentun=0.9"]}, "Did you mean 'momentum'"),
        ({"optimizer_options": ["lr=0.1"]}, "`learning_rate = 0.1`"),
        ({"optimizer_options": "momentum=0.9"}, "should be a list of texts"),
        ({"optimizer": "Rprop", "weight_decay": 0.1}, "no weight decay"),
        ({"scheduler": "StepLr"}, "Did you mean 'StepLR'"),
        ({"scheduler_options": ["step_size=2"]}, "without one"),
        ({"scheduler": "StepLR", "scheduler_options": ["stepsize=2"]}, "Did you mean 'step_size'"),
        ({"dataset": "task:mine"}, "named by its hash"),
        ({"dataset": "task:mine-0123456789abcdef"}, "has its own model"),
        ({**TASK, "learning_rate": 0.5}, "has its own learning rate"),
        ({"detailed_readings": -1}, "at least 0"),
        ({"detailed_readings": 1, "loss": "mse"}, "'cross_entropy'"),
        ({"augment": 1}, "True or False"),
        ({"fold": 0}, "both"),
        ({"fold": 5, "folds": 5}, "count from 0"),
        ({"fold": 0, "folds": 1}, "at least 2"),
        ({"fold": 0, "folds": 300, "num_samples": 200}, "at most `num_samples`"),
        ({"signals": ("cosin",)}, "'cosine'"),
        ({"signals": ("cosine@fresh",)}, "cosine@fixed"),
        ({"signals": ("cosine@s=1",)}, "At least 2"),
        ({"signals": ("cosine@s=0",)}, "cosine@s=20"),
        ({"signals": ("cosine", "cosine")}, "once"),
        ({"dataset": ""}, "name"),
        ({"dataset": "npz:/data/mine.npz"}, "not contain a path"),
    ],
    ids=str,
)
def test_impossible_specs_are_refused(values, word):
    with pytest.raises(ArgumentError, match=word):
        RunSpec(**values)


def test_an_unknown_field_is_refused_with_the_nearest_known_one():
    with pytest.raises(ArgumentError, match="'label_noise'"):
        spec_from({"label_nois": 0.5})


def test_the_title_names_what_differs():
    assert RunSpec(dataset="digits", label_noise=0.5, seed=2).title == "digits fully_connected label_noise=0.5 seed=2"


def test_a_toml_file_holds_one_spec_or_several(tmp_path):
    path = tmp_path / "runs.toml"
    path.write_text('dataset = "digits"\nepochs = 3\n')
    assert specs_from_toml(path) == [RunSpec(dataset="digits", epochs=3)]
    path.write_text('dataset = "digits"\n[[run]]\nseed = 0\n[[run]]\nseed = 1\nsignals = ["cosine"]\n')
    assert specs_from_toml(path) == [RunSpec(dataset="digits"), RunSpec(dataset="digits", seed=1, signals=("cosine",))]


def test_changes_are_applied_before_a_toml_file_is_checked(tmp_path):
    path = tmp_path / "runs.toml"
    path.write_text('dataset = "digits"\nnum_samples = 100\n')
    assert specs_from_toml(path, batch_size=32) == [RunSpec(dataset="digits", num_samples=100, batch_size=32)]


def test_folds_without_fold_in_a_toml_file_give_one_run_per_fold(tmp_path):
    path = tmp_path / "runs.toml"
    path.write_text("folds = 3\n")
    assert [spec.fold for spec in specs_from_toml(path)] == [0, 1, 2]
    path.write_text("folds = 1\n")
    with pytest.raises(ArgumentError, match="at least 2"):
        specs_from_toml(path)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("[run]\nseed = 1\n", "two brackets"),
        ('signals = "cosine"\n', r"\['cosine'\]"),
        ("[[runs]]\nseed = 1\n", r"Found \[\[runs\]\]. Rename it to \[\[run\]\]"),
    ],
    ids=["one bracket", "one signal", "another name"],
)
def test_common_mistakes_in_a_toml_file_are_explained(tmp_path, content, word):
    (tmp_path / "runs.toml").write_text(content)
    with pytest.raises(ArgumentError, match=word):
        specs_from_toml(tmp_path / "runs.toml")


@pytest.mark.parametrize("content", ["epochs = ", "\x00"], ids=["cut off", "not text"])
def test_a_file_that_is_not_toml_is_refused(tmp_path, content):
    (tmp_path / "runs.toml").write_text(content)
    with pytest.raises(ArgumentError, match="TOML"):
        specs_from_toml(tmp_path / "runs.toml")
    with pytest.raises(ArgumentError, match="TOML"):
        specs_from_toml(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("gradient_disparity", (GradientDisparity(), False, None, False)),
        ("gradient_disparity[rescale=none]@fixed", (GradientDisparity(rescale="none"), True, None, False)),
        ("gradient_disparity@s=20", (GradientDisparity(), False, 20, False)),
        ("gradient_disparity@fixed@s=2", (GradientDisparity(), True, 2, False)),
        ("gradient_disparity[rescale=mean]@training@s=3", (GradientDisparity(rescale="mean"), False, 3, True)),
    ],
)
def test_the_label_of_a_signal_gives_its_batches(label, expected):
    assert parse_signal(label) == expected


def test_a_model_of_the_user_is_accepted_without_importing_it():
    assert RunSpec(model="not_installed.models:build").model == "not_installed.models:build"


@pytest.mark.parametrize("label", ["gradient_disparity@training", "gsnr@training", "train_val_disparity@training"])
def test_a_signal_that_training_does_not_compute_is_refused(label):
    with pytest.raises(ArgumentError, match="cannot be read from the gradients of training"):
        RunSpec(signals=(label,))


def test_the_spec_of_a_task_names_it_and_its_hashes():
    spec = RunSpec(**TASK, epochs=3)
    assert (spec.task, spec.task_hashes) == ("mine", ("01234567", "89abcdef"))
    assert spec.title == "task:mine epochs=3"
    assert RunSpec().task is None
    assert RunSpec().task_hashes is None


@pytest.mark.parametrize("label", ["cosine,sign", "cosine, sign", "gradient_disparity[rescale=none],sign"])
def test_several_signals_in_one_label_are_refused(label):
    with pytest.raises(ArgumentError, match="One label should be given at a time. Found 2 .* Repeat the option"):
        parse_signal(label)
