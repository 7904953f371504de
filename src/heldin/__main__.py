"""`python -m heldin` is the command `heldin`."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    from heldin.cli.main import main

    sys.exit(main())
