"""The probe: gradients of batches at the present weights, and the arguments it refuses."""

from __future__ import annotations

import queue
import warnings

import pytest
import torch
from torch import distributed, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import heldin
from heldin.errors import ArgumentError, BatchesError, HeldinWarning, LossError, NoSpreadError, NotFiniteError
from heldin.gradients import num_values
from heldin.probing.probe import Probe, gradient
from heldin.probing.rescaling import RESCALINGS
from heldin.signals import reference


def make_batches(num=4, size=6, dtype=torch.float32):
    return [(torch.randn(size, 3, dtype=dtype), torch.randint(2, (size,))) for _ in range(num)]


def net():
    return nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))


def per_sample(output, target):
    return F.cross_entropy(output, target, reduction="none")


def words():
    return nn.Sequential(nn.Embedding(7, 3, sparse=True), nn.Flatten(), nn.Linear(6, 2))


def tied():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    return model


def partly_frozen():
    model = net()
    model[0].requires_grad_(False)
    return model


MODELS = {
    "mlp": net,
    "sparse embedding": words,
    "tied weights": tied,
    "frozen layer": partly_frozen,
    "batch norm": lambda: nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Linear(5, 2)),
}


@pytest.mark.parametrize("rescale", RESCALINGS)
@pytest.mark.parametrize("name", MODELS)
def test_rows_are_the_gradients_of_plain_backward_passes(name, rescale):
    single = ([*MODELS].index(name) + [*RESCALINGS].index(rescale)) % 2  # precisions alternate in both directions
    dtype = torch.float32 if single else torch.float64
    model, batches = MODELS[name]().to(dtype), make_batches(dtype=dtype)
    if name == "sparse embedding":
        batches = [(torch.randint(7, (6, 2)), y) for _, y in batches]
    found = Probe(model, per_sample).gradients(batches, rescale)
    expected = reference.batch_gradients(model, per_sample, batches, rescale)
    assert found.num_parameters == sum(p.numel() for p in model.parameters() if p.requires_grad)
    rel = 1e-4 if dtype is torch.float32 else 1e-10
    assert torch.allclose(found.matrix(), expected, rtol=rel, atol=rel * float(expected.abs().max()))


def test_all_rescalings_together_equal_each_by_itself_with_one_forward_pass_per_batch():
    model, batches = net(), make_batches(num=3)
    probe = Probe(model, per_sample)
    calls = []
    handle = model.register_forward_hook(lambda *_: calls.append(1))
    together = probe.collect(batches, RESCALINGS)
    handle.remove()
    assert len(calls) == 3
    for rescale in RESCALINGS:
        assert torch.allclose(together[rescale].matrix(), probe.gradients(batches, rescale).matrix(), rtol=1e-6)


def test_dropout_is_on_in_train_mode_and_off_in_eval_mode():
    model, (batch, *_) = nn.Sequential(nn.Dropout(0.5), net()), make_batches()
    on = Probe(model, per_sample, mode="train").gradients([batch, batch]).matrix()
    off = Probe(model, per_sample, mode="eval").gradients([batch, batch]).matrix()
    assert not torch.equal(on[0], on[1])
    assert torch.equal(off[0], off[1])


def test_randomness_follows_from_the_seed_alone():
    model, batches = nn.Sequential(nn.Dropout(0.5), net()), make_batches()
    probe = Probe(model, per_sample, seed=1)
    first = probe.gradients(batches).matrix()
    torch.rand(17)
    assert torch.equal(first, probe.gradients(batches).matrix())
    assert torch.equal(first, probe.collect(batches, ["std"], seed=1)["std"].matrix())
    assert not torch.equal(first, Probe(model, per_sample, seed=2).gradients(batches).matrix())


def test_an_autocast_region_around_the_probe_has_no_effect_unless_requested():
    model, batches = net(), make_batches()
    plain = Probe(model, per_sample).gradients(batches).matrix()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(Probe(model, per_sample).gradients(batches).matrix(), plain)
        assert not torch.equal(Probe(model, per_sample, autocast=True).gradients(batches).matrix(), plain)


