"""`doctor`: what this machine can do."""

from __future__ import annotations

import sys
from argparse import Namespace

from runners.cli.text import is_terminal, print_json, say
from runners.doctor import diagnose, render


def doctor(arguments: Namespace) -> int:
    """Print the findings; what is being probed is told meanwhile."""
    report = diagnose(lambda text: say(f"{text} …", "dim"))
    if arguments.json:
        print_json(report)
        return 0
    from rich.console import Console

    terminal = is_terminal(sys.stdout)
    # Rich takes a pipe to be 80 columns wide and would cut the tables.
    width = None if terminal else 120
    render(report, Console(highlight=False, force_terminal=terminal, width=width))
    return 0
