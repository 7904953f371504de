"""Whatever is done to a model inside `untouched` is undone, and `plain_execution` lets gradients through."""

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from heldin.probing.trace import plain_execution, untouched

INPUTS = torch.linspace(-1.0, 1.0, 24).reshape(8, 3)


class Busy(nn.Module):
    """Does in a forward pass what modules do: rebinds, adds, deletes, writes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("rebound", torch.zeros(3))
        self.register_buffer("written", torch.zeros(3), persistent=False)
        self.register_buffer("nothing", None)
        self.count = 0
        self.last = None
        self.forgotten = "here"

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.linear(x))
        self.rebound = self.rebound + x.detach().mean(0)
        self.written += x.detach().mean(0)
        self.nothing = torch.ones(1)
        self.count += 1
        self.last = x
        self.added = x
        vars(self).pop("forgotten", None)
        return x


def contents(model: nn.Module) -> dict[str, tuple[int, object]]:
    """What every module has in its attributes, parameters and buffers: which objects, with which values."""
    found = {}
    for name, module in model.named_modules():
        for key, value in {**vars(module), **module._parameters, **module._buffers, **module._modules}.items():
            copy = value.detach().tolist() if isinstance(value, Tensor) else repr(value)
            found[f"{name}.{key}"] = (id(value), copy)
    return found


def run(model: nn.Module) -> tuple[Tensor, ...]:
    """A forward and a backward pass, as a probe does them."""
    return torch.autograd.grad(model(INPUTS).square().sum(), list(model.parameters()), allow_unused=True)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("training", [True, False])
def test_a_model_has_every_attribute_and_buffer_back_as_the_very_object_it_was(training, mode):
    model = nn.Sequential(Busy(), nn.Sequential(Busy())).train(training)
    before = contents(model)
    with untouched(model, mode=mode):
        run(model)
        assert contents(model) != before
    assert contents(model) == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_model_has_everything_back_when_a_forward_pass_raises(error):
    model = nn.Sequential(Busy(), nn.Linear(3, 3)).eval()
    model[1].weight.register_hook(lambda gradient: gradient)
    hooks = model[1].weight._backward_hooks

    def fail(*_: object) -> None:
        raise error

    model[1].register_forward_pre_hook(fail)
    before = contents(model)
    with pytest.raises(error), untouched(model, mode="train"):
        run(model)
    assert contents(model) == before
    assert model[1].weight._backward_hooks is hooks


def test_buffers_are_not_even_written_to():
    model = nn.BatchNorm1d(3)
    buffers = dict(model.named_buffers())
    versions = {name: buffer._version for name, buffer in buffers.items()}
    with untouched(model, mode="train"):
        run(model)
        assert model.num_batches_tracked == 1
        assert {name: buffer._version for name, buffer in buffers.items()} == versions


def test_a_buffer_that_two_modules_share_is_shared_inside():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    model[1].running_mean = model[0].running_mean
    with untouched(model, mode="train"):
        assert model[0].running_mean is model[1].running_mean
        assert model[0].running_var is not model[1].running_var
    assert model[0].running_mean is model[1].running_mean


def test_a_module_that_two_models_share_has_everything_back():
    shared = Busy()
    models = [nn.Sequential(shared), nn.Sequential(shared, nn.Linear(3, 3))]
    before = [contents(model) for model in models]
    with untouched(*models, mode="train"):
        run(models[0]), run(models[1])
    assert [contents(model) for model in models] == before


def test_one_use_inside_another_gives_back_what_the_outer_one_lent():
    model = Busy()
    before = contents(model)
    with untouched(model, mode="train"):
        lent = contents(model)
        with untouched(model, mode="eval"):
            run(model)
        assert contents(model) == lent
    assert contents(model) == before


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_with_max_norm_have_their_rows_back(kind):
    model = kind(5, 3, max_norm=0.5)
    weight, before, version = model.weight, model.weight.detach().clone(), model.weight._version
    with untouched(model, mode="train"):
        model(torch.arange(5).reshape(1, 5))
        assert not torch.equal(weight, before)
    assert model.weight is weight
    assert weight._version == version
    assert torch.equal(weight, before)


def scripted() -> nn.Module:
    return torch.jit.script(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))


def traced() -> nn.Module:
    return torch.jit.trace(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)), INPUTS, check_trace=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("create", [scripted, traced])
def test_scripted_modules_have_their_statistics_and_modes_back(create):
    model = create()
    waiting = model(INPUTS).square().sum()
    buffers = dict(model.named_buffers())
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    modes = [module.training for module in model.modules()]
    with untouched(model, mode="eval"):
        assert not model.training
    with untouched(model, mode="train"):
        run(model)
        assert not torch.equal(buffers["1.running_mean"], before["1.running_mean"])
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(buffer, before[name]) for name, buffer in buffers.items())
    waiting.backward()


def test_modules_beside_the_model_have_their_buffers_back_and_keep_their_mode():
    model, others = nn.Linear(3, 3), [nn.BatchNorm1d(3).eval(), nn.BatchNorm1d(3)]
    buffers = [dict(module._buffers) for module in others]
    with untouched(model, mode="train", beside=others):
        assert [module.training for module in others] == [False, True]
        run(others[1])
        assert int(others[1].num_batches_tracked) == 1
    assert all(
        module._buffers[name] is kept for module, own in zip(others, buffers, strict=True) for name, kept in own.items()
    )
    assert int(others[1].num_batches_tracked) == 0


def test_a_compiled_module_beside_the_model_and_the_one_it_wraps_keep_their_own_buffers():
    inner = nn.BatchNorm1d(3)
    names = set(inner._buffers)
    with untouched(nn.Linear(3, 3), mode="train", beside=[torch.compile(inner, backend="eager")]):
        assert set(inner._buffers) == names
        run(inner)
    assert (set(inner._buffers), int(inner.num_batches_tracked)) == (names, 0)


def test_modules_beside_the_model_may_be_frozen_lazy_or_take_notes():
    frozen = torch.jit.freeze(torch.jit.script(nn.Linear(3, 3).eval()))
    taking = nn.Linear(3, 3)
    taking.notes = notes = {}
    taking.register_forward_hook(lambda module, inputs, output: notes.update(seen=module.notes is notes))
    with untouched(nn.Linear(3, 3), mode="train", beside=[frozen, nn.LazyBatchNorm1d(), taking]):
        run(taking)
    assert notes == {"seen": True}


def times_ten(calls: list[int]) -> Callable[[Tensor], Tensor]:
    def hook(gradient: Tensor) -> Tensor:
        calls.append(1)
        return gradient * 10

    return hook


def test_gradient_hooks_on_parameters_are_silent_inside_and_alive_afterwards():
    model, calls = nn.Linear(3, 3), []
    plain = run(model)
    handle = model.weight.register_hook(times_ten(calls))
    with untouched(model, mode="train"):
        inside = run(model)
    assert calls == []
    assert torch.equal(inside[0], plain[0])
    assert torch.equal(run(model)[0], plain[0] * 10)
    assert calls == [1]
    handle.remove()
    assert torch.equal(run(model)[0], plain[0])


def test_gradient_hooks_added_afterwards_join_those_of_before():
    model, calls = nn.Linear(3, 3), []
    model.weight.register_hook(times_ten(calls))
    with untouched(model, mode="train"):
        pass
    model.weight.register_hook(times_ten(calls))
    model.bias.register_hook(times_ten(calls))
    run(model)
    assert calls == [1, 1, 1]


@pytest.mark.parametrize("register", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_on_modules_are_silent_inside_and_alive_afterwards(register):
    model, calls = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), []
    handle = getattr(model[1], register)(lambda *_: calls.append(1))
    with untouched(model, mode="train"):
        run(model)
    assert calls == []
    run(model)
    assert calls == [1]
    handle.remove()
    run(model)
    assert calls == [1]


@pytest.mark.parametrize("register", ["register_module_full_backward_hook", "register_module_full_backward_pre_hook"])
def test_backward_hooks_on_all_modules_are_silent_inside_and_alive_afterwards(register):
    model, calls = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), []
    inputs = INPUTS.clone().requires_grad_()
    handle = getattr(nn.modules.module, register)(lambda *_: calls.append(1))
    try:
        with untouched(model, mode="train"):
            torch.autograd.grad(model(inputs).sum(), inputs)
        silent = not calls
        torch.autograd.grad(model(inputs).sum(), inputs)
    finally:
        handle.remove()
    assert silent
    assert calls == [1, 1, 1]


def test_forward_hooks_run_inside_because_weights_may_be_made_by_them():
    model, calls = nn.Linear(3, 3), []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    with untouched(model, mode="train"):
        run(model)
    assert calls == [1]


class KeepsNormInEvaluation(nn.Sequential):
    """As people freeze BatchNorm: the model's own `train()` leaves it out."""

    def train(self, mode: bool = True) -> "KeepsNormInEvaluation":
        super().train(mode)
        self[1].eval()
        return self


