"""`show`: everything about one run or bench."""

from __future__ import annotations

from argparse import Namespace

from distrain.runners.cli.presentation import present
from distrain.runners.cli.terminal import print_json
from distrain.runners.lookup import find_any


def execute(arguments: Namespace) -> int:
    presentation = present(find_any(arguments.run, arguments.runs_dir))
    if arguments.json:
        print_json(presentation.data())
    else:
        print(presentation.page())
    return 0
