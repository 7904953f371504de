import pytest

from heldin.lab.spec import RunSpec
from heldin.lab.store import RunRecord


def gram(distance):
    """The recorded products of two gradients at this distance."""
    return [1.0, 0.0, distance**2]


@pytest.fixture
def make_record():
    """Returns a record with curves that are given; all other curves are constant."""

    def make(
        *,
        test_loss,
        test_error=None,
        std_detached=None,
        std=None,
        loss=None,
        fresh=None,
        between=None,
        dataset="digits",
        seed=0,
        rate=0.1,
        **changes,
    ):
        num = len(test_loss)
        spec = RunSpec(
            dataset=dataset,
            num_samples=100,
            batch_size=10,
            epochs=num,
            learning_rate=rate,
            seed=seed,
            signals=(),
            **changes,
        )

        def reading(epochs, index):
            return {
                "epochs": epochs,
                "test_loss": test_loss[index],
                "test_error": (test_error or [0.5] * num)[index],
                "loss": (loss or [1.0] * num)[index],
                "entropy": 0.5,
                "changed": None if index == 0 else 3.0,
                "pooled_std": 0.5,
                "grams": {
                    "none": gram(3.0),
                    "std": gram((std or [1.0] * num)[index]),
                    "std_detached": gram((std_detached or [1.0] * num)[index]),
                    "sampled": gram(6.0),
                },
            }

        lines = []
        for index in range(num):
            line = {
                "epoch": index,
                "test_loss": test_loss[index],
                "test_error": (test_error or [0.5] * num)[index],
                "signals": {
                    "gradient_disparity": (fresh or [1.0] * num)[index],
                    "gradient_disparity[rescale=std_detached]": (fresh or [1.0] * num)[index],
                    "label_wave": None,
                    "gwa": 0.1,
                },
                "readings": [reading(index + 1.0, index)],
            }
            if index == 0:
                line["readings"].insert(0, reading(0.0, 0))
            if between is not None and index in between:
                line["readings"].insert(-1, {**reading(index + 0.5, index), **between[index]})
            lines.append(line)
        return RunRecord(spec, tuple(lines), True)

    return make
