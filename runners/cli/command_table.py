"""The commands: what each is called, does and takes."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable
from typing import NamedTuple

from distrain.runners.cli import options


class Command(NamedTuple):
    """A command. The module of its name in this package has a function `execute(arguments)`."""

    name: str
    summary: str
    add_arguments: Callable[[ArgumentParser], None]
    examples: str
    takes_program: bool = False
    quotes_programs: bool = False


GROUPS: dict[str, list[Command]] = {
    "train": [
        Command(
            "run",
            "start a preset or a script and follow it; Ctrl-C stops it (presets save a checkpoint)",
            options.add_run_arguments,
            "distrain run ddp\n"
            "distrain run train.py --lr 0.1\n"
            "distrain run --devices 0,1 --name big train.py --lr 0.1\n"
            "distrain run -m package.train\n"
            "distrain run -- ./train.sh\n"
            "distrain run ddp --set train.epochs=5 --devices cpu:4 --name quick\n"
            "distrain run ./my.toml --devices 0,1 --detach\n"
            "distrain run ddp --queue --detach\n"
            "distrain run ddp --sweep train.lr=0.1,0.05\n"
            "distrain run --sweep --lr=0.1,0.05 train.py\n"
            "distrain run amp --json > result.json",
            takes_program=True,
        ),
        Command(
            "join",
            "add this host to a multi-host run that was started on another host",
            options.add_join_arguments,
            "distrain join 10.0.0.5:40123 --token-file token\n"
            "distrain join 10.0.0.5:40123 --token-file token --devices 0,1",
        ),
        Command(
            "resume",
            "continue from a run's last checkpoint, as a new run",
            options.add_rerun_arguments,
            "distrain resume latest\ndistrain resume quick --set train.epochs=40 --devices cpu:2",
        ),
        Command(
            "rerun",
            "start the same config again",
            options.add_rerun_arguments,
            "distrain rerun latest --set train.lr=0.05",
        ),
        Command(
            "stop",
            "stop a run; a preset saves a checkpoint, after the same step on all ranks",
            options.add_stop_arguments,
            "distrain stop latest --wait\ndistrain stop quick --now\ndistrain stop ddp-sweep",
        ),
        Command(
            "queue",
            "list the runs that use or wait for this host's devices; move one",
            options.add_queue_arguments,
            "distrain queue\ndistrain queue move quick first",
        ),
    ],
    "inspect": [
        Command(
            "runs",
            "list runs, newest first",
            options.add_runs_arguments,
            "distrain runs\n"
            "distrain runs --filter 'lr>0.1 status:failed'\n"
            "distrain runs --json | jq '.[].eval.top1'",
        ),
        Command(
            "show",
            "show everything about one run",
            options.add_show_arguments,
            "distrain show latest\ndistrain show latest --json | jq .provenance.git",
        ),
        Command(
            "watch",
            "follow a run; Ctrl-C only leaves. The exit code is that of the run",
            options.add_watch_arguments,
            "distrain watch latest\ndistrain watch latest --every 60 >> progress.log",
        ),
        Command(
            "logs",
            "print the output of ranks and launcher",
            options.add_logs_arguments,
            "distrain logs latest\ndistrain logs latest --rank 0 -f",
        ),
        Command(
            "stacks",
            "print what every rank is doing, call by call; also of a run that hangs",
            options.add_stacks_arguments,
            "distrain stacks latest",
        ),
        Command(
            "compare",
            "compare runs, or show a bench: rates, curves, differences",
            options.add_compare_arguments,
            "distrain compare single ddp\n"
            "distrain compare --filter 'tag:sweep status:completed'\n"
            "distrain compare single ddp amp --format html --out report.html\n"
            "distrain compare single ddp --format md | gh pr comment --body-file -",
        ),
        Command(
            "export",
            "write a run's measurements for other programs",
            options.add_export_arguments,
            "distrain export latest --to csv\n"
            "distrain export latest --to tensorboard --out /tmp/tb",
        ),
    ],
    "check and measure": [
        Command(
            "verify",
            "check that presets compute what one plain process computes",
            options.add_verify_arguments,
            "distrain verify\n"
            "distrain verify ddp allreduce --ranks 1,2,3\n"
            "distrain verify ./mine.toml --set train.accumulate=2 --json",
        ),
        Command(
            "bench",
            "measure which preset or script is fastest here, in rounds of random order",
            options.add_bench_arguments,
            "distrain bench single ddp allreduce\n"
            "distrain bench ddp ddp,precision=bf16 --precision 1%\n"
            "distrain bench ddp ddp-spawn --target top1=95% --repeats 10\n"
            'distrain bench "train.py --ddp" "train.py --fsdp" --devices 0,1 --steps 200\n'
            "distrain bench runs/20261121-044117-bench-x7k2/bench.toml",
            quotes_programs=True,
        ),
    ],
    "manage": [
        Command(
            "rm",
            "move runs, or all runs of a group, to the trash; --undo restores them",
            options.add_rm_arguments,
            "distrain rm quick ddp-sweep\ndistrain rm --undo quick",
        ),
        Command(
            "presets",
            "list, show, save and check presets",
            options.add_presets_arguments,
            "distrain presets\n"
            "distrain presets show ddp --full\n"
            "distrain presets save mine --from ddp --set train.lr=0.05\n"
            "distrain presets validate ./my.toml\n"
            "distrain presets path",
        ),
        Command(
            "schema",
            "print the JSON Schema of a preset, for editors",
            options.add_no_arguments,
            "distrain schema > preset.schema.json",
        ),
    ],
    "machine": [
        Command(
            "doctor",
            "show versions, devices, and what can be used here or why not",
            options.add_doctor_arguments,
            "distrain doctor\ndistrain doctor --json > machine.json\ndistrain doctor --fix horovod",
        ),
    ],
}
