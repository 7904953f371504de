"""The entrance: runs a verb and turns what it raises into a message and an exit code.

0 is fine; 2 is bad input, or anything heldin refuses, with the message on standard error; 130 is Ctrl-C. Anything else
is a mistake of heldin's own and shows where.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from heldin.errors import HeldinError

REFUSED = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line `arguments`, those of this process by default, and return the exit code.

    Example:
        >>> from heldin.cli.main import main
        >>> main(["replay", "--rule", "nth_rise", "--patience", "1", "no-such-file.txt"])
        2
    """
    try:
        from heldin.cli.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("heldin"):
            raise
        return _refuse(f'The command line needs {error.name}. Install it: pip install "heldin[lab]".')
    try:
        app(args=None if arguments is None else list(arguments), prog_name="heldin")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    except HeldinError as error:
        return _refuse(str(error))
    return 0


def _refuse(message: str) -> int:
    sys.stderr.write(f"heldin: {message}\n")
    return REFUSED


if __name__ == "__main__":
    sys.exit(main())
