"""Every random stream is seeded for a while and then goes on as if nothing had happened."""

import functools
import random
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

from heldin.probing.randomness import generators_in, own_randomness, seed_for

GLOBAL_DRAWS: dict[str, Callable[[], float]] = {
    "python": random.random,
    "python gauss": lambda: random.gauss(0.0, 1.0),
    "numpy": np.random.random,
    "numpy gauss": np.random.standard_normal,
    "torch": lambda: torch.rand(()).item(),
}
if torch.cuda.is_available():
    torch.cuda.init()
    for number in range(torch.cuda.device_count()):
        device = f"cuda:{number}"
        GLOBAL_DRAWS[device] = functools.partial(lambda device: torch.rand((), device=device).item(), device)

HELD: dict[str, tuple[Callable[[], object], Callable[[object], float]]] = {
    "torch.Generator": (torch.Generator, lambda held: torch.rand((), generator=held).item()),
    "random.Random": (lambda: random.Random(7), lambda held: held.gauss(0.0, 1.0)),
    "RandomState": (lambda: np.random.RandomState(7), lambda held: held.standard_normal()),
    **{
        bits.__name__: (lambda bits=bits: np.random.Generator(bits(7)), lambda held: held.normal())
        for bits in (np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64)
    },
}


class Holder:
    """Anything that keeps something in an attribute."""

    def __init__(self, held: object) -> None:
        self.held = held

    def noisy(self, x: float) -> float:
        return x + self.held.normal()


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: object) -> None:
        self.held = held


def add_noise(x: float, held: np.random.Generator) -> float:
    return x + held.normal()


@pytest.mark.parametrize("draw", GLOBAL_DRAWS.values(), ids=GLOBAL_DRAWS)
def test_what_a_global_stream_gives_inside_follows_from_the_seed_alone(draw):
    def inside(seed):
        with own_randomness(seed):
            return [draw() for _ in range(3)]

    assert inside(5) == inside(5) != inside(6)


@pytest.mark.parametrize("seed", [0, 5, 2**63 - 1, None])
@pytest.mark.parametrize("draw", GLOBAL_DRAWS.values(), ids=GLOBAL_DRAWS)
def test_a_global_stream_goes_on_as_if_nothing_had_been_drawn(draw, seed):
    draw()  # a Gaussian stream now has a second value in store
    with own_randomness(None):
        expected = [draw() for _ in range(3)]
    with own_randomness(seed):
        for _ in range(4):
            draw()
    assert [draw() for _ in range(3)] == expected


@pytest.mark.parametrize("draw", GLOBAL_DRAWS.values(), ids=GLOBAL_DRAWS)
def test_without_a_seed_a_stream_continues_inside(draw):
    with own_randomness(None):
        ahead = [draw() for _ in range(2)]
    assert [draw() for _ in range(2)] == ahead
    assert ahead[0] != ahead[1]


@pytest.mark.parametrize(("create", "draw"), HELD.values(), ids=HELD)
def test_a_generator_that_is_held_is_seeded_and_put_back(create, draw):
    untouched, held = create(), create()
    draw(untouched), draw(held)
    inside = []
    for seed in (5, 5, 6):
        with own_randomness(seed, Holder(held)):
            inside.append([draw(held) for _ in range(3)])
    assert inside[0] == inside[1] != inside[2]
    assert [draw(held) for _ in range(3)] == [draw(untouched) for _ in range(3)]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_streams_are_put_back_when_something_raises(error):
    held = np.random.default_rng(7)
    before = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), held.__getstate__())

    def draw_and_raise():
        with own_randomness(5, Holder(held)):
            random.random(), np.random.random(), torch.rand(()), held.normal()
            raise error

    with pytest.raises(error):
        draw_and_raise()
    after = (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), held.__getstate__())
    assert before == after


def test_one_use_inside_another_puts_back_the_outer_one():
    with own_randomness(5):
        expected = [random.random(), random.random()]
    with own_randomness(5):
        first = random.random()
        with own_randomness(6):
            random.random()
        assert [first, random.random()] == expected


def test_a_device_that_is_not_in_use_is_not_brought_into_use():
    if torch.cuda.is_initialized():
        pytest.skip("CUDA is in use already")
    queued = torch.cuda._lazy_seed_tracker.get_calls()
    with own_randomness(5):
        pass
    assert torch.cuda._lazy_seed_tracker.get_calls() == queued
    assert not torch.cuda.is_initialized()


def test_a_generator_held_twice_is_put_back():
    held = np.random.default_rng(7)
    before = held.bit_generator.state
    with own_randomness(5, Holder(held), Holder([held, held])):
        held.normal()
    assert held.bit_generator.state == before


@pytest.mark.parametrize(
    ("held", "state"),
    [
        pytest.param(np.random.mtrand._rand, lambda: np.random.get_state()[1].tolist(), id="numpy"),
        pytest.param(torch.default_generator, lambda: torch.get_rng_state().tolist(), id="torch"),
        pytest.param(random._inst, random.getstate, id="python"),
    ],
)
def test_a_global_stream_that_is_also_held_is_put_back(held, state):
    before = state()
    with own_randomness(5, Holder(held)):
        pass
    assert state() == before


