"""A rank that another's launcher starts: a child of this process, which tells how it ended."""

from __future__ import annotations

import os
import sys

from runners.launchers.parent import Parent
from runners.launchers.place import take_place


def main() -> int:
    take_place()
    with Parent(direct=False) as parent:
        return parent.train({int(os.environ["RANK"]): {}})


if __name__ == "__main__":
    sys.exit(main())
