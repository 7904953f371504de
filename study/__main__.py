"""`python -m study choose | list | run | build | free-readings`."""

import sys


def main() -> int:
    """Run the command line of this process and return the exit code."""
    try:
        from study.commands import main
    except ModuleNotFoundError as error:
        if (error.name or "").startswith(("heldin", "paper", "study")):
            raise
        sys.stderr.write(f'study: python -m study needs {error.name}. Install it: pip install "heldin[lab]".\n')
        return 2
    return main()


if __name__ == "__main__":
    sys.exit(main())
