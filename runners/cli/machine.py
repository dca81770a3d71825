"""`doctor`: what this machine can do."""

from __future__ import annotations

import io
import sys
from argparse import Namespace

from runners.cli.fixing import fix
from runners.cli.text import is_terminal, print_json, say
from runners.doctor import diagnose, render


def doctor(arguments: Namespace) -> int:
    """Print the findings; what is being probed is told meanwhile. `--fix` mends instead."""
    if arguments.fix:
        return fix(arguments)
    report = diagnose(lambda text: say(f"{text} …", "dim"))
    if arguments.json:
        print_json(report)
        return 0
    from rich.console import Console

    if is_terminal(sys.stdout):
        render(report, Console(highlight=False, force_terminal=True))
        return 0
    # Rich takes a pipe to be 80 columns wide, would cut the tables, and fills lines with blanks.
    text = io.StringIO()
    render(report, Console(file=text, highlight=False, width=120))
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))
    return 0
