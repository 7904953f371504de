"""Model state and random streams are the same before and after a measurement."""

from __future__ import annotations

import functools
import importlib
import random
import threading
import weakref
from collections import deque

import numpy as np
import pytest
import torch
from tests.interruptions import InterruptAt
from torch import Tensor, nn
from torch.nn.modules import module as torch_module
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, RandomSampler, Subset, TensorDataset

from heldin.errors import HeldinError
from heldin.probing.isolation import (
    MAX_CONTAINER,
    MAX_DEPTH,
    UndoOnError,
    derive_seed,
    eager_full_precision,
    find_generators,
    preserve_state,
    seeded_randomness,
    undoing,
)

INPUTS = torch.linspace(-1.0, 1.0, 24).reshape(8, 3)


class Busy(nn.Module):
    """Changes in a forward pass everything that a module can change."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("rebound", torch.zeros(3))
        self.register_buffer("written", torch.zeros(3), persistent=False)
        self.register_buffer("nothing", None)
        self.count = 0
        self.last = None
        self.deleted = "present"
        self.seen = []
        self.counts = {}
        self.statistic = torch.zeros(3)
        self.nested = {"steps": [], "parts": [{"sum": torch.zeros(3)}], "shared": self.statistic}
        self.array = np.zeros(3)
        self.register_buffer("parameter", nn.Parameter(torch.zeros(3), requires_grad=False))

    def forward(self, x):
        x = self.norm(self.linear(x))
        self.rebound = self.rebound + x.detach().mean(0)
        self.written += x.detach().mean(0)
        self.nothing = torch.ones(1)
        self.count += 1
        self.last = self.added = x
        vars(self).pop("deleted", None)
        self.seen.append(1)
        self.counts[len(self.seen)] = 1
        self.statistic += x.detach().mean(0)
        self.nested["steps"].append(1)
        self.nested["parts"][0]["sum"] += 1.0
        assert self.nested["shared"] is self.statistic
        self.array += 1.0
        self.parameter += 1.0
        self.scale = nn.Parameter(torch.ones(3))
        self.child = nn.Identity()
        self.register_buffer("cached", torch.zeros(3), persistent=False)
        return x


def contents(model):
    """The attributes, parameters and buffers of every module: which objects, with which values."""
    found = {}
    for name, module in model.named_modules():
        for key, value in {**vars(module), **module._parameters, **module._buffers, **module._modules}.items():
            found[f"{name}.{key}"] = id(value), value.detach().tolist() if isinstance(value, Tensor) else repr(value)
    return found


def run(model):
    """A forward and a backward pass, as a probe runs them."""
    return torch.autograd.grad(model(INPUTS).square().sum(), list(model.parameters()), allow_unused=True)


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("training", [True, False])
def test_every_attribute_and_buffer_is_the_same_object_with_the_same_value_afterwards(training, mode):
    shared = Busy()
    models = [nn.Sequential(Busy(), shared).train(training), nn.Sequential(shared, nn.Linear(3, 3))]
    before = [contents(model) for model in models]
    with preserve_state(*models, mode=mode):
        run(models[0]), run(models[1])
        assert contents(models[0]) != before[0]
    assert [contents(model) for model in models] == before


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_everything_is_restored_if_a_forward_pass_raises(error):
    model = nn.Sequential(Busy(), nn.Linear(3, 3)).eval()
    model[1].weight.register_hook(lambda gradient: gradient)
    hooks = model[1].weight._backward_hooks

    def fail(*_):
        raise error

    model[1].register_forward_pre_hook(fail)
    before = contents(model)
    with pytest.raises(error), preserve_state(model, mode="train"):
        run(model)
    assert contents(model) == before
    assert model[1].weight._backward_hooks is hooks


def test_buffers_are_never_written_and_shared_buffers_stay_shared():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    model[1].running_mean = model[0].running_mean
    versions = [buffer._version for buffer in model.buffers()]
    buffers = list(model.buffers())
    with preserve_state(model, mode="train"):
        run(model)
        assert model[0].num_batches_tracked == 1
        assert model[0].running_mean is model[1].running_mean
        assert model[0].running_var is not model[1].running_var
        assert [buffer._version for buffer in buffers] == versions
    assert model[0].running_mean is model[1].running_mean


def test_one_context_inside_another_restores_what_the_outer_one_had():
    model = Busy()
    before = contents(model)
    with preserve_state(model, mode="train"):
        outer = contents(model)
        with preserve_state(model, mode="eval"):
            run(model)
        assert contents(model) == outer
    assert contents(model) == before


@pytest.mark.parametrize("kind", [nn.Embedding, nn.EmbeddingBag])
def test_embeddings_with_max_norm_are_restored(kind):
    model = kind(5, 3, max_norm=0.5)
    weight, before, version = model.weight, model.weight.detach().clone(), model.weight._version
    with preserve_state(model, mode="train"):
        model(torch.arange(5).reshape(1, 5))
        assert not torch.equal(weight, before)
    assert model.weight is weight
    assert weight._version == version
    assert torch.equal(weight, before)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("traced", [False, True], ids=["scripted", "traced"])
def test_scripted_modules_are_restored(traced):
    plain = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    model = torch.jit.trace(plain, INPUTS, check_trace=False) if traced else torch.jit.script(plain)
    waiting = model(INPUTS).square().sum()
    buffers = dict(model.named_buffers())
    before = {name: buffer.clone() for name, buffer in buffers.items()}
    modes = [module.training for module in model.modules()]
    with preserve_state(model, mode="eval"):
        assert not model.training
    with preserve_state(model, mode="train"):
        run(model)
        assert not torch.equal(buffers["1.running_mean"], before["1.running_mean"])
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(buffer, before[name]) for name, buffer in buffers.items())
    waiting.backward()  # its graph has saved the buffers


@pytest.mark.parametrize("everywhere", [False, True], ids=["one module", "all modules"])
@pytest.mark.parametrize("kind", ["full_backward_hook", "full_backward_pre_hook"])
def test_backward_hooks_on_modules_do_not_run_inside_and_run_again_afterwards(kind, everywhere):
    model, calls = nn.Sequential(nn.Linear(3, 3)), []
    register = getattr(torch_module, f"register_module_{kind}") if everywhere else getattr(model, f"register_{kind}")
    inputs = INPUTS.clone().requires_grad_()
    handle = register(lambda *_: calls.append(1))
    try:
        with preserve_state(model, mode="train"):
            torch.autograd.grad(model(inputs).sum(), inputs)
        assert calls == []
        torch.autograd.grad(model(inputs).sum(), inputs)
        assert calls == [1, 1] if everywhere else [1]
    finally:
        handle.remove()


def test_forward_hooks_run_inside_because_they_may_compute_weights():
    model, calls = nn.Linear(3, 3), []
    model.register_forward_pre_hook(lambda *_: calls.append(1))
    with preserve_state(model, mode="train"):
        run(model)
    assert calls == [1]


class WithFrozenNorm(nn.Sequential):
    """Its `train()` leaves BatchNorm in evaluation mode."""

    def train(self, mode=True):
        super().train(mode)
        self[1].eval()
        return self


def with_norm_in_eval():
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
        pytest.param(with_norm_in_eval(), "train", [True, True, False, True], id="one layer in eval, train"),
        pytest.param(with_norm_in_eval(), "eval", [False] * 4, id="one layer in eval, eval"),
        pytest.param(
            WithFrozenNorm(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval(),
            "train",
            [True, True, False],
            id="custom train()",
        ),
    ],
)
def test_the_model_is_in_the_requested_mode_inside_and_in_its_previous_one_afterwards(model, mode, inside):
    before = [module.training for module in model.modules()]
    with preserve_state(model, mode=mode):
        assert [module.training for module in model.modules()] == inside
    assert [module.training for module in model.modules()] == before


def test_requires_grad_is_restored():
    class Unfreezing(nn.Sequential):
        """Its `train()` decides what is trained."""

        def train(self, mode=True):
            super().train(mode)
            return self.requires_grad_(mode)

    model = Unfreezing(nn.Linear(3, 3)).eval()
    with preserve_state(model, mode="train"):
        assert model[0].weight.requires_grad
    assert not model[0].weight.requires_grad


def eager(**options):
    return eager_full_precision(**{"device_types": {"cpu"}, "autocast": False} | options)


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_gradients_are_enabled_inside_and_as_before_afterwards(around):
    with around():
        before = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        with pytest.raises(ZeroDivisionError), eager():
            assert torch.is_grad_enabled()
            assert not torch.ones(1).is_inference()
            1 / 0  # noqa: B018
        assert (torch.is_grad_enabled(), torch.is_inference_mode_enabled()) == before


@pytest.mark.parametrize("autocast", [True, False])
def test_autocast_is_off_inside_unless_requested(autocast):
    matrix = torch.ones(2, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with eager(autocast=autocast):
            assert (matrix @ matrix).dtype == (torch.bfloat16 if autocast else torch.float32)
        assert (matrix @ matrix).dtype == torch.bfloat16


def modes():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.ones(2, 2).matmul(torch.ones(2, 2)).dtype,
        torch._dynamo.eval_frame._stance.stance,
    )


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # raised while a generator is closed
@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_an_interruption_at_any_line_loses_no_mode(around):
    importlib.import_module("torch._dynamo")

    def enter_and_leave():
        with UndoOnError(), eager():
            pass

    with around(), torch.autocast("cpu", dtype=torch.bfloat16):
        before = modes()
        with InterruptAt() as counted:
            enter_and_leave()
        for number in range(1, counted.lines + 1):
            with pytest.raises(KeyboardInterrupt), InterruptAt(number):
                enter_and_leave()
            assert modes() == before, f"interrupted at line {number} of {counted.lines}"
    assert modes()[:3] == (True, False, False)


def test_a_vmap_that_was_interrupted_is_closed():
    def interrupt(x):
        torch._C._functorch._vmap_increment_nesting(2, "error")  # as if its end were interrupted
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), eager():
        torch.func.vmap(interrupt)(torch.ones(3))
    assert torch._C._functorch.get_dynamic_layer_stack_depth() == 0
    assert torch.func.vmap(torch.sin)(torch.zeros(3)).tolist() == [0.0, 0.0, 0.0]


GLOBAL_DRAWS = {
    "python": random.random,
    "python gauss": lambda: random.gauss(0.0, 1.0),
    "numpy": np.random.random,
    "numpy gauss": np.random.standard_normal,
    "torch": lambda: torch.rand(()).item(),
}
if torch.cuda.is_available():
    torch.cuda.init()
    for number in range(torch.cuda.device_count()):
        GLOBAL_DRAWS[f"cuda:{number}"] = functools.partial(
            lambda device: torch.rand((), device=device).item(), f"cuda:{number}"
        )

GENERATORS = {
    "torch.Generator": (torch.Generator, lambda held: torch.rand((), generator=held).item()),
    "random.Random": (lambda: random.Random(7), lambda held: held.gauss(0.0, 1.0)),
    "RandomState": (lambda: np.random.RandomState(7), lambda held: held.standard_normal()),
    "RandomState over PCG64": (lambda: np.random.RandomState(np.random.PCG64(7)), lambda held: held.standard_normal()),
    **{
        bits.__name__: (lambda bits=bits: np.random.Generator(bits(7)), lambda held: held.normal())
        for bits in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64)
    },
}


class Holder:
    """Keeps an object in an attribute."""

    def __init__(self, held):
        self.held = held

    def noisy(self, x):
        return x + self.held.normal()


class Slotted:
    __slots__ = ("empty", "held")

    def __init__(self, held):
        self.held = held


class Stream(IterableDataset):
    def __init__(self, held):
        self.held = held

    def __iter__(self):
        yield self.held


@pytest.mark.parametrize("seed", [0, 2**63 - 1, None])
@pytest.mark.parametrize("draw", GLOBAL_DRAWS.values(), ids=GLOBAL_DRAWS)
def test_a_global_stream_follows_from_the_seed_inside_and_continues_as_before_afterwards(draw, seed):
    draw()  # a Gaussian stream now has a second value stored
    with seeded_randomness(None):
        expected = [draw() for _ in range(3)]
    inside = []
    for own in (seed, seed, 6):
        with seeded_randomness(own):
            inside.append([draw() for _ in range(3)])
    assert inside[0] == inside[1] != inside[2]
    assert (inside[0] == expected) == (seed is None)
    assert [draw() for _ in range(3)] == expected


@pytest.mark.parametrize(("create", "draw"), GENERATORS.values(), ids=GENERATORS)
def test_a_held_generator_is_seeded_and_restored(create, draw):
    other, held = create(), create()
    draw(other), draw(held)
    inside = []
    for seed in (5, 5, 2**63 - 1):
        with seeded_randomness(seed, Holder(held), Holder([held, held])):
            inside.append([draw(held) for _ in range(3)])
    assert inside[0] == inside[1] != inside[2]
    assert [draw(held) for _ in range(3)] == [draw(other) for _ in range(3)]


def all_streams(*generators):
    """The states of all global streams and of these generators."""
    numpy_state = np.random.get_state()
    return (
        random.getstate(),
        (numpy_state[1].tolist(), *numpy_state[2:]),
        torch.get_rng_state().tolist(),
        [str(generator.bit_generator.state) for generator in generators],
    )


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_streams_are_restored_if_something_raises(error):
    held = np.random.default_rng(7)
    before = all_streams(held)
    with pytest.raises(error), seeded_randomness(5, Holder(held)):
        random.random(), np.random.random(), torch.rand(()), held.normal()
        raise error
    assert all_streams(held) == before


@pytest.mark.parametrize("method", ["getstate", "seed"])
def test_streams_are_restored_if_seeding_raises(method):
    class Refusing(random.Random):
        pass

    def refuse(self, *_):
        raise NotImplementedError

    held = Refusing(7)
    setattr(Refusing, method, refuse)
    before = all_streams()
    with pytest.raises(NotImplementedError), seeded_randomness(5, Holder(held)):
        pass
    assert all_streams() == before


def test_one_seed_inside_another_restores_the_outer_one():
    with seeded_randomness(5):
        expected = [random.random(), random.random()]
    with seeded_randomness(5):
        first = random.random()
        with seeded_randomness(6):
            random.random()
        assert [first, random.random()] == expected


def test_global_streams_that_are_also_held_and_generators_that_share_bits_are_restored():
    bits = np.random.PCG64(7)
    sharing = [np.random.Generator(bits), np.random.Generator(bits)]
    before = all_streams(*sharing)
    with seeded_randomness(5, random._inst, np.random.mtrand._rand, torch.default_generator, *sharing):
        random.random(), np.random.random(), torch.rand(()), sharing[0].normal()
    assert all_streams(*sharing) == before


def test_a_device_that_is_not_in_use_is_not_initialised():
    if torch.cuda.is_initialized():
        pytest.skip("CUDA is in use")
    queued = torch.cuda._lazy_seed_tracker.get_calls()
    with seeded_randomness(5):
        pass
    assert torch.cuda._lazy_seed_tracker.get_calls() == queued
    assert not torch.cuda.is_initialized()


def dataset_with(held):
    dataset = TensorDataset(torch.zeros(4))
    dataset.transform = held
    return dataset


def module_with(held):
    module = nn.Dropout()
    module.held = held
    return module


PLACES = {
    "itself": lambda held: held,
    "attribute": lambda held: Holder(Holder(Holder(held))),
    "slot": lambda held: Holder(Slotted(held)),
    "list": lambda held: [1, held],
    "tuple": lambda held: Holder(("a", (held,))),
    "dict": lambda held: {"a": {"b": held}},
    "deque": lambda held: deque([held]),
    "bound method": lambda held: Holder(held).noisy,
    "partial": lambda held: functools.partial(print, end=Holder(held)),
    "module": lambda held: nn.Sequential(nn.Sequential(module_with([held]))),
    "loader": lambda held: DataLoader(TensorDataset(torch.zeros(4)), generator=held),
    "sampler": lambda held: DataLoader(range(4), sampler=RandomSampler(range(4), generator=held)),
    "dataset": lambda held: DataLoader(dataset_with(Holder([Holder(held)]))),
    "dataset of a subset": lambda held: DataLoader(Subset(Holder(held), [0])),
    "chained streams": lambda held: DataLoader(ChainDataset([Stream(1), Stream(Stream(held))])),
    "dict of loaders": lambda held: Holder({"a": DataLoader(Stream(held))}),
    "method as collate function": lambda held: DataLoader(range(4), collate_fn=Holder(held).noisy),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_generators_are_found_where_training_loops_keep_them(place):
    held = torch.Generator()
    assert any(found is held for found in find_generators([place(held)]))


def test_each_generator_is_found_once_and_cycles_end():
    one, other = Holder(None), Holder(None)
    one.held, other.held, other.more = [other, other], one, torch.Generator()
    assert find_generators([one, other, other.more]) == [other.more]


def test_generators_without_a_state_are_left_out():
    assert find_generators([random.SystemRandom(), Holder(torch), Holder(random.Random)]) == []


@pytest.mark.parametrize(("size", "found"), [(MAX_CONTAINER, 1), (MAX_CONTAINER + 1, 0)])
def test_containers_of_data_are_not_searched(size, found):
    assert len(find_generators([[torch.Generator()] * size])) == found


def test_long_chains_of_attributes_are_followed_to_a_limit():
    held = near = torch.Generator()
    for _ in range(MAX_DEPTH - 1):
        near = Holder(near)
    assert find_generators([near]) == [held]
    assert find_generators([Holder(near)]) == []


def test_unusual_objects_do_not_disturb_the_search():
    class Endless:
        __slots__ = ("never",)

        def __getattr__(self, name):
            return Endless()

    class ByKey(dict):
        __slots__ = ("never",)
        __getattr__ = dict.__getitem__

    held = torch.Generator()
    dead = weakref.proxy(Holder(None))
    assert find_generators([Endless(), ByKey(a=1), dead, Holder(weakref.proxy(held)), held]) == [held]


def test_a_derived_seed_does_not_change_between_processes_and_versions():
    # sha256(b"0:draw:3"), the first 8 bytes, halved
    assert derive_seed(0, "draw", 3) == 800_806_119_930_256_325


def test_neighbouring_seeds_and_places_have_unrelated_seeds():
    seeds = [
        derive_seed(seed, place, number) for seed in range(10) for place in ("draw", "probe") for number in range(10)
    ]
    assert all(0 <= seed < 2**63 for seed in seeds)
    gaps = np.diff(np.sort(np.array(seeds, dtype=np.float64)))
    assert gaps.min() > 2**40


class Schedule:
    def __init__(self):
        self.calls, self.values, self.total, self.table = 0, [], torch.zeros(2), torch.zeros(100)

    def advance(self):
        self.calls += 1
        self.values.append(self.calls)
        self.total += 1.0
        self.new = True


@pytest.mark.parametrize("keep", [lambda held: held, lambda held: {"inner": [held]}, Holder], ids=["it", "in", "of"])
def test_objects_that_modules_hold_are_restored(keep):
    schedule = Schedule()
    model = nn.Linear(3, 3)
    model.held = keep(schedule)
    before = dict(vars(schedule))
    with preserve_state(model, mode="train"):
        schedule.advance()
        assert (schedule.calls, schedule.values, schedule.total.tolist()) == (1, [1], [1.0, 1.0])
        assert schedule.table is before["table"]  # data are not copied
    assert vars(schedule) == before
    assert all(vars(schedule)[name] is value for name, value in before.items())
    assert (schedule.values, schedule.total.tolist()) == ([], [0.0, 0.0])


def test_objects_that_another_thread_may_use_are_left_alone():
    model, schedule = nn.Linear(3, 3), Schedule()
    model.schedule, schedule.lock = schedule, threading.Lock()
    with preserve_state(model, mode="train"):
        schedule.advance()
    assert schedule.calls == 1


def test_a_second_thread_is_refused_while_the_first_one_measures():
    errors = []

    def measure():
        try:
            with seeded_randomness(1):
                pass
        except HeldinError as error:
            errors.append(str(error))

    def in_a_thread():
        thread = threading.Thread(target=measure)
        thread.start()
        thread.join()

    before = all_streams()
    with seeded_randomness(5):
        with seeded_randomness(6):  # the same thread may
            pass
        inside = all_streams()
        in_a_thread()
        assert all_streams() == inside
    assert all_streams() == before
    (message,) = errors
    assert "Found another thread that is measuring" in message
    in_a_thread()  # now it may
    assert len(errors) == 1


def test_undoing_calls_all_functions_in_reverse_order_also_if_one_is_interrupted_or_fails():
    called = []

    def fail_once(error):
        called.append(error)
        if called.count(error) == 1:
            raise error

    with pytest.raises(KeyboardInterrupt), undoing() as undo:
        undo.callback(called.append, "first")
        undo.callback(fail_once, KeyboardInterrupt)
        undo.callback(called.append, "last")
    assert called == ["last", KeyboardInterrupt, KeyboardInterrupt, "first"]

    def fail():
        raise OSError

    with pytest.raises(OSError), undoing() as undo:  # noqa: PT011
        undo.callback(called.append, "after a failure")
        undo.callback(fail)
    assert called[-1] == "after a failure"


def test_a_context_that_was_left_open_is_undone_when_the_block_raises():
    called = []
    with pytest.raises(KeyboardInterrupt), UndoOnError():
        left_open = undoing()
        left_open.__enter__().callback(called.append, "inner")
        with undoing() as undo:
            undo.callback(called.append, "innermost")
        raise KeyboardInterrupt
    assert called == ["innermost", "inner"]
    with undoing() as undo:
        undo.callback(called.append, "later")
        left_open.gen.close()  # what Python does when the traceback is deleted
        assert called == ["innermost", "inner"]
    assert called == ["innermost", "inner", "later"]


def test_arrays_in_files_and_large_arrays_are_not_copied(tmp_path):
    np.save(tmp_path / "table.npy", np.zeros(10))
    model = nn.Linear(2, 2)
    model.table, model.large = np.load(tmp_path / "table.npy", mmap_mode="r+"), np.zeros(2**20 + 1)
    model.fixed = np.zeros(3)
    model.fixed.flags.writeable = False
    before = model.table, model.large, model.fixed
    with preserve_state(model, mode="train"):
        assert all(now is then for now, then in zip((model.table, model.large, model.fixed), before, strict=True))