def test_two_generators_on_one_bit_generator_are_put_back():
    bits = np.random.PCG64(7)
    before = bits.state
    with own_randomness(5, Holder(np.random.Generator(bits)), Holder(np.random.Generator(bits))):
        pass
    assert bits.state == before


@pytest.mark.parametrize(
    "held",
    [
        pytest.param(random.SystemRandom(), id="SystemRandom"),
        pytest.param(np.random.RandomState(np.random.PCG64(7)), id="RandomState over PCG64"),
    ],
)
@pytest.mark.filterwarnings("ignore:get_state and legacy can only be used with the MT19937")
def test_a_generator_that_cannot_be_seeded_is_left_alone(held):
    before = torch.get_rng_state()
    with own_randomness(5, Holder(held)):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def test_streams_are_put_back_when_seeding_itself_raises():
    class Refusing(random.Random):
        def getstate(self):
            raise NotImplementedError

    before = torch.get_rng_state()
    with pytest.raises(NotImplementedError), own_randomness(5, Holder(Refusing())):
        pass
    assert torch.equal(torch.get_rng_state(), before)


def dataset_with(held: object) -> TensorDataset:
    dataset = TensorDataset(torch.zeros(4))
    dataset.transform = held
    return dataset


PLACES: dict[str, Callable[[object], object]] = {
    "itself": lambda held: held,
    "attribute": Holder,
    "list": lambda held: Holder([1, held]),
    "tuple": lambda held: Holder((held,)),
    "dict": lambda held: Holder({"a": held}),
    "attribute of an attribute": lambda held: Holder(Holder(Holder(held))),
    "loader's generator": lambda held: Holder(DataLoader(TensorDataset(torch.zeros(4)), generator=held)),
    "dataset of a loader": lambda held: DataLoader(dataset_with(Holder(held))),
    "dataset of a subset": lambda held: DataLoader(Subset(dataset_with(Holder(held)), [0])),
    "module": lambda held: nn.Sequential(nn.Sequential(module_with(held))),
    "transforms of a subset": lambda held: DataLoader(Subset(dataset_with(Holder([Holder(held)])), [0])),
    "partial": lambda held: Holder(functools.partial(add_noise, held=held)),
    "closure": lambda held: Holder(lambda x: add_noise(x, held)),
    "default argument": lambda held: Holder(lambda x, held=held: add_noise(x, held)),
    "bound method": lambda held: Holder(Holder(held).noisy),
    "slots": lambda held: Holder(Slotted(held)),
}


def module_with(held: object) -> nn.Module:
    module = nn.Dropout()
    module.held = held
    return module


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_generators_are_found_where_people_keep_them(place):
    held = torch.Generator()
    assert any(found is held for found in generators_in([place(held)]))


def test_each_generator_is_found_once():
    held = torch.Generator()
    assert generators_in([Holder(held), held, [held, Holder([held])]]) == [held]


def test_things_that_hold_one_another_are_searched_once():
    one, other = Holder(None), Holder(None)
    one.held, other.held, other.also = other, one, torch.Generator()
    assert generators_in([one]) == [other.also]


OF_THE_FILE = {"numpy": np.random.default_rng(7), "torch": torch.Generator(), "python": random.Random(7)}
NUMPY, TORCH, PYTHON = OF_THE_FILE.values()


class UsesThoseOfTheFile:
    def __getitem__(self, index: int) -> float:
        return NUMPY.normal() + torch.rand((), generator=TORCH).item() + PYTHON.random()


def test_generators_used_by_a_global_name_are_seeded_and_put_back():
    dataset = UsesThoseOfTheFile()
    inside = []
    for _ in range(2):
        with own_randomness(5, DataLoader(dataset, sampler=[0])):
            inside.append([dataset[0], dataset[0]])
    with own_randomness(None, dataset):
        ahead = [dataset[0], dataset[0]]
    assert inside[0] == inside[1]
    assert [dataset[0], dataset[0]] == ahead


def test_generators_of_what_is_at_work_meanwhile_are_found_too():
    holder = Holder(torch.Generator())
    holder.thread = threading.Thread()
    assert generators_in([holder]) == [holder.held]


def test_a_seed_for_a_place_does_not_change_between_processes_and_versions():
    # sha256(b"0:draw:3"), the first 8 bytes, halved
    assert seed_for(0, "draw", 3) == 800_806_119_930_256_325


def test_neighbouring_seeds_and_places_have_unrelated_seeds():
    seeds = [seed_for(seed, place, number) for seed in range(10) for place in ("draw", "probe") for number in range(10)]
    assert len(set(seeds)) == len(seeds)
    gaps = np.diff(np.sort(np.array(seeds, dtype=np.float64)))
    assert gaps.min() > 2**40


def test_every_generator_takes_the_seed_of_a_place():
    seeds = [seed_for(0, "draw", number) for number in range(100)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    for seed in (*seeds[:3], 0, 2**63 - 1):
        with own_randomness(seed, *(Holder(create()) for create, _ in HELD.values())):
            pass
