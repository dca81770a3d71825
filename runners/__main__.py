"""`python -m runners`: the same as `distrain`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    # `python -m` puts the current folder first, where a folder called `models` would hide ours.
    if not sys.flags.safe_path and sys.path[0] != str(Path(__file__).parents[1]):
        del sys.path[0]
    from runners.cli import main

    sys.exit(main())
