"""Verifies random right configs, which must all pass, and planted bugs, which must all be named.

    python -m benchmarks.verification --configs 500 --seed 0     # adds to the results
    python -m benchmarks.verification --bugs                     # each bug once, again
    python -m benchmarks.verification --table                    # writes docs/numbers.md

The ranks of many configs share processes (gloo on CPU), and the comparison runs in this process.
Results are kept in benchmarks/verification.jsonl, one line per config, so that a long series can be
interrupted and continued.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from distrain.models.importing import make_importable, user_folders
from distrain.runners import formatting
from distrain.runners.config.presets import load_preset
from distrain.runners.errors import ConfigError
from distrain.runners.training.tap_files import STEPS, draw_steps
from distrain.runners.verification.cases import Case, make_cases
from distrain.runners.verification.result import VerificationResult
from tests.integration.verification.bugs import BUGS, LATE, REDUCTION, TASKS, changes_of
from tests.integration.verification.in_process import verify_in_process

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "verification.jsonl"
PAGE = ROOT / "docs" / "numbers.md"
BEGIN, END = (
    "<!-- verification: made by benchmarks.verification -->",
    "<!-- end of verification -->",
)
PLANTED = ROOT / "tests" / "integration" / "verification"
NETWORKS = {
    "planted_late:normed": "with BatchNorm",
    "planted_late:Weighted": "mlp, loss weighted by the task",
    "tests.integration.engine.tasks:Turning": "mlp, two optimizers in turn",
}
OWN_OPTIMIZER = ("tests.integration.engine.tasks:Turning",)
AT_ONCE = 12  # configs that share the processes of their ranks


class Line(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a config; `bug` is that which was planted."""

    seed: int
    ranks: int
    changes: dict[str, Any]
    bug: str = ""
    passed: bool
    sentence: str = ""
    named: bool = False
    day: str


def draw_changes(draw: random.Random) -> tuple[int, dict[str, Any]]:
    """Return a number of ranks and the changes of a right config."""
    ranks = draw.choice([1, 2, 2, 3])
    optimizer = draw.choice(["sgd", "adam", "adamw"])
    most = -1 if optimizer == "sgd" else -2
    changes: dict[str, Any] = {
        "strategy": draw.choice(["single", "dp"] if ranks == 1 else ["allreduce", "ddp", "ddp"]),
        "precision": draw.choice(["fp32", "fp32", "fp32", "bf16", "fp16"]),
        "train.optimizer": optimizer,
        "train.lr": float(f"{10 ** draw.uniform(-6, most):.2g}"),
        "train.weight_decay": draw.choice([0.0, 0.0, 0.01, 0.1]),
        "train.momentum": draw.choice([0.0, 0.9]) if optimizer == "sgd" else 0.0,
        "train.accumulate": draw.choice([1, 1, 2, 3]),
        "train.clip_norm": draw.choice([None, None, 0.1, 1.0]),
        "train.schedule": draw.choice(["constant", "cosine", "step"]),
        "train.warmup_epochs": draw.choice([0.0, 0.5]),
        "train.batch_size": draw.choice([16, 24, 60]),
        "train.drop_last": draw.random() < 0.3,
        "train.seed": draw.randrange(10_000),
        "data.train_limit": draw.choice([241, 400, 900]),
        "data.eval_limit": draw.choice([7, 64, 101]),
        "eval.batch_size": draw.choice([None, 5, 32]),
        **_draw_task(draw),
    }
    if changes["strategy"] == "ddp":
        changes["ddp.bucket_mb"] = draw.choice([25.0, 0.01])
        changes["ddp.gradient_as_bucket_view"] = draw.random() < 0.5
        changes["ddp.find_unused_parameters"] = draw.random() < 0.2
        changes["ddp.comm_hook"] = draw.choice(["none"] * 4 + ["fp16_compress"])
    changes |= draw.choice([{}, {}, {"train.ema": 0.5}, {"train.ema": 0.99}, _draw_swa(draw)])
    return ranks, {key: value for key, value in changes.items() if value is not None}


