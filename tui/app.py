"""`distrain-tui`: says where to look until the app is here."""

from __future__ import annotations

import sys


def main() -> int:
    print(
        "distrain-tui: the terminal app is still to come; `distrain run ddp` trains and shows "
        "a run live, `distrain watch latest` looks on",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
