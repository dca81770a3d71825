"""Where marks at the edge of a chart are."""

from __future__ import annotations

from collections.abc import Sequence


def spread_rows(wanted: Sequence[int], rows: int) -> list[int]:
    """Return different rows, in order and close to the wanted ones, which ascend.

    If there are more than rows, the last ones have none.
    """
    found: list[int] = []
    for row in wanted[:rows]:
        found.append(max(row, found[-1] + 1) if found else row)
    for at in range(len(found) - 1, -1, -1):
        found[at] = min(found[at], rows - len(found) + at)
    return found
