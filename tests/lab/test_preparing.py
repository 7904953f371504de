"""From a spec and a dataset to what one run trains on."""

import pytest
import torch

from heldin.errors import ArgumentError
from heldin.lab.data import Arrays
from heldin.lab.preparing import fingerprint, prepare
from heldin.lab.spec import RunSpec


@pytest.fixture
def arrays():
    x, y = torch.arange(100.0)[:, None], torch.arange(100) % 5
    return Arrays("toy", x, y, x[:20].clone(), y[:20].clone(), 5)


def spec(**changes):
    return RunSpec(**{"batch_size": 4, **changes})


def test_a_subset_keeps_samples_and_labels_together(arrays):
    split = prepare(spec(num_samples=30), arrays)
    assert len(split.x_train) == len(set(split.x_train.flatten().tolist())) == 30
    assert torch.equal(split.x_train.flatten().long() % 5, split.y_train)
    assert split.x_val is None


def test_the_test_set_is_whole_and_clean(arrays):
    split = prepare(spec(num_samples=30, label_noise=1.0), arrays)
    assert torch.equal(split.y_test, arrays.y_test)
    assert torch.equal(split.x_test, arrays.x_test)


def test_label_noise_touches_the_fraction_asked_for(arrays):
    clean = prepare(spec(), arrays)
    noisy = prepare(spec(label_noise=0.5), arrays)
    assert torch.equal(clean.x_train, noisy.x_train)
    assert 25 <= int((clean.y_train != noisy.y_train).sum()) <= 50  # 50 drawn anew, a fifth of them stay right


def test_folds_of_one_seed_share_subset_and_noise_and_leave_each_sample_out_once(arrays):
    splits = [prepare(spec(num_samples=40, label_noise=0.5, fold=i, folds=4), arrays) for i in range(4)]
    full = prepare(spec(num_samples=40, label_noise=0.5), arrays)
    labels = dict(zip(full.x_train.flatten().tolist(), full.y_train.tolist(), strict=True))
    left_out = []
    for split in splits:
        inside, outside = split.x_train.flatten().tolist(), split.x_val.flatten().tolist()
        assert sorted([*inside, *outside]) == sorted(labels)
        assert [labels[x] for x in inside] == split.y_train.tolist()
        assert [labels[x] for x in outside] == split.y_val.tolist()
        left_out += outside
    assert sorted(left_out) == sorted(labels)


def test_another_seed_is_another_subset(arrays):
    one, other = (prepare(spec(num_samples=30, seed=seed), arrays) for seed in (0, 1))
    assert not torch.equal(one.x_train, other.x_train)


@pytest.mark.parametrize("changes", [{"num_samples": 101}, {"batch_size": 101}, {"fold": 0, "folds": 101}], ids=str)
def test_more_than_there_is_is_refused(arrays, changes):
    with pytest.raises(ArgumentError, match="at most"):
        prepare(spec(**changes), arrays)


def test_augmentation_of_what_is_no_image_is_refused(arrays):
    with pytest.raises(ArgumentError, match=r"needs images \(c, h, w\). Found samples of shape \(1,\) in mnist5k"):
        prepare(spec(augment=True), arrays)


def test_the_fingerprint_tells_data_apart(arrays):
    split = prepare(spec(), arrays)
    assert fingerprint(split) == fingerprint(prepare(spec(), arrays))
    assert fingerprint(split) != fingerprint(prepare(spec(label_noise=0.5), arrays))
    assert fingerprint(split)["train"] == 100


def test_a_signal_that_compares_with_a_fold_needs_one(arrays):
    signals = ("train_val_disparity",)
    with pytest.raises(ArgumentError, match="--folds 5"):
        prepare(spec(signals=signals), arrays)
    assert prepare(spec(signals=signals, fold=0, folds=4), arrays).x_val is not None
