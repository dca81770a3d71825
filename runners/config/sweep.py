"""Sweeps: the values of some keys, and the config of each combination of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from distrain.runners import formatting
from distrain.runners.config.command_line import format_assigned
from distrain.runners.config.schema import RunConfig, parse_assignment
from distrain.runners.config.toml import flatten
from distrain.runners.errors import ConfigError

MOST_RUNS = 100  # of a sweep: each has a process that waits in the queue
LONGEST_VALUE = 32  # characters of a value in the name of a run
EXAMPLE = "--sweep train.lr=0.1,0.05"
# A value: text without commas, where quotes and brackets keep theirs.
_OPENING = {"[": "]", "{": "}"}


class Axis(NamedTuple):
    """A key of the config, or an option of a script such as `--lr`, with the values that it takes.

    `texts` are the values as a person writes them; they name the runs.
    """

    key: str
    values: tuple[Any, ...]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, key: str, values: Iterable[Any]) -> Axis:
        """Return the axis of values as Python has them. Raises ConfigError."""
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise ConfigError([(key, f"a sweep takes a list of values, not {values!r}")])
        found = tuple(values)
        return check_axis(cls(key, found, tuple(format_assigned(key, each) for each in found)))

    @property
    def is_argument(self) -> bool:
        """Whether it is an option of the user's script."""
        return self.key.startswith("-")

    @property
    def assignment(self) -> str:
        """Return the argument of `--sweep`."""
        return f"{self.key}={','.join(self.texts)}"


class SweepRun(NamedTuple):
    """One run of a sweep, named by its values: "lr-0.1"."""

    name: str
    config: RunConfig


def parse_axis(text: str) -> Axis:
    """Parse `KEY=VALUE,VALUE…` of --sweep; each VALUE is as in `parse_assignment`.

    Commas in brackets or quotes belong to a value. Raises ConfigError.
    """
    key, equals, listed = text.partition("=")
    key = key.strip()
    if not equals or not key.strip("-"):
        raise ConfigError(f"--sweep takes KEY=VALUE,VALUE, e.g. {EXAMPLE}, not {text!r}")
    texts = [each.strip() for each in split_values(listed)]
    values = [parse_assignment(f"{key}={each}")[1] for each in texts]
    if key.startswith("-"):  # a script gets the text as it was typed, but for its quotes
        is_quoted = [each[:1] in ("'", '"') for each in texts]
        values = [
            value if quoted else each
            for value, quoted, each in zip(values, is_quoted, texts, strict=True)
        ]
    return check_axis(Axis(key, tuple(values), tuple(texts)))


def split_values(text: str) -> list[str]:
    """Split text at the commas that are neither in brackets nor in quotes."""
    parts = [""]
    closing: list[str] = []  # of the open brackets and quotes
    for character in text:
        if closing and character == closing[-1]:
            closing.pop()
        elif closing and closing[-1] in "'\"":
            pass
        elif character in _OPENING or character in "'\"":
            closing.append(_OPENING.get(character, character))
        elif character == "," and not closing:
            parts.append("")
            continue
        parts[-1] += character
    return parts


def check_axis(axis: Axis) -> Axis:
    """Return the axis. Raises ConfigError if it has too few or too many values, or one twice."""
    if len(axis.values) > MOST_RUNS:  # first: the app checks a long list after each key
        raise ConfigError([(axis.key, _too_many(len(axis.values)))])
    problem = ""
    repeated = [text for n, text in enumerate(axis.texts) if axis.values[n] in axis.values[:n]]
    if "" in axis.texts:
        problem = "a value of the sweep is empty"
    elif axis.key == "devices" and not all(_names_devices(value) for value in axis.values):
        problem = (
            f"{','.join(axis.texts)} may mean one run on several GPUs or several runs: write "
            "[0],[1] for runs on one GPU each"
        )
    elif len(axis.values) < 2:
        only = f"only {axis.texts[0]}" if axis.texts else "none"
        problem = f"a sweep takes several values, separated by commas, not {only}"
    elif repeated:
        problem = f"{repeated[0]} is in the sweep twice"
    if problem:
        raise ConfigError([(axis.key, problem)])
    return axis


