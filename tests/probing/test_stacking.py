"""Batches in one pass: the same numbers as one by one, where that is certain, and one by one everywhere else."""

from __future__ import annotations

import copy
import warnings
from typing import NamedTuple

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import heldin
from heldin.errors import BatchesError, HeldinWarning, NotFiniteError
from heldin.gram import gram
from heldin.probing import probe as probe_module
from heldin.probing.probe import Probe
from heldin.probing.stacking import CLASS_LOSSES, ELEMENTWISE, VALUE_LOSSES, can_be_stacked, shoot_stack
from heldin.types import RESCALINGS, Product

NUM_INPUTS, NUM_OUTPUTS = 4, 3
PRECISION = {torch.float32: 1e-5, torch.float64: 1e-10}


def net(activation=nn.Tanh, *, bias=True, width=5):
    hidden = nn.Sequential(nn.Linear(NUM_INPUTS, width, bias=bias), activation())
    return nn.Sequential(hidden, nn.Linear(width, width), activation(), nn.Linear(width, NUM_OUTPUTS, bias=bias))


def classes(sizes=(6, 6, 6), dtype=torch.float32):
    return [(torch.randn(size, NUM_INPUTS, dtype=dtype), torch.randint(NUM_OUTPUTS, (size,))) for size in sizes]


def values(sizes=(6, 6, 6), dtype=torch.float32):
    """Targets in [0, 1], for any loss that compares values."""
    return [(torch.randn(size, NUM_INPUTS, dtype=dtype), torch.rand(size, NUM_OUTPUTS, dtype=dtype)) for size in sizes]


def probabilities(*args, **options):
    return [(x, y.softmax(1)) for x, y in values(*args, **options)]


def spread(model, loss_fn, batch):
    """The standard deviation of the losses of a batch, next to their mean."""
    std, mean = torch.std_mean(Probe(model, loss_fn).losses(batch).detach())
    return float(std / mean.abs())


def spy_on_stacks(probe, *args, **options):
    """What is found in one pass, if it is; and what is found one by one."""
    together = probe.collect(*args, **options, as_products=True)
    rows = [row for gradients in together.values() for row in gradients.rows]
    stacked = {any(isinstance(part, Product) for part in row) for row in rows}
    assert len(stacked) == 1, "some in one pass and some not"
    return stacked.pop(), together, probe.collect(*args, **options)


def assert_same(found, expected, precision):
    """The same Gram matrix, up to rounding next to its largest entry."""
    one, other = gram(found, inner=True), gram(expected, inner=True)
    largest = max(other.inner(i, i) for i in range(other.num_batches))
    pairs = [(i, j) for i in range(other.num_batches) for j in range(other.num_batches)]
    assert [one.inner(*pair) for pair in pairs] == pytest.approx(
        [other.inner(*pair) for pair in pairs], rel=precision, abs=precision * largest
    )
    assert [one.distance_sq(*pair) for pair in pairs] == pytest.approx(
        [other.distance_sq(*pair) for pair in pairs], rel=precision, abs=precision * largest
    )
    assert (one.num_parameters, one.split, one.num_samples) == (other.num_parameters, other.split, other.num_samples)


def assert_stacked_and_same(model, loss_fn, batches, rescalings=RESCALINGS, *, worse=1.0, **options):
    precision = worse * PRECISION[next(model.parameters()).dtype]
    stacked, found, expected = spy_on_stacks(Probe(model, loss_fn), batches, rescalings, **options)
    assert stacked
    for name in rescalings:
        assert_same(found[name], expected[name], precision)


@pytest.mark.parametrize("activation", sorted(ELEMENTWISE, key=lambda kind: kind.__name__))
@pytest.mark.parametrize("dtype", PRECISION, ids=str)
def test_every_activation_gives_the_same_in_one_pass(activation, dtype):
    assert_stacked_and_same(net(activation).to(dtype), nn.CrossEntropyLoss(), classes((6, 5, 7), dtype))


