"""The arguments of each command."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError

RUN_HELP = "id, unique beginning of an id, name, or latest"
DEVICES_HELP = "auto, all, cpu:N, or GPUs: 0,1 or GPU-UUID,…"


# --- shared by commands ---------------------------------------------------------------------------


def _add_runs_dir(parser: ArgumentParser) -> None:
    parser.add_argument("--runs-dir", metavar="DIR", help="folder of all runs")


def _add_filter(parser: ArgumentParser, text: str) -> None:
    parser.add_argument(
        "--filter",
        metavar="EXPRESSION",
        help=f"{text}, such as 'lr>0.1 status:failed tag!=old'; see docs/command-line.md",
    )


def _add_json(parser: ArgumentParser, content: str) -> None:
    parser.add_argument("--json", action="store_true", help=f"print {content} as JSON")


def _add_run(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    _add_runs_dir(parser)


def _add_set(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        dest="changes",
        help="change one key of the config, e.g. train.lr=0.05; can be repeated",
    )


def _add_launch_options(parser: ArgumentParser) -> None:
    _add_set(parser)
    parser.add_argument("--devices", metavar="WHICH", help=DEVICES_HELP)
    parser.add_argument("--name", help="a name to find it by")
    parser.add_argument(
        "--queue",
        action="store_true",
        help="wait until no other run or program uses the devices",
    )
    _add_runs_dir(parser)
    parser.add_argument(
        "--detach", action="store_true", help="start it, print its id and return at once"
    )
    _add_json(parser, "the result")


def _add_trust(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--trust",
        action="store_true",
        help="allow the code that the record names, without a question, and remember that",
    )


def _add_launcher(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--launcher",
        metavar="L",
        help="how ranks are started; a script without --devices is one process (inline), with "
        "--devices one for each (torchrun)",
    )


# --- of one command -------------------------------------------------------------------------------


def add_run_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "preset",
        metavar="PRESET | SCRIPT [ARGS …]",
        nargs="?",
        help="name of a preset, a TOML file, or a program with its arguments: a word that ends in "
        ".py or contains a slash, or anything after --",
    )
    parser.add_argument(
        "-m", dest="module", metavar="MODULE", help="run a Python module, with the arguments after"
    )
    _add_launch_options(parser)
    _add_launcher(parser)
    _add_sweep(parser)
    parser.add_argument(
        "--no-auto",
        action="store_true",
        help="do not observe steps, batches and phases of a Python script",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="print the launcher's command or Slurm's batch script, and start nothing",
    )


def _add_sweep(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--sweep",
        metavar="KEY=VALUE,VALUE…",
        action="append",
        default=[],
        help="queue a run for each value, as one group; several give all combinations. A KEY such "
        "as --lr is an argument of a script",
    )


def _add_group(parser: ArgumentParser, content: str) -> None:
    parser.add_argument("--group", metavar="GROUP", help=f"{content} of this sweep: id or name")


def add_join_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("address", metavar="HOST:PORT", help="address that the first host printed")
    parser.add_argument(
        "--token-file", metavar="FILE", required=True, help="a copy of the run's token"
    )
    parser.add_argument(
        "--devices",
        metavar="WHICH",
        help="devices of this host, as for run (default: as in the run's config)",
    )
    parser.add_argument(
        "--node-rank",
        metavar="K",
        type=int,
        help="number of this host, from 1 (default: the next free number)",
    )
    parser.add_argument(
        "--runs-dir", metavar="DIR", help="folder of all runs, where a script saves on this host"
    )


def add_rerun_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    _add_launch_options(parser)
    _add_trust(parser)


def add_runs_arguments(parser: ArgumentParser) -> None:
    _add_filter(parser, "only runs that match")
    _add_group(parser, "only runs")
    _add_runs_dir(parser)
    _add_json(parser, "an array")


def add_show_arguments(parser: ArgumentParser) -> None:
    _add_run(parser)
    _add_json(parser, "everything")


def add_watch_arguments(parser: ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--every",
        metavar="SECONDS",
        type=_parse_seconds,
        default=5.0,
        help="time between two progress lines in a pipe (default: 5)",
    )
    _add_trust(parser)


def add_logs_arguments(parser: ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--rank",
        metavar="N",
        help="only this log: a rank, or launcher, job (of Slurm) or supervisor",
    )
    parser.add_argument(
        "-f", "--follow", action="store_true", help="print new lines until the run ends"
    )


def add_stacks_arguments(parser: ArgumentParser) -> None:
    _add_run(parser)


def add_stop_arguments(parser: ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument(
        "--now", action="store_true", help="end the run at once, without a checkpoint"
    )
    parser.add_argument("--wait", action="store_true", help="return once it has ended")


def add_queue_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", parser_class=type(parser), help="list (default), or:"
    )
    move = actions.add_parser("move", help="move a waiting run")
    move.add_argument("run", metavar="RUN", help="id, unique beginning of an id, or name")
    move.add_argument("step", choices=("up", "down", "first", "last"), help="where to")
    _add_json(parser, "the queue")


def add_rm_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", nargs="+", help="runs, benches or groups")
    parser.add_argument(
        "--undo", action="store_true", help="restore these (by id or name) from the trash"
    )
    _add_runs_dir(parser)


def add_compare_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "runs", metavar="RUN", nargs="*", help="runs, or one bench, or a JSON file of a comparison"
    )
    _add_filter(parser, "add the runs that match, the oldest first")
    _add_group(parser, "compare the runs")
    parser.add_argument(
        "--format",
        choices=("table", "json", "md", "html"),
        default="table",
        help="table (default), json, md for a pull request, html for a browser",
    )
    _add_json(parser, "everything")
    parser.add_argument(
        "--baseline", metavar="NAME", help="run that ratios are relative to (default: the first)"
    )
    parser.add_argument("--out", metavar="FILE", help="file to write to instead of stdout")
    _add_runs_dir(parser)


def add_export_arguments(parser: ArgumentParser) -> None:
    _add_run(parser)
    parser.add_argument("--to", required=True, choices=("csv", "jsonl", "tensorboard"))
    parser.add_argument(
        "--table",
        choices=("steps", "logged"),
        help="rows of csv: windows of steps (default), or what a script has logged",
    )
    parser.add_argument("--out", metavar="PATH", help="file to write to; a folder for tensorboard")


def add_presets_arguments(parser: ArgumentParser) -> None:
    actions = parser.add_subparsers(
        dest="action", metavar="ACTION", parser_class=type(parser), help="list (default) or one of:"
    )
    listing = actions.add_parser("list", help="list all presets, built-in and yours")
    show = actions.add_parser("show", help="print a preset")
    show.add_argument("preset", metavar="PRESET")
    show.add_argument("--full", action="store_true", help="include every key and its default")
    save = actions.add_parser("save", help="save a preset of your own")
    save.add_argument("name", metavar="NAME")
    save.add_argument("--from", required=True, dest="source", metavar="PRESET_OR_RUN")
    save.add_argument(
        "--force", action="store_true", help="replace your preset of this name, if there is one"
    )
    _add_set(save)
    _add_runs_dir(save)
    _add_trust(save)
    validate = actions.add_parser("validate", help="check presets (default: all)")
    validate.add_argument("presets", metavar="PRESET", nargs="*")
    path = actions.add_parser("path", help="print the folder of your presets, or a preset's file")
    path.add_argument("preset", metavar="PRESET", nargs="?")
    _add_json(parser, "the list")
    # Without a default, so that `presets --json list` means the same as `presets list --json`.
    listing.add_argument("--json", action="store_true", default=SUPPRESS, help="print it as JSON")


def add_verify_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "presets",
        metavar="PRESET",
        nargs="*",
        help="names or TOML files (default: all presets that can run here)",
    )
    parser.add_argument(
        "--ranks",
        metavar="N,…",
        help="numbers of CPU processes to verify each with, e.g. 1,2,3; single and dp use one",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=int,
        help="length of each run (default: 20); its first three steps, its last, and random ones "
        "between are compared",
    )
    _add_set(parser)
    parser.add_argument("--devices", metavar="WHICH", help=DEVICES_HELP)
    _add_json(parser, "all checks")


def add_bench_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "candidates",
        metavar="CANDIDATE",
        nargs="+",
        help="presets or TOML files, optionally with changed keys: ddp,precision=bf16; quoted "
        'command lines of scripts: "train.py --ddp"; or one bench.toml',
    )
    parser.add_argument(
        "--repeats", metavar="N", type=int, help="maximum number of rounds (default: 20)"
    )
    parser.add_argument(
        "--seconds",
        metavar="S",
        type=float,
        help="time measured in each run after its warm-up (default: 5)",
    )
    parser.add_argument(
        "--steps",
        metavar="N",
        type=int,
        help="steps measured in each run after its warm-up, instead of --seconds",
    )
    parser.add_argument(
        "--precision",
        metavar="P",
        type=_parse_precision,
        help="end once every ratio is known within ±P (default: 2%%)",
    )
    parser.add_argument(
        "--baseline",
        metavar="CANDIDATE",
        help="candidate that the others are compared to (default: the first)",
    )
    parser.add_argument(
        "--target",
        metavar="METRIC=VALUE",
        help="train until an evaluation reaches this value, e.g. top1=95%%",
    )
    parser.add_argument(
        "--unequal",
        action="store_true",
        help="compare candidates with unequal settings; results are marked as unequal",
    )
    parser.add_argument(
        "--seed", metavar="N", type=int, help="seed of the order in each round (default: 0)"
    )
    _add_launch_options(parser)
    _add_launcher(parser)


def add_doctor_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--fix",
        choices=("horovod",),
        help="build and install Horovod for the installed torch; takes minutes",
    )
    _add_json(parser, "all findings")


def add_no_arguments(parser: ArgumentParser) -> None:
    """Add nothing: the command has no arguments."""


def parse_share(text: str) -> float:
    """Return the number in "0.02", or in "2%" as a fraction of 1. Raises ValueError."""
    number = text.strip()
    if number.endswith("%"):
        return float(number.removesuffix("%")) / 100
    return float(number)


def _parse_precision(text: str) -> float:
    try:
        return parse_share(text)
    except ValueError:
        message = f"must be a share such as 2% or 0.02, not {text!r}"
        raise ArgumentTypeError(message) from None


def _parse_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not seconds >= 0:  # NaN is not either
        raise ArgumentTypeError(f"must be a number of seconds ≥ 0, not {text!r}")
    return seconds