def test_the_second_set_is_used_only_with_the_rescalings_that_compare():
    model, passes = nn.Linear(3, 2), queue.SimpleQueue()

    def losses(model, batch):
        passes.put(len(batch[0]))
        return per_sample(model(batch[0]), batch[1])

    batches = [(torch.randn(size, 3), torch.arange(size) % 2) for size in (4, 5, 6)]
    probe = Probe(model, None, sample_losses=losses)
    found = probe.collect(batches[:2], ["std", "none"], against=batches[2:], compared=["std"])
    assert (found["std"].num_batches, found["none"].num_batches) == (3, 2)
    assert (found["std"].split, found["std"].num_samples) == (2, (4, 5, 6))
    assert [passes.get() for _ in range(passes.qsize())] == [4, 5, 6]
    whole = probe.collect(batches[:2], ["std", "none"], against=batches[2:])
    assert torch.equal(whole["none"].matrix()[:2], found["none"].matrix())


def test_pooled_losses_may_come_from_other_batches():
    model, batches, pool = net(), make_batches(2), make_batches(5)
    probe = Probe(model, per_sample)
    found = probe.gradients(batches, "pooled_std", pool=pool).matrix()
    std = torch.cat([per_sample(model(x), y) for x, y in pool]).double().std(correction=0)
    torch.testing.assert_close(found, probe.gradients(batches, "none").matrix() / std, rtol=1e-5, atol=0)


def with_equal_losses(size=4):
    return torch.ones(size, 3), torch.zeros(size, dtype=torch.long)


def test_a_batch_with_equal_losses_is_skipped_with_one_warning():
    probe, batches = Probe(net(), per_sample), [*make_batches(num=3), with_equal_losses()]
    with pytest.warns(HeldinWarning, match=r"1 of 4 batches skipped.*all its losses are equal.*\(Shown once\.\)"):
        assert probe.gradients(batches).num_batches == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe.gradients(batches)


def test_a_batch_that_one_rescaling_cannot_use_is_used_by_another():
    batches = [*make_batches(num=3), *make_batches(num=1, size=1)]
    with pytest.warns(HeldinWarning, match="single sample"):
        found = Probe(net(), per_sample).collect(batches, ["std", "none"])
    assert (found["std"].num_batches, found["none"].num_batches) == (3, 4)


def test_a_gradient_without_spread_is_skipped_by_grad_std_only():
    model = nn.Linear(3, 1, bias=False)
    batches = [(torch.ones(2, 3), torch.ones(2)), (torch.randn(2, 3), torch.ones(2))]
    probe = Probe(model, lambda output, target: output.squeeze(1) * target)
    with pytest.warns(HeldinWarning, match="1 of 2 batches skipped with rescale='grad_std': its gradient has no"):
        found = probe.collect(batches, ["none", "grad_std"])
    assert (found["none"].num_batches, found["grad_std"].num_batches) == (2, 1)


def test_single_samples_with_std_are_refused_with_the_pooled_form_as_the_remedy():
    with pytest.raises(BatchesError, match="pooled_std"):
        Probe(net(), per_sample).gradients(make_batches(size=1))


@pytest.mark.parametrize("rescale", ["std", "std_detached", "minmax", "pooled_std"])
def test_equal_losses_in_all_batches_are_refused(rescale):
    message = r"Found 0; 3 skipped, .* losses are equal( up to rounding)?\. Is the loss a constant\?"
    with pytest.raises(NoSpreadError, match=message):
        Probe(net(), per_sample).gradients([with_equal_losses()] * 3, rescale)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        ([with_equal_losses(), with_equal_losses(), with_equal_losses(1)], None, NoSpreadError),
        ([with_equal_losses(), with_equal_losses(1), with_equal_losses(1)], None, BatchesError),
        ([with_equal_losses(1)] * 3, None, BatchesError),
        (make_batches(num=3), [with_equal_losses(), with_equal_losses(1)], NoSpreadError),
        (make_batches(num=3), [with_equal_losses(1)], BatchesError),
    ],
    ids=["enough by size", "some too small", "all too small", "in the second set", "second set too small"],
)
def test_equal_losses_are_the_reason_only_if_enough_batches_are_large_enough(first, second, kind):
    with pytest.raises(BatchesError) as refused:
        Probe(net(), per_sample).collect(first, ["std"], against=second, at_least=2)
    assert type(refused.value) is kind