CASES = {
    "cross-entropy": (nn.CrossEntropyLoss(), classes, nn.Identity()),
    "cross-entropy, weighted": (nn.CrossEntropyLoss(weight=torch.tensor([0.1, 1.0, 3.0])), classes, nn.Identity()),
    "cross-entropy, smoothed": (nn.CrossEntropyLoss(label_smoothing=0.1), classes, nn.Identity()),
    "cross-entropy, none of an ignored class": (nn.CrossEntropyLoss(ignore_index=-1), classes, nn.Identity()),
    "cross-entropy, summed": (nn.CrossEntropyLoss(reduction="sum"), classes, nn.Identity()),
    "cross-entropy, of probabilities": (nn.CrossEntropyLoss(), probabilities, nn.Identity()),
    "cross-entropy, a function": (F.cross_entropy, classes, nn.Identity()),
    "nll": (nn.NLLLoss(), classes, nn.LogSoftmax(1)),
    "nll, weighted": (nn.NLLLoss(weight=torch.tensor([0.1, 1.0, 3.0])), classes, nn.LogSoftmax(-1)),
    "nll, a function": (F.nll_loss, classes, nn.LogSoftmax(1)),
    "squares": (nn.MSELoss(), values, nn.Identity()),
    "squares, a function": (F.mse_loss, values, nn.Softmax(1)),
    "absolute": (nn.L1Loss(), values, nn.Identity()),
    "absolute, a function": (F.l1_loss, values, nn.Identity()),
    "smooth": (nn.SmoothL1Loss(), values, nn.Identity()),
    "smooth, a function": (F.smooth_l1_loss, values, nn.Identity()),
    "huber": (nn.HuberLoss(), values, nn.Identity()),
    "huber, a function": (F.huber_loss, values, nn.Identity()),
    "binary": (nn.BCELoss(), values, nn.Sigmoid()),
    "binary, a function": (F.binary_cross_entropy, values, nn.Sigmoid()),
    "binary, logits": (nn.BCEWithLogitsLoss(), values, nn.Identity()),
    "binary, logits, a function": (F.binary_cross_entropy_with_logits, values, nn.Identity()),
}


@pytest.mark.parametrize("dtype", PRECISION, ids=str)
@pytest.mark.parametrize(("loss_fn", "draw", "last"), CASES.values(), ids=CASES)
def test_every_loss_gives_the_same_in_one_pass(loss_fn, draw, last, dtype):
    own = copy.deepcopy(loss_fn).to(dtype) if isinstance(loss_fn, nn.Module) else loss_fn
    assert_stacked_and_same(nn.Sequential(net(), last).to(dtype), own, draw((6, 5, 7), dtype))


def test_every_known_loss_has_a_row():
    tried = [loss_fn if not isinstance(loss_fn, nn.Module) else type(loss_fn) for loss_fn, _, _ in CASES.values()]
    assert {*CLASS_LOSSES, *VALUE_LOSSES} == {*tried}