def _names_devices(value: Any) -> bool:
    return isinstance(value, list) or value in ("auto", "all") or str(value).startswith("cpu")


def combine(
    config: RunConfig, axes: Sequence[Axis], check: Callable[[RunConfig], object]
) -> list[SweepRun]:
    """Return a run for each combination of values, the last axis varying fastest.

    `check` raises ConfigError for a config that cannot run. Raises ConfigError with the problems
    of all runs; where not all have a problem, it names those that do.
    """
    if problems := _axis_problems(config, axes):
        raise ConfigError(problems)
    runs = []
    names = []
    found: dict[tuple[str, str], list[str]] = {}
    for indices in product(*(range(len(axis.values)) for axis in axes)):
        name = _run_name(axes, indices)
        names.append(name)
        values = {axis.key: axis.values[n] for axis, n in zip(axes, indices, strict=True)}
        try:
            run = SweepRun(name, _with_values(config, values))
            check(run.config)
            runs.append(run)
        except ConfigError as error:
            for problem in error.problems:
                found.setdefault(problem, []).append(name)
    if found:
        raise ConfigError(
            (key, text if len(where) == len(names) else f"{text} (in {', '.join(where)})")
            for (key, text), where in found.items()
        )
    return runs


def _axis_problems(config: RunConfig, axes: Sequence[Axis]) -> list[tuple[str, str]]:
    keys = [axis.key for axis in axes]
    problems = [
        (key, "is swept twice; write all its values into one --sweep")
        for key in dict.fromkeys(keys)
        if keys.count(key) > 1
    ]
    for axis in axes:
        is_known = axis.key.partition(".")[0] in RunConfig.__struct_fields__
        if axis.is_argument and not config.is_script:
            text = f"only a script has arguments; a preset has keys: {EXAMPLE}"
            problems.append((axis.key, text))
        elif config.is_script and not axis.is_argument and not is_known:
            text = f"is no key of a run; --sweep --{axis.key}=… passes it to the script"
            problems.append((axis.key, text))
    count = prod(len(axis.values) for axis in axes)
    if count > MOST_RUNS:
        problems.append(("", _too_many(count)))
    return problems


def _too_many(runs: int) -> str:
    return f"the sweep has {runs:,} runs; the most are {MOST_RUNS}"


def _with_values(config: RunConfig, values: Mapping[str, Any]) -> RunConfig:
    """Return the config with these keys, and with options after the arguments of a script."""
    arguments = [f"{key}={value}" for key, value in values.items() if key.startswith("-")]
    changes = {key: value for key, value in values.items() if not key.startswith("-")}
    if arguments:
        given = changes.get("script.args", config.script.args)
        changes["script.args"] = [*given, *arguments]
    return config.with_changes(changes)


def _run_name(axes: Sequence[Axis], indices: Sequence[int]) -> str:
    """Return "lr-0.1,batch_size-64": the last part of each key, the whole of equal ones."""
    short = [axis.key.strip("-").rpartition(".")[2] for axis in axes]
    parts = []
    for axis, name, n in zip(axes, short, indices, strict=True):
        value = axis.values[n] if isinstance(axis.values[n], str) else axis.texts[n]
        word = formatting.single_line(value)[:LONGEST_VALUE]
        parts.append(f"{axis.key if short.count(name) > 1 else name}-{word}")
    return ",".join(parts)


def varying_settings(configs: Sequence[RunConfig]) -> dict[str, list[str]]:
    """Return the keys in which configs differ with the value of each, as printable text.

    Of the arguments of a script, only the words that are not in all of them.
    """
    flat = [flatten(config.to_dict()) for config in configs]
    keys = sorted({key for each in flat for key in each} - {"code_dir"})
    found = {}
    for key in keys:
        values = [each.get(key) for each in flat]
        if any(value != values[0] for value in values):
            if key == "script.args":
                common = set(values[0] or ()).intersection(*(value or () for value in values))
                values = [" ".join(w for w in value or () if w not in common) for value in values]
            found[key] = [formatting.printable(format_assigned(key, value)) for value in values]
    return found