def _draw_swa(draw: random.Random) -> dict[str, Any]:
    return {
        "train.swa_share": draw.choice([0.3, 0.7, 1.0]),
        "train.swa_every_steps": draw.choice([1, 2]),
    }


def _draw_task(draw: random.Random) -> dict[str, Any]:
    kind = draw.choice(["mlp", "mlp", "cnn", "gpt", "normed", "weighted", "turning"])
    if kind == "gpt":
        width = draw.choice([16, 32])
        args = {"layers": draw.choice([1, 2]), "width": width, "heads": draw.choice([1, 2, 4])}
        args["dropout"] = draw.choice([0.0, 0.0, 0.1])
        data = {"data.name": "text", "data.args": {"context": draw.choice([8, 24])}}
        return {"task.name": "language", "model.name": "gpt", "model.args": args, **data}
    if kind == "cnn":
        return {"model.name": "cnn", "model.args": {"dropout": draw.choice([0.0, 0.25])}}
    if kind == "normed":
        # BatchNorm needs two samples: no step may have fewer than twice the micro-batches.
        return {"model.name": "planted_late:normed", "data.train_limit": 400}
    if kind == "weighted":
        return {"task.name": "planted_late:Weighted"}
    if kind == "turning":
        return {"task.name": "tests.integration.engine.tasks:Turning"}
    hidden = draw.choice([[32], [64, 64], [16, 16, 16]])
    smoothing = {"train.label_smoothing": draw.choice([0.0, 0.1])}
    return {"model.args": {"hidden": hidden, "dropout": draw.choice([0.0, 0.0, 0.2])}, **smoothing}


def make_case(name: str, ranks: int, changes: Mapping[str, Any]) -> Case:
    """Return a case on CPU ranks. Raises ConfigError where the config cannot run."""
    devices = {"devices": f"cpu:{ranks}", "train.threads": 1}
    preset = "single" if ranks == 1 else "ddp-spawn"
    return make_cases(name, load_preset(preset, {**devices, **changes}))[0]


def verify(cases: Mapping[str, Case], ranks: int) -> dict[str, VerificationResult]:
    with tempfile.TemporaryDirectory() as folder:
        return verify_in_process(cases, ranks, draw_steps(STEPS), Path(folder))


def verify_random(count: int, seed: int) -> Iterator[Line]:
    """Yield results of right configs; those of one number of ranks share processes."""
    waiting: dict[int, dict[str, tuple[Case, dict[str, Any]]]] = {1: {}, 2: {}, 3: {}}
    left = count
    for number in range(seed, 1 << 30):
        ranks, changes = draw_changes(random.Random(number))
        try:
            case = make_case(str(number), ranks, changes)
        except ConfigError:
            continue  # options that cannot be combined
        waiting[ranks][str(number)] = case, changes
        left -= 1
        for size, group in waiting.items():
            if group and (left == 0 or len(group) == AT_ONCE):
                results = verify({name: case for name, (case, _) in group.items()}, size)
                for name, result in results.items():
                    yield _line(int(name), size, group[name][1], result)
                group.clear()
        if left == 0:
            return


def verify_bugs() -> Iterator[Line]:
    """Yield the result of each planted bug, on two ranks."""
    names = list(BUGS)
    for start in range(0, len(names), AT_ONCE):
        cases = {
            name: make_case(name, 2, changes_of(name)) for name in names[start : start + AT_ONCE]
        }
        for name, result in verify(cases, 2).items():
            line = _line(0, 2, changes_of(name), result)
            yield msgspec.structs.replace(line, bug=name, named=_is_named(name, result))


def _is_named(bug: str, result: VerificationResult) -> bool:
    first, expected = result.first, BUGS[bug]
    return (
        first is not None
        and first.what == expected.what
        and expected.step in (first.step, None)
        and expected.sentence in first.sentence
    )


def _line(seed: int, ranks: int, changes: dict[str, Any], result: VerificationResult) -> Line:
    today = datetime.date.today().isoformat()
    return Line(
        seed=seed,
        ranks=ranks,
        changes=changes,
        passed=result.passed,
        sentence=result.sentence,
        day=today,
    )


