"""The contract of all signals: a new signal is tested as soon as it is registered."""

import itertools
import math
from contextlib import nullcontext

import pytest
import torch
from tests.states import Unchanged
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import heldin
from heldin import EarlyStopping
from heldin.signals import REGISTRY, StatefulSignal, from_label
from heldin.signals.signal import Family

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
        model, loss_fn, data, signals=name, optimizer=optimizer, against=AGAINST, state=memory, seed=seed
    )[name]


@EVERY
def test_measuring_changes_nothing(name):
    model = network()
    optimizer = trained(model)
    data = batches()
    with Unchanged(model, optimizer=optimizer):
        measured(name, model, data, optimizer)


@EVERY
def test_a_measurement_that_is_interrupted_changes_nothing(name):
    model = network()
    optimizer = trained(model)
    data = batches()
    calls = itertools.count(1)

    def loss_fn(output, target):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return F.cross_entropy(output, target, reduction="none")

    without_loss = name in {"gwa", "label_wave", "prediction_variance"}
    expected = nullcontext() if without_loss else pytest.raises(KeyboardInterrupt)
    with Unchanged(model, optimizer=optimizer), expected:
        measured(name, model, data, optimizer, loss_fn=loss_fn)


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
    for _ in range(12):  # until the window of a stateful signal is full
        found.append(
            heldin.measure(
                model,
                lambda output, target: scale * F.cross_entropy(output, target, reduction="none"),
                data,
                signals=name,
                optimizer=optimizer,
                against=data[:2],
                state=memory,
            )[name]
        )
        if not isinstance(signal, StatefulSignal):
            break
    if name == "noise_scale" and found[-1] == math.inf:
        return  # infinite by definition, if the estimate of the squared gradient is not positive
    assert math.isfinite(found[-1])


@EVERY
def test_the_docstring_of_a_signal_is_complete(name):
    kind = REGISTRY[name]
    card = kind.__doc__
    titles = ("Formula", "Shapes:", "Cost:", "Misleads when:", "Reference:", ">>>")
    sections = [card.index(title) for title in titles]
    assert sections == sorted(sections)
    assert card.splitlines()[0].endswith(".")
    assert kind.reference
    assert kind.family is not Family.USER
    assert getattr(heldin, kind.__name__) is kind


@EVERY
def test_a_signal_can_be_created_from_its_label(name):
    signal = REGISTRY[name]()
    assert from_label(signal.label) == signal
    assert hash(signal.needs) == hash(REGISTRY[name]().needs)


@EVERY
def test_training_with_its_default_rule_resumes_from_a_checkpoint(name, tmp_path):
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    loader = DataLoader(TensorDataset(torch.randn(60, 4), torch.randint(3, (60,))), batch_size=10, shuffle=True)
    against = loader if name == "train_val_disparity" else None

    def stopper():
        return EarlyStopping(model, nn.CrossEntropyLoss(), signal=name, optimizer=optimizer)

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    uninterrupted, resumed = stopper(), stopper()
    for epoch in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        uninterrupted.step(loader, against=against)
        if epoch == 2:
            torch.save(resumed.state_dict(), tmp_path / "state.pt")
            resumed = stopper()
            resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        resumed.step(loader, against=against)
    assert [reading.as_dict() for reading in resumed.history] == [
        reading.as_dict() for reading in uninterrupted.history
    ]
    assert resumed.decision == uninterrupted.decision


def test_all_signals_together_give_the_same_values_as_each_alone():
    model = network()
    optimizer = trained(model)
    data, against = batches(), batches(2)
    options = {"optimizer": optimizer, "against": against}
    together = heldin.measure(model, nn.CrossEntropyLoss(), data, signals="all", **options)
    assert set(together) == set(REGISTRY)
    for name, value in together.items():
        alone = heldin.measure(model, nn.CrossEntropyLoss(), data, signals=name, **options)
        assert alone[name] == pytest.approx(value, rel=1e-6, nan_ok=True), name


def test_all_skips_signals_that_cannot_be_measured_with_a_warning():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    data = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(3)]
    with pytest.warns(heldin.errors.HeldinWarning, match="optimization_variance.*Pass optimizer="):
        found = heldin.measure(model, nn.MSELoss(), data, signals="all")
    assert not {"train_val_disparity", "optimization_variance", "class_alignment", "gwa"} & found.keys()
    assert {"gradient_disparity", "evidence_based", "prediction_variance"} <= found.keys()


class TestDirections:
    """On toy problems with a known answer: gradients that agree, then gradients of pure noise."""

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
    def test_signals_of_gradients_that_stop_agreeing(self, name):
        """Each sample has a common gradient plus noise; then the common part is gone."""
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

    def test_signals_of_changing_predictions(self):
        assert self._over_time("label_wave", 0.5) > self._over_time("label_wave", 0.01)
        assert self._over_time("prediction_variance", 0.5) > self._over_time("prediction_variance", 0.01)

    def _over_time(self, name, movement):
        """The last of 12 readings of a linear model whose weights change at random by `movement`."""
        torch.manual_seed(0)
        model, memory = nn.Linear(4, 3), {}
        data = [(torch.randn(50, 4), torch.randint(3, (50,)))]
        for _ in range(12):
            value = heldin.measure(model, nn.CrossEntropyLoss(), data, signals=name, state=memory)[name]
            with torch.no_grad():
                model.weight += movement * torch.randn_like(model.weight)
        return value

    def test_susceptibility_of_a_network_that_fits_random_labels(self):
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

    def test_gwa_of_gradients_unrelated_to_the_weights(self):
        """With the model's own labels the gradient enlarges the weights; with random labels it is unrelated to them."""
        found = {}
        for phase in (self.LEARNING, self.MEMORISING):
            torch.manual_seed(0)
            model = nn.Linear(10, 3)
            x = torch.randn(400, 10)
            y = model(x).argmax(1) if phase == self.LEARNING else torch.randint(3, (400,))
            found[phase] = heldin.measure(model, nn.CrossEntropyLoss(), [(x, y)], signals="gwa")["gwa"]
        assert found[self.LEARNING] > found[self.MEMORISING]


def _plain(name):
    """The signal without re-scaling of losses."""
    return REGISTRY[name](rescale="none") if hasattr(REGISTRY[name](), "rescale") else name
