"""`export`: write a run's measurements for other programs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from distrain.runners import formatting
from distrain.runners.cli.terminal import print_message
from distrain.runners.lookup import find_run


def execute(arguments: Namespace) -> int:
    """Write to --out; without it, or with "-", csv and jsonl go to stdout."""
    from distrain.runners.records import export

    record = find_run(arguments.run, arguments.runs_dir).record
    out = None if arguments.out in (None, "-") else Path(arguments.out)
    export.export(record, arguments.to, out, arguments.table)
    if arguments.to == "csv" and arguments.table is None and record.logged():
        print_message("what the script has logged is exported with --table logged")
    if out:
        print_message(f"wrote {formatting.printable(arguments.out)}")
    return 0