@settings(max_examples=150)
@given(
    widths=st.lists(st.integers(1, 40), max_size=3),
    biased=st.lists(st.booleans(), min_size=4, max_size=4),
    sizes=st.lists(st.integers(4, 40), min_size=2, max_size=6),
    others=st.lists(st.integers(4, 40), max_size=3),
    loss=st.sampled_from(["cross-entropy", "cross-entropy, weighted", "squares", "huber"]),
    dtype=st.sampled_from(list(PRECISION)),
    rescalings=st.lists(st.sampled_from(RESCALINGS), min_size=1, unique=True),
    flattened=st.booleans(),
    seed=st.integers(0, 2**16),
)
def test_any_stack_gives_the_same_in_one_pass(widths, biased, sizes, others, loss, dtype, rescalings, flattened, seed):
    torch.manual_seed(seed)
    all_widths = [NUM_INPUTS, *widths, NUM_OUTPUTS]
    layers = [nn.Flatten()] if flattened else []
    for before, after, bias in zip(all_widths, all_widths[1:], biased, strict=False):
        layers += [nn.Linear(before, after, bias=bias), nn.Softplus()]
    loss_fn, draw, _ = CASES[loss]
    batches = draw((*sizes, *others), dtype)
    if flattened:
        batches = [(x.view(-1, 2, NUM_INPUTS // 2), y) for x, y in batches]
    first, second = batches[: len(sizes)], batches[len(sizes) :]
    model, own = nn.Sequential(*layers).to(dtype), copy.deepcopy(loss_fn).to(dtype)
    least = min(spread(model, own, batch) for batch in batches)  # re-scaling multiplies rounding by its inverse
    assume(least > 1e-3)
    options = {"against": second or None, "comparing": rescalings[:1], "worse": max(1.0, 0.1 / least)}
    assert_stacked_and_same(model, own, first, rescalings, **options)


def test_a_single_linear_layer_is_a_stack():
    assert_stacked_and_same(nn.Linear(NUM_INPUTS, NUM_OUTPUTS), nn.CrossEntropyLoss(), classes())


def test_frozen_parameters_take_no_part():
    model = net()
    model[0].requires_grad_(False)
    model[1].bias.requires_grad_(False)
    assert_stacked_and_same(model, nn.CrossEntropyLoss(), classes())
    found = Probe(model, nn.CrossEntropyLoss()).collect(classes(), ["std"], as_products=True)["std"]
    assert found.num_parameters == model[1].weight.numel() + sum(p.numel() for p in model[3].parameters())


def test_activations_that_work_in_place_change_nothing():
    model = nn.Sequential(nn.Linear(NUM_INPUTS, 5), nn.ReLU(inplace=True), nn.Linear(5, NUM_OUTPUTS))
    assert_stacked_and_same(model, nn.CrossEntropyLoss(), classes())


@pytest.mark.parametrize("scale", [1e-25, 1e-15, 1e15, 1e25])
def test_tiny_and_huge_gradients_keep_their_distances(scale):
    batches = [(x * scale, y) for x, y in values()]  # one layer, whose gradient is as large as its inputs
    loss_fn = nn.L1Loss()
    assert_stacked_and_same(nn.Linear(NUM_INPUTS, NUM_OUTPUTS), loss_fn, batches, ["none"])


@pytest.mark.parametrize("width", [5, 17])
@pytest.mark.parametrize("size", [2, 5, 7, 13, 31, 33, 50, 127])
def test_equal_batches_are_at_distance_zero_to_the_last_bit(size, width):
    (one, other), model = classes((size, size)), net(width=width)
    found = Probe(model, nn.CrossEntropyLoss()).collect([one, other, one, one], ["std"], as_products=True)["std"]
    assert [gram(found).distance(0, j) for j in (2, 3)] == [0.0, 0.0]
    assert heldin.measure(model, nn.CrossEntropyLoss(), [one] * 4) == {"gradient_disparity": 0.0}


def test_equal_batches_in_two_sets_have_equal_gradients_to_the_last_bit():
    model, batches = net(width=17), classes((2, 3, 50, 127))
    found = Probe(model, nn.CrossEntropyLoss()).collect(batches, ["std"], against=batches[::-1], as_products=True)
    one, other = found["std"].matrix().split(4)
    assert torch.equal(one, other.flip(0))


def test_what_else_is_measured_changes_no_bit():
    model, batches = net(), classes((5, 6, 7, 8))
    probe = Probe(model, nn.CrossEntropyLoss())
    alone = probe.collect(batches[:3], ["std"], as_products=True)["std"]
    among = probe.collect(batches[:3], RESCALINGS, against=batches[3:], as_products=True)["std"]
    assert torch.equal(alone.matrix(), among.first_set().matrix())


class OwnLinear(nn.Linear):
    """The same by another name: what it does is not known."""


class OwnParameter(nn.Parameter):
    """The same by another name."""


class Pair(NamedTuple):
    """A pair by another name."""

    x: torch.Tensor
    y: torch.Tensor


class OwnLoss(nn.CrossEntropyLoss):
    """The same by another name."""


def changed(change, model=None):
    """A model that something was done to."""
    model = net() if model is None else model
    change(model)
    return model


def tied():
    model = net(width=NUM_INPUTS)
    model[1].weight = model[0][0].weight
    return model


def called_twice():
    layer = nn.Linear(NUM_INPUTS, NUM_INPUTS)
    return nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(NUM_INPUTS, NUM_OUTPUTS))


def with_layer(layer):
    return nn.Sequential(nn.Linear(NUM_INPUTS, 5), layer, nn.Linear(5, NUM_OUTPUTS))


def own_forward(model):
    model.forward = lambda x: x.mean(0, keepdim=True) + nn.Sequential.forward(model, x)


def sequence(model=None, *, size=6):
    return [(torch.randn(size, 2, NUM_INPUTS), torch.randint(2, (size, NUM_OUTPUTS))) for _ in range(3)]


def different(*changes):
    """Batches that something was done to, each something else."""
    return [change(*batch) for change, batch in zip(changes, classes(), strict=True)]


def as_they_are(x, y):
    return x, y


def no_hook(*_):
    return None


MODELS = {
    "dropout": lambda: with_layer(nn.Dropout(0.5)),
    "batch norm": lambda: with_layer(nn.BatchNorm1d(5)),
    "layer norm": lambda: with_layer(nn.LayerNorm(5)),
    "softmax over samples": lambda: with_layer(nn.Softmax(0)),
    "random activation": lambda: with_layer(nn.RReLU()),
    "activation with a parameter": lambda: with_layer(nn.PReLU()),
    "flattened over samples": lambda: with_layer(nn.Flatten(0)),
    "subclassed layer": lambda: with_layer(OwnLinear(5, 5)),
    "wrapped": lambda: nn.ModuleList([net()])[0:1],
    "tied weights": tied,
    "called twice": called_twice,
    "parametrized": lambda: with_layer(parametrizations.weight_norm(nn.Linear(5, 5))),
    "pruned": lambda: with_layer(prune.l1_unstructured(nn.Linear(5, 5), "weight", 0.5)),
    "forward hook": lambda: changed(lambda model: model[1].register_forward_hook(no_hook)),
    "forward pre-hook": lambda: changed(lambda model: model[0].register_forward_pre_hook(no_hook)),
    "hook with keywords": lambda: changed(lambda model: model.register_forward_hook(no_hook, with_kwargs=True)),
    "backward hook": lambda: changed(lambda model: model[1].register_full_backward_hook(no_hook)),
    "forward of its own": lambda: changed(own_forward),
    "compiled": lambda: torch.compile(net(), backend="eager"),
    "compiled in place": lambda: changed(lambda model: model.compile(backend="eager")),
    "two precisions": lambda: changed(lambda model: model[1].double()),
    "other precision than the data": lambda: net().double(),
    "parameter of another class": lambda: changed(
        lambda model: model[1].register_parameter("bias", OwnParameter(torch.zeros(5)))
    ),
    "sparse weight": lambda: changed(
        lambda model: model[1].register_parameter("weight", nn.Parameter(torch.eye(5).to_sparse()))
    ),
    "parameter besides": lambda: changed(lambda model: model.register_parameter("scale", nn.Parameter(torch.ones(1)))),
    "parameter besides in a layer": lambda: changed(
        lambda model: model[1].register_parameter("scale", nn.Parameter(torch.ones(1)))
    ),
}
LOSSES = {
    "callable of one's own": lambda: lambda output, target: F.cross_entropy(output, target, reduction="none"),
    "none": lambda: None,
    "subclassed loss": OwnLoss,
    "loss with a hook": lambda: changed(lambda loss: loss.register_forward_hook(no_hook), nn.CrossEntropyLoss()),
    "loss compiled": lambda: torch.compile(nn.CrossEntropyLoss(), backend="eager"),
    "loss with trained weights": lambda: nn.CrossEntropyLoss(weight=torch.ones(NUM_OUTPUTS, requires_grad=True)),
    "loss that is not known": nn.MultiMarginLoss,
}
BATCHES = {
    "other shapes": lambda: different(as_they_are, as_they_are, lambda x, y: (x[:, :3], y)),
    "other precision": lambda: different(as_they_are, as_they_are, lambda x, y: (x.double(), y)),
    "other devices": lambda: different(as_they_are, as_they_are, lambda x, y: (x.to("meta"), y.to("meta"))),
    "other kinds of targets": lambda: different(as_they_are, as_they_are, lambda x, y: (x, y.int())),
    "fewer targets": lambda: different(as_they_are, as_they_are, lambda x, y: (x, y[:3])),
    "no samples": lambda: different(as_they_are, as_they_are, lambda x, y: (x[:0], y[:0])),
    "no pair": lambda: different(as_they_are, as_they_are, lambda x, y: (x, y, y)),
    "no tensors": lambda: different(as_they_are, as_they_are, lambda x, y: (x, y.tolist())),
    "no targets": lambda: different(as_they_are, as_they_are, lambda x, y: (x, y.sum())),
    "dictionaries": lambda: [{"x": x, "y": y} for x, y in classes()],
    "pairs of another class": lambda: [Pair(x, y) for x, y in classes()],
    "tensors of another class": lambda: [(nn.Parameter(x, requires_grad=False), y) for x, y in classes()],
    "sparse": lambda: [(x.to_sparse(), y) for x, y in classes()],
    "on a graph": lambda: [(x.requires_grad_(), y) for x, y in classes()],
    "equal": lambda: different(as_they_are, as_they_are, as_they_are)[:1] * 3,
    "sequences": sequence,
}


def test_what_is_refused_below_is_stacked_without_the_reason():
    assert can_be_stacked(net(), nn.CrossEntropyLoss(), classes())
    assert can_be_stacked(with_layer(nn.Linear(5, 5)), nn.CrossEntropyLoss(), classes())


@pytest.mark.parametrize("create", MODELS.values(), ids=MODELS)
def test_models_of_which_not_all_is_known_go_batch_by_batch(create):
    assert not can_be_stacked(create(), nn.CrossEntropyLoss(), classes())


@pytest.mark.parametrize("create", LOSSES.values(), ids=LOSSES)
def test_losses_of_which_not_all_is_known_go_batch_by_batch(create):
    assert not can_be_stacked(net(), create(), classes())


@pytest.mark.parametrize("create", BATCHES.values(), ids=BATCHES)
def test_batches_that_are_not_alike_go_one_by_one(create):
    assert not can_be_stacked(net(), nn.CrossEntropyLoss(), create())


def test_half_precision_goes_batch_by_batch():
    assert not can_be_stacked(net().bfloat16(), nn.CrossEntropyLoss(), classes(dtype=torch.bfloat16))


def test_tensors_made_in_inference_mode_go_one_by_one():
    with torch.inference_mode():
        batches = classes()
    assert not can_be_stacked(net(), nn.CrossEntropyLoss(), batches)


@pytest.mark.parametrize(
    "register",
    [
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ],
)
def test_a_hook_on_all_modules_sends_batches_one_by_one(register):
    handle = register(no_hook)
    try:
        assert not can_be_stacked(net(), nn.CrossEntropyLoss(), classes())
    finally:
        handle.remove()


@pytest.mark.parametrize(
    "loss_fn",
    [
        nn.BCEWithLogitsLoss(weight=torch.ones(6, 1)),
        nn.BCEWithLogitsLoss(pos_weight=torch.ones(NUM_OUTPUTS)),
    ],
    ids=["weight", "pos_weight"],
)
def test_weights_that_may_belong_to_samples_send_batches_one_by_one(loss_fn):
    assert not can_be_stacked(net(), loss_fn, values())


def test_targets_that_only_fit_a_stack_are_refused_as_one_by_one():
    batches = [(torch.randn(2, NUM_INPUTS), torch.rand(2)) for _ in range(5)]
    model = nn.Linear(NUM_INPUTS, 10)  # (10, 10) outputs and (10,) targets in a stack
    with pytest.raises(RuntimeError, match="must match"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        heldin.measure(model, nn.MSELoss(), batches)


def test_autocast_that_stays_in_force_sends_batches_one_by_one():
    stacked, *_ = spy_on_stacks(Probe(net(), nn.CrossEntropyLoss(), autocast=True), classes(), ["std"])
    assert not stacked


def test_a_measurement_takes_one_pass_for_each_set_of_batches(monkeypatch):
    passes = []

    def spy(model, losses_of, batches, *args):
        passes.append([len(x) for x, _ in batches])
        return shoot_stack(model, losses_of, batches, *args)

    monkeypatch.setattr(probe_module, "shoot_stack", spy)
    signals = ["gradient_disparity", "cosine", "train_val_disparity"]
    heldin.measure(net(), nn.CrossEntropyLoss(), classes((4, 5, 6)), against=classes((7, 8)), signals=signals)
    assert passes == [[4, 5, 6], [7, 8]]


def test_only_who_asks_for_products_gets_them():
    found = Probe(net(), nn.CrossEntropyLoss()).gradients(classes())
    assert all(isinstance(part, torch.Tensor) for row in found.rows for part in row)


def test_a_stack_takes_no_more_memory_than_the_gradients_would():
    large = nn.Sequential(nn.Linear(NUM_INPUTS, 1000), nn.Tanh(), nn.Linear(1000, 1000), nn.Linear(1000, NUM_OUTPUTS))
    assert can_be_stacked(large, nn.CrossEntropyLoss(), classes((100,) * 5))
    assert not can_be_stacked(large, nn.CrossEntropyLoss(), classes((1000,) * 5))
    assert not can_be_stacked(large.requires_grad_(False), nn.CrossEntropyLoss(), classes((100,) * 5))


def with_one(batch, num=3):
    return [*classes((6,) * num), batch]


@pytest.mark.parametrize(
    ("odd", "says"),
    [
        ((torch.ones(6, NUM_INPUTS), torch.zeros(6, dtype=torch.long)), "1 of 4 batches skipped.*all its losses are"),
        ((torch.ones(1, NUM_INPUTS), torch.zeros(1, dtype=torch.long)), "1 of 4 batches skipped.*single sample"),
    ],
    ids=["equal losses", "single sample"],
)
def test_batches_without_spread_are_skipped_and_named_in_the_same_words(odd, says):
    model, batches, told = net(), with_one(odd), []
    for as_products in (True, False):
        with pytest.warns(HeldinWarning, match=says) as caught:
            found = Probe(model, nn.CrossEntropyLoss()).collect(batches, ["std", "none"], as_products=as_products)
        told.append([str(warning.message) for warning in caught])
        assert (found["std"].num_batches, found["none"].num_batches) == (3, 4)
        assert found["std"].num_samples == (6, 6, 6)
    assert told[0] == told[1]


def test_batches_of_single_samples_are_stacked_where_no_spread_is_needed():
    batches = [*classes((6, 5)), *classes((1, 1))]
    with pytest.warns(HeldinWarning, match="2 of 4 batches skipped"):
        assert_stacked_and_same(net(), nn.CrossEntropyLoss(), batches, ["std", "none", "pooled_std"])


def test_batches_with_ignored_samples_go_one_by_one():
    stacked, found, _ = spy_on_stacks(Probe(net(), nn.CrossEntropyLoss(ignore_index=1)), classes((6, 6, 6)), ["std"])
    assert not stacked
    assert sum(found["std"].num_samples) < 18


def test_losses_all_but_equal_are_judged_one_by_one():
    model, x = net(), torch.randn(1, NUM_INPUTS)
    close = [(x + 1e-4 * torch.randn(6, NUM_INPUTS), torch.zeros(6, dtype=torch.long)) for _ in range(3)]
    assert can_be_stacked(model, nn.CrossEntropyLoss(), close)
    stacked, found, _ = spy_on_stacks(Probe(model, nn.CrossEntropyLoss()), close, ["std"])
    assert not stacked
    assert found["std"].num_batches == 3


@pytest.mark.parametrize(
    ("batches", "error", "says"),
    [
        (lambda: with_one((torch.full((4, NUM_INPUTS), torch.nan), torch.zeros(4).long())), NotFiniteError, "4 of 4"),
        (lambda: with_one((torch.zeros(4, NUM_INPUTS), torch.full((4,), 9))), IndexError, "9 is out of bounds"),
        (lambda: [(x[:, 1:], y) for x, y in classes()], RuntimeError, "6x3 and 4x5"),
        (lambda: classes((1, 1, 1)), BatchesError, "pooled_std"),
        (lambda: classes((6, 1)), BatchesError, "Found 1; 1 skipped"),
    ],
    ids=["not finite", "no such class", "too few features", "single samples", "too few of use"],
)
def test_errors_are_those_of_single_batches(batches, error, says):
    model = net()
    with pytest.raises(error, match=says):
        heldin.measure(model, nn.CrossEntropyLoss(), batches())
    assert all(not module._forward_hooks for module in model.modules())


def test_one_pass_leaves_no_trace():
    model, batches = net(), classes()
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
        parameter.register_hook(lambda _: pytest.fail("a hook on a gradient ran"))
    model[1].bias.requires_grad_(False)
    model.eval()
    before = copy.deepcopy([model.state_dict(), [p.grad for p in model.parameters()], batches, torch.get_rng_state()])
    attributes = [dict(vars(module)) for module in model.modules()]
    stacked, *_ = spy_on_stacks(Probe(model, nn.CrossEntropyLoss()), batches, RESCALINGS)
    assert stacked
    after = [model.state_dict(), [p.grad for p in model.parameters()], batches, torch.get_rng_state()]
    torch.testing.assert_close(after, before, rtol=0, atol=0)
    assert all(
        vars(module)[name] is value
        for module, own in zip(model.modules(), attributes, strict=True)
        for name, value in own.items()
    )
    assert [p.requires_grad for p in model.parameters()] == [True, True, True, False, True, True]
    assert not any(module.training or module._forward_hooks for module in model.modules())
