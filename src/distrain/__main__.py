"""`python -m distrain`: the same as the `distrain` command."""

import sys

from distrain.runners.cli import main

if __name__ == "__main__":
    sys.exit(main())
