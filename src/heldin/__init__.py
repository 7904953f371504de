"""heldin: early stopping with nothing held out.

The public names are loaded, and torch with them, when one of them is first used. `heldin --help` uses none of them.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heldin.public import *  # noqa: F403
else:
    from importlib import import_module

    def __getattr__(name: str) -> object:
        if name == "__all__" or not name.startswith("__"):
            public = import_module("heldin.public")
            globals().update({known: getattr(public, known) for known in ("__all__", *public.__all__)})
            if name in globals():  # a public name, or a module that was imported with them
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *import_module("heldin.public").__all__})


__version__ = "0.1.0"
