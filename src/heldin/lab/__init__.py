"""The lab holds the experiments: data, models, one training loop, and what is read from its records.

`heldin.lab.compare` compares stopping methods on a task of yours, which returns a `heldin.lab.Task`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heldin.lab.comparing import compare as compare
    from heldin.lab.task import Task as Task
else:
    from importlib import import_module

    PLACES = {"compare": "comparing", "Task": "task"}  # imported, and torch with them, when they are first used

    def __getattr__(name: str) -> object:
        if name in PLACES:
            return getattr(import_module(f"heldin.lab.{PLACES[name]}"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
