"""What holds for every signal there is. A new one is tested by being registered."""

import copy
import importlib.util
import itertools
import math
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin
from heldin import EarlyStopping
from heldin.signals import REGISTRY, RememberingSignal, from_label
from heldin.signals.signal import Family

ROOT = Path(heldin.__file__).parents[2]
EVERY = pytest.mark.parametrize("name", sorted(REGISTRY))

pytestmark = pytest.mark.filterwarnings("ignore::heldin.errors.HeldinWarning")


def network():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Dropout(0.3), nn.Linear(4 * 16, 8), nn.Tanh(), nn.Linear(8, 3),
    )  # fmt: skip


AGAINST = [(torch.randn(12, 1, 6, 6, generator=torch.Generator().manual_seed(i)), torch.arange(12) % 3) for i in (1, 2)]


def batches(num=5, size=12):
    return [(torch.randn(size, 1, 6, 6), torch.randint(3, (size,))) for _ in range(num)]


def trained(model, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for x, y in batches(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return optimizer


def measured(name, model, data, optimizer, *, loss_fn=None, memory=None, seed=0):
    loss_fn = nn.CrossEntropyLoss() if loss_fn is None else loss_fn
    return heldin.measure(
        model, loss_fn, data, signals=name, optimizer=optimizer, against=AGAINST, memory=memory, seed=seed
    )[name]


def everything(model, optimizer):
    state = {
        "weights": model.state_dict(),
        "gradients": [parameter.grad for parameter in model.parameters()],
        "versions": [parameter._version for parameter in model.parameters()],
        "optimizer": optimizer.state_dict(),
        "modes": [module.training for module in model.modules()],
        "hooks": [len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules()],
        "streams": (random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()),
    }
    return copy.deepcopy(state)


def assert_same(one, other):
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for pair in zip(one, other, strict=True):
            assert_same(*pair)
    else:
        assert one == other


@EVERY
def test_measuring_leaves_no_trace(name):
    model = network()
    optimizer = trained(model)
    data = batches()
    before = everything(model, optimizer)
    measured(name, model, data, optimizer)
    assert_same(before, everything(model, optimizer))


@EVERY
def test_measuring_that_raises_half_way_leaves_no_trace(name):
    model = network()
    optimizer = trained(model)
    data = batches()
    calls = itertools.count(1)  # a list would be put back

    def loss_fn(output, target):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return F.cross_entropy(output, target, reduction="none")

    before = everything(model, optimizer)
    try:
        measured(name, model, data, optimizer, loss_fn=loss_fn)
    except KeyboardInterrupt:
        pass
    else:
        assert name in {"gwa", "label_wave", "prediction_variance"}  # they need no loss
    assert_same(before, everything(model, optimizer))


@EVERY
def test_the_same_seed_gives_the_same_number(name):
    model = network()
    optimizer = trained(model)
    data = batches()
    torch.manual_seed(1)
    first = measured(name, model, data, optimizer, memory=(memory := {}))
    second = measured(name, model, data, optimizer, memory=memory)
    torch.manual_seed(1)
    again = measured(name, model, data, optimizer, memory=(memory := {}))
    assert (first, second) == pytest.approx((again, measured(name, model, data, optimizer, memory=memory)), nan_ok=True)


@pytest.mark.parametrize("scale", [1e-10, 1e10])
@EVERY
def test_a_loss_of_any_scale_gives_a_finite_number(name, scale):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)).double()
    data = [(torch.randn(16, 4).double() + 1.0, torch.randint(3, (16,))) for _ in range(5)]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    signal = REGISTRY[name]()
    memory = {}
    found = []
    for _ in range(12):  # a signal that compares readings fills its window
        found.append(
            heldin.measure(
                model,
                lambda output, target: scale * F.cross_entropy(output, target, reduction="none"),
                data,
                signals=name,
                optimizer=optimizer,
                against=data[:2],
                memory=memory,
            )[name]
        )
        if not isinstance(signal, RememberingSignal):
            break
    if name == "noise_scale" and found[-1] == math.inf:
        return  # no signal above the noise in this draw: infinite by definition
    assert math.isfinite(found[-1])


@EVERY
def test_a_signal_says_all_that_its_card_should(name):
    kind = REGISTRY[name]
    card = kind.__doc__
    sections = [card.index(title) for title in ("Formula", "Shapes:", "Cost:", "Misleads when:", "Reference:", ">>>")]
    assert sections == sorted(sections)
    assert card.splitlines()[0].endswith(".")
    assert kind.cost
    assert kind.reference
    assert kind.family is not Family.OWN
    assert getattr(heldin, kind.__name__) is kind


@EVERY
def test_a_signal_can_be_written_down_and_read_back(name):
    signal = REGISTRY[name]()
    assert from_label(signal.label) == signal
    assert hash(signal.needs) == hash(REGISTRY[name]().needs)


