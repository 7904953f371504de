"""`python -m paper list | run | build`."""

import sys


def main() -> int:
    """Run the command line of this process and return the exit code."""
    try:
        from paper.harness.commands import main
        from paper.items import PAPER
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("heldin.", "paper")):
            raise
        sys.stderr.write(f'paper: python -m paper needs {error.name}. Install it: pip install ".[lab]".\n')
        return 2
    return main(PAPER)


if __name__ == "__main__":
    sys.exit(main())
