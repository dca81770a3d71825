"""`python -m runners`: the same as `distrain`."""

import sys

from runners.cli import main

if __name__ == "__main__":
    sys.exit(main())