@EVERY
def test_stops_training_by_its_own_rule_and_resumes(name, tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    loader = DataLoader(TensorDataset(torch.randn(60, 4), torch.randint(3, (60,))), batch_size=10, shuffle=True)
    against = loader if name == "train_val_disparity" else None

    def stopper():
        return EarlyStopping(model, nn.CrossEntropyLoss(), signal=name, optimizer=optimizer)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    whole, parts = stopper(), stopper()
    for epoch in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        whole.step(loader, against=against)
        if epoch == 2:
            torch.save(parts.state_dict(), tmp_path / "state.pt")
            parts = stopper()
            parts.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        parts.step(loader, against=against)
    assert [reading.as_dict() for reading in parts.history] == [reading.as_dict() for reading in whole.history]
    assert parts.decision == whole.decision


def test_all_signals_at_once_give_what_each_gives_alone():
    model = network()
    optimizer = trained(model)
    data, against = batches(), batches(2)
    options = {"optimizer": optimizer, "against": against}
    together = heldin.measure(model, nn.CrossEntropyLoss(), data, signals="all", **options)
    assert set(together) == set(REGISTRY)
    for name, value in together.items():
        alone = heldin.measure(model, nn.CrossEntropyLoss(), data, signals=name, **options)
        assert alone[name] == pytest.approx(value, rel=1e-6, nan_ok=True), name


def test_all_leaves_out_what_cannot_be_served_and_says_so():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
    with pytest.warns(heldin.errors.HeldinWarning, match="optimization_variance.*Pass optimizer="):
        found = heldin.measure(model, nn.MSELoss(), data, signals="all")
    assert not {"train_val_disparity", "optimization_variance", "class_alignment", "gwa"} & found.keys()
    assert {"gradient_disparity", "evidence_based", "prediction_variance"} <= found.keys()


class TestDirections:
    """On toys where the answer is known: gradients that agree, then gradients that are nothing but noise."""

    LEARNING = "learning"
    MEMORISING = "memorising"

    @pytest.mark.parametrize(
        "name",
        [
            name
            for name in sorted(REGISTRY)
            if type(REGISTRY[name]().needs).__name__ in {"BatchGradients", "SampleGradients", "ClassGradients"}
            or name == "optimization_variance"
        ],
    )
    def test_gradients_that_stop_agreeing(self, name):
        """Each sample's gradient is what all share plus noise of its own; then what they share is gone."""
        found = {}
        for phase, shared, noise in ((self.LEARNING, 1.0, 0.2), (self.MEMORISING, 0.05, 1.0)):
            torch.manual_seed(0)
            direction = F.normalize(torch.ones(20, dtype=torch.float64), dim=0)
            x = [shared * direction + noise * torch.randn(32, 20, dtype=torch.float64) for _ in range(7)]
            data = [(part, torch.arange(32) % 4) for part in x]
            model = nn.Linear(20, 1, bias=False).double()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            found[phase] = heldin.measure(
                model,
                lambda output, target: output.squeeze(1),
                data[:5],
                signals=_plain(name),
                against=data[5:],
                optimizer=optimizer,
            )[name]
        rises = REGISTRY[name].direction.value == "rises"
        assert (found[self.MEMORISING] > found[self.LEARNING]) == rises

    def test_a_network_that_changes_its_mind(self):
        assert self._over_time("label_wave", 0.5) > self._over_time("label_wave", 0.01)
        assert self._over_time("prediction_variance", 0.5) > self._over_time("prediction_variance", 0.01)

    def _over_time(self, name, movement):
        """The last of 12 readings of a linear model whose weights wander by `movement` between them."""
        torch.manual_seed(0)
        model, memory = nn.Linear(4, 3), {}
        data = [(torch.randn(50, 4), torch.randint(3, (50,)))]
        for _ in range(12):
            value = heldin.measure(model, nn.CrossEntropyLoss(), data, signals=name, memory=memory)[name]
            with torch.no_grad():
                model.weight += movement * torch.randn_like(model.weight)
        return value

    def test_a_network_that_takes_in_any_label(self):
        """A wide feature map lets one step fit random labels; a narrow one does not."""
        found = {}
        for width in (1.0, 10.0):
            torch.manual_seed(0)
            model = nn.Linear(200, 3)
            data = [(width * torch.randn(32, 200) / 14.0, torch.randint(3, (32,)))]
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            found[width] = heldin.measure(
                model, nn.CrossEntropyLoss(), data, signals="susceptibility", optimizer=optimizer
            )["susceptibility"]
        assert found[10.0] > found[1.0] > 0.0

    def test_gradients_that_no_longer_strengthen_the_weights(self):
        """Right labels: the gradient makes the weights larger. Random labels: it has no relation to them."""
        found = {}
        for phase in (self.LEARNING, self.MEMORISING):
            torch.manual_seed(0)
            model = nn.Linear(10, 3)
            x = torch.randn(400, 10)
            y = model(x).argmax(1) if phase == self.LEARNING else torch.randint(3, (400,))
            found[phase] = heldin.measure(model, nn.CrossEntropyLoss(), [(x, y)], signals="gwa")["gwa"]
        assert found[self.LEARNING] > found[self.MEMORISING]


def _plain(name):
    """The signal on plain losses: what a re-scaling does to these toys is not the question."""
    return REGISTRY[name](rescale="none") if hasattr(REGISTRY[name](), "rescale") else name


@EVERY
def test_a_signal_has_its_page(name):
    kind = REGISTRY[name]
    module = kind.__module__.rsplit(".", 1)[-1].replace("_", "-")
    assert f"::: heldin.{kind.__name__}" in (ROOT / "docs" / "signals" / f"{module}.md").read_text()


def test_pages_are_what_the_cards_say():
    path = ROOT / "docs" / "cards.py"
    spec = importlib.util.spec_from_file_location("cards", path)
    cards = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(cards)
    for name, text in cards.pages().items():
        assert (path.parent / "signals" / name).read_text() == text, "run: python docs/cards.py"