def test_too_few_batches_are_refused_before_any_forward_pass():
    model = net()
    model.register_forward_hook(lambda *_: pytest.fail("the model was run"))
    with pytest.raises(BatchesError, match="At least 2"):
        Probe(model, per_sample).collect(make_batches(num=1), ["std"], at_least=2)
    with pytest.raises(BatchesError, match="compare"):
        Probe(model, per_sample).gradients(make_batches(), against=[])


def test_losses_that_are_not_finite_are_refused():
    batches = [(torch.full((4, 3), float("nan")), torch.zeros(4, dtype=torch.long))] * 2
    with pytest.raises(NotFiniteError, match="NaN"):
        Probe(net(), per_sample).gradients(batches)


def test_a_loss_of_another_model_is_refused():
    other = net()
    probe = Probe(net(), None, sample_losses=lambda model, batch: per_sample(other(batch[0]), batch[1]))
    with pytest.raises(LossError, match="no trainable parameter takes part"):
        probe.gradients(make_batches())


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (nn.ReLU(), {}, "trainable parameters.*ReLU.*the model comes first"),
        (net().requires_grad_(False), {}, "requires_grad=False.*Unfreeze"),
        (lambda x: x, {}, r"torch\.nn\.Module. Found function"),
        (net(), {"mode": "training"}, "`mode` should be one of .*Did you mean 'train'"),
    ],
    ids=["no parameters", "frozen", "not a module", "mode"],
)
def test_arguments_that_cannot_be_used_are_refused(model, options, message):
    with pytest.raises(ArgumentError, match=message):
        Probe(model, per_sample, **options)


def test_an_unknown_rescaling_is_refused():
    with pytest.raises(ArgumentError, match="`rescale` should be one of"):
        Probe(net(), per_sample).gradients(make_batches(), "st")


def test_lazy_parameters_are_refused_and_not_initialised():
    model = nn.Sequential(nn.LazyLinear(5), nn.LazyBatchNorm1d(), nn.Linear(5, 2))
    probe = Probe(model, per_sample)
    with pytest.raises(ArgumentError, match=r"Found that `0.weight` of Sequential.* Run one batch through the model"):
        probe.gradients(make_batches())
    assert isinstance(model[0], nn.LazyLinear)
    model(torch.randn(4, 3))
    probe.gradients(make_batches())


def test_a_model_on_the_meta_device_is_refused_until_it_has_values():
    with torch.device("meta"):
        model = net()
    probe = Probe(model, per_sample)
    with pytest.raises(ArgumentError, match=r"Found that `0.weight` of Sequential is on the meta device.*to_empty"):
        probe.gradients(make_batches())
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    probe.gradients(make_batches())


def test_cached_parametrizations_are_refused():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)))
    with nn.utils.parametrize.cached():
        with pytest.raises(ArgumentError, match=r"Found torch.nn.utils.parametrize.cached\(\).*Measure outside of it"):
            Probe(model, per_sample).gradients(make_batches())
        Probe(net(), per_sample).gradients(make_batches())  # it has none
    Probe(model, per_sample).gradients(make_batches())


