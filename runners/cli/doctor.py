"""The command `doctor`: a report of what this machine can do, as tables or JSON."""

from __future__ import annotations

import io
import os
import sys
from argparse import Namespace
from typing import TYPE_CHECKING, Any

from distrain.runners import formatting
from distrain.runners.cli.horovod_install import install_horovod
from distrain.runners.cli.terminal import is_terminal, print_json, print_message
from distrain.runners.doctor.collectives import OPERATIONS
from distrain.runners.doctor.survey import run_survey

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

STYLES = {"yes": "green", "no": "red", "hangs": "bold red", "n/a": "dim"}  # by answer
PIPE_WIDTH = 120  # characters; rich assumes 80 for a pipe and would cut the tables


def execute(arguments: Namespace) -> int:
    """Print the findings, or with --fix install what is missing. Progress goes to stderr."""
    if arguments.fix:
        return install_horovod(arguments)
    os.getcwd()  # torch cannot be loaded in a folder that was deleted, which is another error
    report = run_survey(lambda text: print_message(f"{text} …", "dim"))
    if arguments.json:
        print_json(report)
        return 0
    from rich.console import Console

    if is_terminal(sys.stdout):
        render(report, Console(highlight=False, force_terminal=True))
        return 0
    text = io.StringIO()
    render(report, Console(file=text, highlight=False, width=PIPE_WIDTH))
    # Rich pads lines with spaces.
    print("\n".join(line.rstrip() for line in text.getvalue().splitlines()))
    return 0


def render(report: dict[str, Any], console: Console) -> None:
    """Print the report of `run_survey` as tables that fit 80 columns."""
    from rich.padding import Padding

    parts = [
        _titled("Versions", _pairs_table(version_lines(report["versions"]))),
        _titled("Devices", _pairs_table(device_lines(report["devices"]))),
        _titled("Slurm", _pairs_table(slurm_lines(report["slurm"]))),
        _titled("Strategies", _capability_table(report["strategies"])),
        _titled("Launchers", _capability_table(report["launchers"])),
        _titled("Backends", _capability_table(report["backends"])),
        _titled("Operations between two processes", _operation_table(report["operations"])),
        _pairs_table(reason_lines(report["operations"])),
    ]
    for part in parts:
        console.print(Padding(part, (0, 0, 1, 0)))


def _titled(title: str, content: RenderableType) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    return Group(Text(title, style="bold"), content)


def _pairs_table(lines: list[tuple[str, str]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(*map(Text, line))  # words of libraries, with brackets that are no markup
    return table


def _capability_table(capabilities: dict[str, Any]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", min_width=9)
    table.add_column(min_width=3)
    table.add_column(overflow="fold")
    for name, capability in capabilities.items():
        answer = "yes" if capability["usable"] else "no"
        remarks = [text for text in (capability["why"], capability["mend"]) if text]
        table.add_row(name, Text(answer, style=STYLES[answer]), Text("; ".join(remarks)))
    return table


def _operation_table(columns: list[dict[str, Any]]) -> RenderableType:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("", style="cyan", no_wrap=True)
    for column in columns:
        table.add_column(f"{column['backend']}\n{column['device']}", min_width=5)
    for operation in OPERATIONS:
        answers = [column["cells"][operation]["answer"] for column in columns]
        table.add_row(operation, *(Text(answer, style=STYLES[answer]) for answer in answers))
    return table


def version_lines(versions: dict[str, str | None]) -> list[tuple[str, str]]:
    """Return label and text of each version."""
    return [(name, version or "none") for name, version in versions.items()]


def device_lines(devices: dict[str, Any]) -> list[tuple[str, str]]:
    """Return label and text of each GPU, the CPU and the memory."""
    lines = [
        (f"GPU {gpu['index']}", f"{gpu['name']}, {_format_memory(gpu['memory'])}, {gpu['uuid']}")
        for gpu in devices["gpus"]
    ]
    if devices["no_gpu"]:
        lines.append(("GPU", f"none usable: {devices['no_gpu']}"))
    threads = f"{devices['usable_threads']} of {devices['threads']} threads usable"
    lines.append(("CPU", f"{devices['cpu']}, {threads}"))
    lines.append(("memory", _format_memory(devices["memory"])))
    return lines


def slurm_lines(slurm: dict[str, Any]) -> list[tuple[str, str]]:
    """Return label and text of what the report has about Slurm."""
    if slurm["version"] is None:
        return [("Slurm", f"none: {slurm['why']}")]
    lines = [("version", slurm["version"])]
    for partition in slurm["partitions"]:
        gpus = f"{partition['gpus']} each" if partition["gpus"] else "no GPUs"
        nodes = formatting.plural(int(partition["nodes"]), "node")
        lines.append((partition["name"], f"{nodes}, {gpus}, time limit {partition['limit']}"))
    if slurm["address"]:
        lines.append(("address", f"{slurm['address']}: nodes report to it on this host"))
    if slurm["why"]:
        lines.append(("problem", slurm["why"]))
    return lines


def reason_lines(columns: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return why an answer is not "yes", once for all operations of a column with that reason."""
    lines = []
    for column in columns:
        operations_by_reason: dict[tuple[str, str], list[str]] = {}
        for operation, cell in column["cells"].items():
            if cell["answer"] != "yes":
                key = (cell["answer"], cell["reason"])
                operations_by_reason.setdefault(key, []).append(operation)
        for (answer, reason), operations in operations_by_reason.items():
            text = f"{answer}, {reason}"
            if len(operations) < len(OPERATIONS):
                text = f"{', '.join(operations)}: {text}"
            lines.append((f"{column['backend']} {column['device']}", text))
    return lines


def _format_memory(size: int | None) -> str:
    return "memory N/A" if size is None else f"{size / 2**30:.1f} GiB"
