"""Text tables on a terminal that is too narrow for them."""

from __future__ import annotations

import pytest

from distrain.runners.cli.terminal import TextColumn, align_columns

COLUMNS = (
    TextColumn("preset"),
    TextColumn("task", drop_order=2),
    TextColumn("description", drop_order=1, least=6),
)
ROWS = [["ddp", "digits", "started by torchrun"], ["gpt", "text", "a small GPT"]]


@pytest.mark.parametrize(
    ("width", "row"),
    [
        (None, "ddp     digits  started by torchrun"),
        (35, "ddp     digits  started by torchrun"),
        (34, "ddp     digits  started by torchr…"),
        (22, "ddp     digits  start…"),
        (21, "ddp     started by t…"),
        (14, "ddp     start…"),
        (13, "ddp"),
    ],
)
def test_a_last_column_is_cut_before_columns_are_dropped(width: int | None, row: str) -> None:
    header, first, _ = align_columns(COLUMNS, ROWS, width)
    assert first == row
    assert len(header) <= (width or len(row))
