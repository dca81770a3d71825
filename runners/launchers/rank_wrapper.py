"""One rank of a foreign launcher (horovodrun, mpirun): starts it and reports how it ended.

The arguments are the command of the rank.
"""

from __future__ import annotations

import os
import sys

from distrain.runners.launchers.supervisor_link import SupervisorLink
from distrain.runners.system.rank_identity import set_rank_variables


def main() -> int:
    set_rank_variables()
    with SupervisorLink(is_child=False) as link:
        return link.run_ranks(sys.argv[1:], {int(os.environ["RANK"]): {}})


if __name__ == "__main__":
    sys.exit(main())
