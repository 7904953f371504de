"""Where the readings of a plain loop are logged: a function, TensorBoard, MLflow or Weights & Biases.

They are recognised by their methods, so none of them has to be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from heldin.errors import ArgumentError

Values: TypeAlias = Mapping[str, float]  # one number per name, as in "heldin/gradient_disparity"
Logger: TypeAlias = Callable[[Values, int], None]  # logger(values, step)


def as_logger(log: Any) -> Logger:
    """Return the function logger(values, step) for what the user passed as `log`."""
    if hasattr(log, "add_scalar"):  # torch.utils.tensorboard.SummaryWriter
        return lambda values, step: _log_each(log.add_scalar, values, step)
    if hasattr(log, "log_metrics"):  # the mlflow module; a logger of Lightning
        return lambda values, step: log.log_metrics(dict(values), step=step)
    if hasattr(log, "define_metric"):  # a wandb run, or the wandb module
        return RunLogger(log)
    if callable(log):
        return lambda values, step: _log_each(log, values, step)
    raise ArgumentError(
        "Parameter `log` should be a function log(name, value, step), a SummaryWriter, a wandb run or the mlflow "
        f"module. Found `log = {log!r}`. The logger {__package__!r} of the module logging has each reading anyway."
    )


def _log_each(log: Callable[[str, float, int], object], values: Values, step: int) -> None:
    for name, value in values.items():
        log(name, value, step)


class RunLogger:
    """Logs to a run of Weights & Biases, without changing the steps under which training logs.

    A run drops what is logged under an earlier step than its latest one, so the number of the reading is logged as a
    separate metric, the x-axis of our values, which are added to the present row of the run.
    """

    def __init__(self, run: Any) -> None:
        self.run = getattr(run, "run", run)  # the present run, of the wandb module
        if self.run is None:
            raise ArgumentError(
                "Parameter `log` should be a run of wandb. Found the module without one. Call wandb.init() first."
            )
        self.run.define_metric("heldin/step", hidden=True)
        self.run.define_metric("heldin/*", step_metric="heldin/step")
        self._latest: int | None = None  # the row of the previous reading

    def __call__(self, values: Values, step: int) -> None:
        """Add the values to the present row; to a new one, if that has values of the previous reading."""
        if self.run.step == self._latest:
            self.run.log({}, commit=True)
        self.run.log({**values, "heldin/step": step}, commit=False)
        self._latest = self.run.step
