"""The table of commands: what each is called, does, takes, and where it lives."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser
from collections.abc import Callable
from typing import NamedTuple


class Command(NamedTuple):
    """`module` of this package has a function `function`, which takes the parsed arguments."""

    name: str
    about: str
    module: str
    function: str
    arguments: Callable[[ArgumentParser], None]
    examples: str


def _runs_dir(parser: ArgumentParser) -> None:
    parser.add_argument("--runs-dir", metavar="DIR", help="folder of all runs")


def _json(parser: ArgumentParser, what: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {what} as JSON")


def _a_run(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id, its unique beginning, name, or latest")
    _runs_dir(parser)


def _set(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="changes",
        help="change one key of the config, e.g. train.lr=0.05; may be given often",
    )


def _starting(parser: ArgumentParser) -> None:
    _set(parser)
    parser.add_argument(
        "--devices", metavar="WHICH", help="auto, all, cpu:N, or GPUs: 0,1 or GPU-UUID,…"
    )
    parser.add_argument("--name", help="a name to find the run by")
    parser.add_argument(
        "--queue", action="store_true", help="wait until no other run or program has the devices"
    )
    _runs_dir(parser)
    parser.add_argument(
        "--detach", action="store_true", help="print the run's id and return while it trains"
    )
    _json(parser, "one object at the end")


def _run(parser: ArgumentParser) -> None:
    parser.add_argument("preset", metavar="PRESET", help="name of a preset, or a TOML file")
    _starting(parser)
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="start nothing: print the launcher's command, or Slurm's batch script",
    )


def _join(parser: ArgumentParser) -> None:
    parser.add_argument("place", metavar="HOST:PORT", help="where the first host listens")
    parser.add_argument(
        "--token-file", metavar="FILE", required=True, help="a copy of the run's token"
    )
    parser.add_argument(
        "--devices", metavar="WHICH", help="of this host, as for run; else as the run's config says"
    )
    parser.add_argument(
        "--node-rank",
        metavar="K",
        type=int,
        help="be host number K, from 1; else whichever is free",
    )


def _again(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="id, its unique beginning, name, or latest")
    _starting(parser)


def _runs(parser: ArgumentParser) -> None:
    _runs_dir(parser)
    _json(parser, "an array")


def _show(parser: ArgumentParser) -> None:
    _a_run(parser)
    _json(parser, "everything")


def _watch(parser: ArgumentParser) -> None:
    _a_run(parser)
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        default=5.0,
        help="time between two progress lines when piped (5)",
    )


def _logs(parser: ArgumentParser) -> None:
    _a_run(parser)
    parser.add_argument(
        "--rank", metavar="N", help="only this rank, or launcher, job (of Slurm), supervisor"
    )
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the run ends")


def _stop(parser: ArgumentParser) -> None:
    _a_run(parser)
    parser.add_argument("--now", action="store_true", help="end it at once, without a checkpoint")
    parser.add_argument("--wait", action="store_true", help="return when it has ended")


def _rm(parser: ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="runs to move to the trash")
    parser.add_argument("--undo", action="store_true", help="take them back out, by id or name")
    _runs_dir(parser)


def _compare(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="runs, or one bench, or a JSON file of a comparison"
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "md", "html"),
        default="table",
        help="table (default), json, md for a pull request, html for a browser",
    )
    _json(parser, "everything")
    parser.add_argument("--baseline", metavar="NAME", help="what ratios are to; else the first run")
    parser.add_argument("--out", metavar="FILE", help="where to write instead of stdout")
    _runs_dir(parser)


def _export(parser: ArgumentParser) -> None:
    _a_run(parser)
    parser.add_argument("--to", required=True, choices=("csv", "jsonl", "tensorboard"))
    parser.add_argument("--out", metavar="PATH", help="where to write; a folder for tensorboard")


def _presets(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", parser_class=type(parser), help="list (default) or one of:"
    )
    listing = actions.add_parser("list", help="all presets, built-in and yours")
    show = actions.add_parser("show", help="print a preset")
    show.add_argument("preset", metavar="PRESET")
    show.add_argument("--full", action="store_true", help="with every key and its default")
    save = actions.add_parser("save", help="write a preset of your own")
    save.add_argument("name", metavar="NAME")
    save.add_argument("--from", required=True, dest="source", metavar="PRESET_OR_RUN")
    save.add_argument("--force", action="store_true", help="replace one of that name")
    _set(save)
    _runs_dir(save)
    validate = actions.add_parser("validate", help="check presets; without names, all")
    validate.add_argument("presets", metavar="PRESET", nargs="*")
    path = actions.add_parser("path", help="the folder of your presets, or a preset's file")
    path.add_argument("preset", metavar="PRESET", nargs="?")
    _json(parser, "the list")
    # Without a default of its own, so that `presets --json list` means the same.
    listing.add_argument("--json", action="store_true", default=SUPPRESS, help="as JSON")


def _verify(parser: ArgumentParser) -> None:
    parser.add_argument(
        "presets", metavar="PRESET", nargs="*", help="names or TOML files; without, all usable here"
    )
    parser.add_argument(
        "--ranks",
        metavar="N,…",
        help="on so many CPU processes each, e.g. 1,2,3; single and dp on one",
    )
    _set(parser)
    parser.add_argument("--devices", metavar="WHICH", help="auto, all, cpu:N, or GPUs: 0,1")
    _json(parser, "all checks")


def _bench(parser: ArgumentParser) -> None:
    parser.add_argument(
        "presets",
        metavar="PRESET",
        nargs="+",
        help="names or files, each perhaps with keys changed: ddp,precision=bf16; or a bench.toml",
    )
    parser.add_argument("--repeats", metavar="N", type=int, help="rounds at most (20)")
    parser.add_argument(
        "--seconds", metavar="S", type=float, help="measured in each run, after its warm-up (5)"
    )
    parser.add_argument(
        "--precision", metavar="P", type=share, help="end when every ratio is known within ±P (2%%)"
    )
    parser.add_argument("--baseline", metavar="PRESET", help="what the others are compared to")
    parser.add_argument(
        "--target", metavar="METRIC=VALUE", help="train until an evaluation reaches it: top1=95%%"
    )
    parser.add_argument(
        "--unequal", action="store_true", help="compare what is not equal, and say so"
    )
    parser.add_argument("--seed", metavar="N", type=int, help="of the order of the rounds")
    _starting(parser)


def share(text: str) -> float:
    """A number, or a percentage as the part of 1 that it is; raises ValueError."""
    plain = text.strip()
    return float(plain.removesuffix("%")) / 100 if plain.endswith("%") else float(plain)


def _nothing(parser: ArgumentParser) -> None:
    """A command without arguments."""


def _doctor(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fix",
        choices=("horovod",),
        help="build and install Horovod for the torch that is here; takes minutes",
    )
    _json(parser, "all findings")


GROUPS: dict[str, list[Command]] = {
    "train": [
        Command(
            "run",
            "start a run and follow it; Ctrl-C stops it gracefully",
            "starting",
            "run",
            _run,
            "distrain run ddp\n"
            "distrain run ddp --set train.epochs=5 --devices cpu:4 --name quick\n"
            "distrain run ./my.toml --devices 0,1 --detach\n"
            "distrain run ddp --queue --detach\n"
            "distrain run amp --json > result.json",
        ),
        Command(
            "join",
            "take part in a run of several hosts that another has begun",
            "joining",
            "join",
            _join,
            "distrain join 10.0.0.5:40123 --token-file token\n"
            "distrain join 10.0.0.5:40123 --token-file token --devices 0,1",
        ),
        Command(
            "resume",
            "go on from a run's last checkpoint, as a new run",
            "starting",
            "resume",
            _again,
            "distrain resume latest\ndistrain resume quick --set train.epochs=40 --devices cpu:2",
        ),
        Command(
            "rerun",
            "the same config once more, from the start",
            "starting",
            "rerun",
            _again,
            "distrain rerun latest --set train.lr=0.05",
        ),
        Command(
            "stop",
            "end a run: all ranks at the same step, with a checkpoint",
            "managing",
            "stop",
            _stop,
            "distrain stop latest --wait\ndistrain stop quick --now",
        ),
    ],
    "look": [
        Command(
            "runs",
            "all runs, newest first",
            "listing",
            "runs",
            _runs,
            "distrain runs\ndistrain runs --json | jq '.[].eval.top1'",
        ),
        Command(
            "show",
            "everything about one run",
            "showing",
            "show",
            _show,
            "distrain show latest\ndistrain show latest --json | jq .provenance.git",
        ),
        Command(
            "watch",
            "follow a run; Ctrl-C only leaves. Its exit code is the run's",
            "following",
            "watch",
            _watch,
            "distrain watch latest\ndistrain watch latest --every 60 >> progress.log",
        ),
        Command(
            "logs",
            "what ranks and launcher printed",
            "logs",
            "logs",
            _logs,
            "distrain logs latest\ndistrain logs latest --rank 0 -f",
        ),
        Command(
            "compare",
            "runs, or a bench, as a table or a report: rates, curves, what differs",
            "comparing",
            "compare",
            _compare,
            "distrain compare single ddp\n"
            "distrain compare single ddp amp --format html --out report.html\n"
            "distrain compare single ddp --format md | gh pr comment --body-file -",
        ),
        Command(
            "export",
            "a run's measurements for other programs",
            "managing",
            "export",
            _export,
            "distrain export latest --to csv\n"
            "distrain export latest --to tensorboard --out /tmp/tb",
        ),
    ],
    "trust": [
        Command(
            "verify",
            "does it compute what one plain process computes?",
            "verifying",
            "run",
            _verify,
            "distrain verify\n"
            "distrain verify ddp allreduce --ranks 1,2,3\n"
            "distrain verify ./mine.toml --set train.accumulate=2 --json",
        ),
        Command(
            "bench",
            "which is fastest here? Rounds in random order, with intervals",
            "benching",
            "run",
            _bench,
            "distrain bench single ddp allreduce\n"
            "distrain bench ddp ddp,precision=bf16 --precision 1%\n"
            "distrain bench ddp ddp-spawn --target top1=95% --repeats 10\n"
            "distrain bench runs/20261121-044117-bench-x7k2/bench.toml",
        ),
    ],
    "keep": [
        Command(
            "rm",
            "move runs to the trash; --undo takes them back",
            "managing",
            "rm",
            _rm,
            "distrain rm quick\ndistrain rm --undo quick",
        ),
        Command(
            "presets",
            "list, show, save and check presets",
            "presets",
            "presets",
            _presets,
            "distrain presets\n"
            "distrain presets show ddp --full\n"
            "distrain presets save mine --from ddp --set train.lr=0.05\n"
            "distrain presets validate ./my.toml\n"
            "distrain presets path",
        ),
        Command(
            "schema",
            "JSON Schema of a preset, for editors",
            "presets",
            "schema",
            _nothing,
            "distrain schema > preset.schema.json",
        ),
    ],
    "machine": [
        Command(
            "doctor",
            "versions, devices, and what is usable here or why not",
            "machine",
            "doctor",
            _doctor,
            "distrain doctor\ndistrain doctor --json > machine.json\ndistrain doctor --fix horovod",
        ),
    ],
}