@pytest.fixture
def process_group(tmp_path):
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def test_wrappers_of_replicated_models_are_removed(process_group):
    model, batches = net(), make_batches()
    expected = heldin.measure(model, per_sample, batches)
    for wrapped in (nn.parallel.DistributedDataParallel(model), nn.DataParallel(model)):
        assert heldin.measure(wrapped, per_sample, batches) == expected
        assert Probe(wrapped, per_sample).model is model
        stopper = heldin.EarlyStopping(wrapped, per_sample, batches=4, keep="lowest")
        stopper.step(batches)
        assert stopper.restore() == 0


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning")  # of torch, on a machine without a GPU
def test_a_model_of_distributed_tensors_is_measured(process_group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate, distribute_module

    model, batches = net(), make_batches()
    expected = heldin.measure(model, per_sample, batches)
    replicated = distribute_module(
        model,
        init_device_mesh("cpu", (1,)),
        input_fn=lambda module, inputs, mesh: tuple(DTensor.from_local(x, mesh, [Replicate()]) for x in inputs),
        output_fn=lambda module, output, mesh: output.to_local(),
    )
    assert replicated[0].weight.placements == (Replicate(),)
    assert heldin.measure(replicated, per_sample, batches) == pytest.approx(expected, rel=1e-6)


def test_a_forward_pass_that_writes_to_weights_is_reported_once():
    class Normalising(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3, 2, bias=False)

        def forward(self, x):
            with torch.no_grad():
                self.head.weight.copy_(F.normalize(self.head.weight, dim=1))
            return self.head(x)

    probe = Probe(Normalising(), per_sample)
    with pytest.warns(HeldinWarning, match=r"Normalising writes to its weights \(head.weight\).*register_buffer"):
        probe.gradients(make_batches())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probe.gradients(make_batches())


def test_a_gradient_is_that_of_the_weighted_losses_in_their_precision():
    a, b = nn.Parameter(torch.tensor([1.0, 2.0])), nn.Parameter(torch.tensor([3.0]))
    unused = nn.Parameter(torch.ones(1))
    found = gradient(a * b, torch.tensor([0.5, -1.0]).double(), [a, b, unused], keep_graph=False)
    assert [part.tolist() for part in found[:2]] == [[1.5, -3.0], [-1.5]]
    assert found[0].dtype is torch.float32
    assert found[2] is None


def test_the_gradient_of_a_complex_parameter_is_that_of_its_real_and_imaginary_parts():
    values, weights = torch.randn(3, 2), torch.tensor([1.0, -2.0, 0.5])
    as_complex, as_real = nn.Parameter(torch.view_as_complex(values.clone())), nn.Parameter(values)
    (found,) = gradient((as_complex * as_complex).imag, weights, [as_complex], keep_graph=False)
    (expected,) = gradient(2 * as_real[:, 0] * as_real[:, 1], weights, [as_real], keep_graph=False)
    torch.testing.assert_close(found, expected)
    assert num_values(as_complex) == num_values(as_real) == found.numel()


class Checkpointed(nn.Module):
    def __init__(self, use_reentrant):
        super().__init__()
        self.first, self.last, self.use_reentrant = nn.Linear(3, 3), nn.Linear(3, 2), use_reentrant

    def forward(self, x):
        return self.last(checkpoint(torch.tanh, self.first(x), use_reentrant=self.use_reentrant))


def test_reentrant_checkpoints_are_refused_with_the_remedy_and_others_are_not():
    model, batches = Checkpointed(use_reentrant=True), make_batches()
    with pytest.raises(LossError, match=r"reentrant.*use_reentrant=False.*gradient_checkpointing_kwargs"):
        Probe(model, per_sample).gradients(batches)
    assert all(parameter.grad is None for parameter in model.parameters())
    model.use_reentrant = False
    found = Probe(model, per_sample).gradients(batches, "none").matrix()
    expected = reference.batch_gradients(model, per_sample, batches, "none")
    assert torch.allclose(found, expected, atol=1e-6)


class FrozenStart(nn.Module):
    """No trainable parameter lies upstream of the checkpoint, as with LoRA and `enable_input_require_grads`."""

    def __init__(self, use_reentrant):
        super().__init__()
        self.start, self.inside, self.head = nn.Linear(3, 3).requires_grad_(False), nn.Linear(3, 3), nn.Linear(3, 2)
        self.start.register_forward_hook(lambda module, inputs, output: output.requires_grad_(True))
        self.use_reentrant = use_reentrant

    def forward(self, x):
        return self.head(checkpoint(self.inside, self.start(x), use_reentrant=self.use_reentrant))


@pytest.mark.parametrize("signal", ["gradient_disparity", "gsnr", "optimization_variance"])
def test_reentrant_checkpoints_are_found_where_torch_does_not_raise(signal):
    model, batches = FrozenStart(use_reentrant=True), make_batches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(LossError, match="Found reentrant gradient checkpointing"):
        heldin.measure(model, per_sample, batches, signals=signal, optimizer=optimizer)
    model.use_reentrant = False
    found = heldin.measure(model, per_sample, batches, signals=signal, optimizer=optimizer)
    plain = FrozenStart(use_reentrant=False)
    plain.load_state_dict(model.state_dict())
    plain.forward = lambda x: plain.head(plain.inside(plain.start(x)))
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    assert found == pytest.approx(heldin.measure(plain, per_sample, batches, signals=signal, optimizer=optimizer))


class Experts(nn.Module):
    """Each batch uses one of `num` layers, in turn; `unused` is used by none."""

    def __init__(self, num, unused=0):
        super().__init__()
        self.experts, self.calls = nn.ModuleList(nn.Linear(3, 2) for _ in range(num)), 0
        self.unused = nn.ModuleList(nn.Linear(3, 2) for _ in range(unused))

    def forward(self, x):
        self.calls += 1
        return self.experts[(self.calls - 1) % len(self.experts)](x)


def test_parameters_without_a_gradient_in_any_batch_are_named_once():
    probe = Probe(Experts(2, unused=2), per_sample)
    message = (
        r"4 of 8 trainable parameters received no gradient in any batch: "
        r"unused\.0\.weight, unused\.0\.bias, unused\.1\.weight and 1 more\. .* look for .detach"
    )
    with pytest.warns(HeldinWarning, match=message) as caught:
        probe.gradients(make_batches())
        probe.gradients(make_batches())
    assert len(caught) == 1
    Probe(Experts(2), per_sample).gradients(make_batches())  # each is used by a batch: no warning
    with pytest.warns(
        HeldinWarning, match=r"4 of 6 .*: experts\.1\.weight, experts\.1\.bias, experts\.2\.weight and 1"
    ):
        Probe(Experts(3), per_sample).gradients(make_batches(1))


class NoGradientInside(nn.Module):
    """No input of the checkpoint needs a gradient, so none of the parameters inside gets one."""

    def __init__(self, use_reentrant):
        super().__init__()
        self.inside, self.skip, self.use_reentrant = nn.Linear(3, 2), nn.Linear(3, 2), use_reentrant

    def forward(self, x):
        return checkpoint(self.inside, x, use_reentrant=self.use_reentrant) + self.skip(x)


def test_reentrant_checkpointing_is_named_as_the_likely_cause_of_missing_gradients():
    message = r"2 of 4 .*: inside.weight, inside.bias\. .* the likely cause is reentrant .*use_reentrant=False"
    with (
        pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"),
        pytest.warns(HeldinWarning, match=message),
    ):
        Probe(NoGradientInside(use_reentrant=True), per_sample).gradients(make_batches())
    Probe(NoGradientInside(use_reentrant=False), per_sample).gradients(make_batches())


def test_another_error_of_autograd_is_raised_unchanged():
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradient(torch.ones(2), torch.ones(2), [nn.Parameter(torch.ones(2))], keep_graph=False)


@pytest.mark.parametrize(("scale", "warns"), [(1.0, True), (1e-6, False)], ids=["masked", "rounded to 0"])
def test_masked_losses_that_count_as_samples_are_reported_once(scale, warns):
    torch.manual_seed(0)
    batches = [(torch.randn(8, 3), torch.randn(8, 1)) for _ in range(2)]

    def losses(model, batch):
        values = (model(batch[0]) - batch[1]).square().flatten()
        mask = torch.tensor([0.0, 0.0, scale, *[1.0] * 5])
        return values * mask

    probe = Probe(nn.Linear(3, 1), None, sample_losses=losses)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            with probe.session():
                probe.gradients(batches)
    assert ["2 of the 8 losses of a batch are exactly 0" in str(each.message) for each in caught] == [True] * warns