def write_table() -> None:
    """Write the results into the page of the docs."""
    lines = [msgspec.json.decode(text, type=Line) for text in RESULTS.read_bytes().splitlines()]
    right = [line for line in lines if not line.bug]
    rows = ["| right configs, by | runs | alarms |", "| --- | --- | --- |"]
    for label, groups in _groups(right).items():
        for name, members in groups.items():
            alarms = sum(not line.passed for line in members)
            rows.append(f"| {label} {name} | {len(members)} | {alarms} |")
    alarms = sum(not line.passed for line in right)
    rows.append(f"| **all** | **{len(right)}** | **{alarms}** |")
    rows += ["", "| planted bugs | number | named | not named |", "| --- | --- | --- | --- |"]
    latest = {line.bug: line for line in lines if line.bug}
    kinds = {"reduction": REDUCTION, "evaluation, schedule, late steps": LATE, "task": TASKS}
    for label, bugs in kinds.items():
        tried = [latest[name] for name in bugs if name in latest]
        missed = ", ".join(line.bug for line in tried if not line.named) or "none"
        rows.append(f"| {label} | {len(tried)} | {sum(line.named for line in tried)} | {missed} |")
    days = sorted({line.day for line in lines})
    rows += ["", f"Measured on {' to '.join(dict.fromkeys((days[0], days[-1])))}."]
    page = PAGE.read_text()
    head, _, rest = page.partition(BEGIN)
    PAGE.write_text(head + BEGIN + "\n" + "\n".join(rows) + "\n" + END + rest.partition(END)[2])


def _groups(lines: list[Line]) -> dict[str, dict[str, list[Line]]]:
    """Return the lines by what is counted, and by its values."""
    groups: dict[str, dict[str, list[Line]]] = {}
    for line in lines:
        changes = line.changes
        network = changes.get("model.name") or changes.get("task.name", "mlp")
        values = {
            "optimizer": "of the task" if network in OWN_OPTIMIZER else changes["train.optimizer"],
            "rate": "≤ 1e-4" if changes["train.lr"] <= 1e-4 else "> 1e-4",
            "precision": changes["precision"],
            "strategy": f"{changes['strategy']}, {formatting.plural(line.ranks, 'rank')}",
            "network or task": NETWORKS.get(network, network),
            "average": _average_of(changes),
        }
        for label, value in values.items():
            groups.setdefault(label, {}).setdefault(str(value), []).append(line)
    return {label: dict(sorted(values.items())) for label, values in groups.items()}


def _average_of(changes: Mapping[str, Any]) -> str:
    if "train.ema" in changes:
        return "moving"
    return "equal" if "train.swa_share" in changes else "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--configs", type=int, default=0, help="number of right configs")
    parser.add_argument("--seed", type=int, help="seed of the first (default: after the last)")
    parser.add_argument("--bugs", action="store_true", help="plant each bug once")
    parser.add_argument("--table", action="store_true", help="write docs/numbers.md")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as project:
        for name in ("planted.py", "planted_late.py"):
            shutil.copy(PLANTED / name, project)
        paths = (project, str(ROOT / "src"), str(ROOT))
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        sys.path.insert(0, project)
        make_importable(user_folders(None))
        known = RESULTS.read_bytes().splitlines() if RESULTS.exists() else []
        seeds = [msgspec.json.decode(text, type=Line).seed for text in known]
        seed = max(seeds, default=-1) + 1 if arguments.seed is None else arguments.seed
        series = [verify_random(arguments.configs, seed)] if arguments.configs else []
        series += [verify_bugs()] if arguments.bugs else []
        for lines in series:
            for line in lines:
                with RESULTS.open("ab") as file:
                    file.write(msgspec.json.encode(line) + b"\n")
                is_right = line.named if line.bug else line.passed
                counts["right" if is_right else "wrong"] += 1
                if not is_right:
                    print(line.bug or line.seed, line.changes, line.sentence or "passed")
    if counts:
        print(f"{counts['right']} as they must be, {counts['wrong']} not")
    if arguments.table:
        write_table()
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
