"""The `distrain` command, also as `python -m distrain`."""

import sys


def main() -> int:
    """Execute the command line; a Ctrl-C while it is loaded also ends it without a traceback."""
    try:
        from distrain.runners.cli import main as execute
    except KeyboardInterrupt:
        return 130
    return execute()


if __name__ == "__main__":
    sys.exit(main())