def norm_in_evaluation() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout())
    model[1].eval()
    return model


@pytest.mark.parametrize(
    ("model", "mode", "inside"),
    [
        pytest.param(nn.Sequential(nn.Linear(3, 3)), "train", [True, True], id="training, train"),
        pytest.param(nn.Sequential(nn.Linear(3, 3)), "eval", [False, False], id="training, eval"),
        pytest.param(nn.Sequential(nn.Linear(3, 3)).eval(), "train", [True, True], id="evaluating, train"),
        pytest.param(nn.Sequential(nn.Linear(3, 3)).eval(), "eval", [False, False], id="evaluating, eval"),
        pytest.param(norm_in_evaluation(), "train", [True, True, False, True], id="one layer kept in eval, train"),
        pytest.param(norm_in_evaluation(), "eval", [False] * 4, id="one layer kept in eval, eval"),
        pytest.param(
            KeepsNormInEvaluation(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval(),
            "train",
            [True, True, False],
            id="train() of its own",
        ),
    ],
)
def test_the_mode_inside_is_the_one_asked_for_and_the_one_afterwards_that_of_before(model, mode, inside):
    before = [module.training for module in model.modules()]
    with untouched(model, mode=mode):
        assert [module.training for module in model.modules()] == inside
    assert [module.training for module in model.modules()] == before


class Hoarder(nn.Module):
    """Changes what it holds in place, or holds more after a forward pass than before."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.seen = []
        self.counts = {}
        self.statistic = torch.zeros(3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        self.seen.append(1)
        self.counts[len(self.seen)] = 1
        self.statistic += x.detach().mean(0)
        self.scale = nn.Parameter(torch.ones(3))
        self.more = nn.Identity()
        self.register_buffer("cached", torch.zeros(3), persistent=False)
        return x


@pytest.mark.parametrize(
    "look",
    [
        pytest.param(lambda model: list(model.seen), id="list"),
        pytest.param(lambda model: dict(model.counts), id="dict"),
        pytest.param(lambda model: model.statistic.tolist(), id="tensor that is no buffer"),
        pytest.param(lambda model: [name for name, _ in model.named_parameters()], id="parameter added"),
        pytest.param(lambda model: [name for name, _ in model.named_modules()], id="module added"),
        pytest.param(lambda model: set(model._non_persistent_buffers_set), id="buffer added"),
    ],
)
def test_what_a_module_changes_in_place_is_changed_back(look):
    model = Hoarder()
    before = look(model)
    with untouched(model, mode="train"):
        model(INPUTS)
    assert look(model) == before


class Unfreezing(nn.Sequential):
    """As staged fine-tuning does: `train()` decides what is trained."""

    def train(self, mode: bool = True) -> "Unfreezing":
        super().train(mode)
        return self.requires_grad_(mode)


def test_requires_grad_is_put_back():
    model = Unfreezing(nn.Linear(3, 3)).eval()
    with untouched(model, mode="train"):
        assert model[0].weight.requires_grad
    assert not model[0].weight.requires_grad


def plain(**options: object):
    return plain_execution(**{"device_types": {"cpu"}, "autocast": False} | options)


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradients_are_on_inside_and_as_they_were_afterwards(around):
    with around():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        with plain():
            assert torch.is_grad_enabled()
            assert not torch.is_inference_mode_enabled()
            assert not torch.ones(1).is_inference()
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before


@pytest.mark.parametrize("autocast", [True, False])
def test_autocast_is_off_inside_unless_it_is_left_in_force(autocast):
    matrix = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with plain(autocast=autocast):
            assert (matrix @ matrix).dtype == (torch.bfloat16 if autocast else torch.float32)
        assert (matrix @ matrix).dtype == torch.bfloat16
    assert (matrix @ matrix).dtype == torch.float32


def test_compiled_code_does_not_run_inside_and_is_not_compiled_again_afterwards():
    compilations, runs = [], []

    def backend(graph, _):
        compilations.append(1)

        def compiled(*arguments):
            runs.append(1)
            return graph(*arguments)

        return compiled

    model = torch.compile(nn.Linear(3, 3), backend=backend)
    model(INPUTS)
    with plain():
        model(INPUTS)
    assert (len(compilations), len(runs)) == (1, 1)
    model(INPUTS)
    assert (len(compilations), len(runs)) == (1, 2)


def test_the_compiler_is_not_imported_for_a_model_that_is_not_compiled():
    programme = (
        "import sys, torch, heldin\n"
        "batches = [(torch.randn(4, 3), torch.randint(2, (4,))) for _ in range(2)]\n"
        "heldin.measure(torch.nn.Linear(3, 2), torch.nn.CrossEntropyLoss(), batches)\n"
        "sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", programme], check=False).returncode == 0


def test_everything_is_as_before_when_something_raises():
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(ZeroDivisionError), plain():
            1 / 0  # noqa: B018
        assert not torch.is_grad_enabled()
        assert torch.is_autocast_enabled("cpu")
