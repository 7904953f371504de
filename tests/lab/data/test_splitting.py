import torch
from heldin.lab.data.splitting import stratified
from hypothesis import given
from hypothesis import strategies as st

LABELS = st.lists(st.integers(0, 4), min_size=2, max_size=60)


@given(LABELS, st.data())
def test_every_sample_is_on_one_side_and_each_class_keeps_its_share(labels, data):
    labels = torch.tensor(labels)
    num_test = data.draw(st.integers(1, len(labels) - 1))
    train, test = stratified(labels, num_test)
    assert len(test) == num_test
    assert sorted([*train.tolist(), *test.tolist()]) == list(range(len(labels)))
    share = labels.bincount(minlength=5) * num_test / len(labels)
    assert ((labels[test].bincount(minlength=5) - share).abs() <= 1).all()


def test_a_split_is_a_function_of_its_seed_and_leaves_the_global_stream_alone():
    labels = torch.arange(100) % 3
    before = torch.get_rng_state()
    first, again, other = stratified(labels, 20), stratified(labels, 20), stratified(labels, 20, seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first[1], again[1])
    assert {*first[1].tolist()} != {*other[1].tolist()}


def test_the_sides_are_not_sorted_by_class():
    train, _ = stratified(torch.arange(100) // 50, 20)
    assert (train < 50).long().diff().abs().sum() > 10
