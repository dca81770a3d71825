"""What a bench is to do: contestants, rounds and what they are held to. Round-trips through TOML,
with whole configs, so that it can be run again when presets have changed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tomli_w
from msgspec import Meta

from runners import words
from runners.comparison import LEAST, Difference
from runners.comparison.fairness import settings
from runners.config import RunConfig, parse_assignment
from runners.errors import ConfigError, nearest
from runners.plan import Plan, one_of_many
from runners.presets import load_preset
from runners.runs import check
from runners.validation import Section, build

_CHANGE = re.compile(r",(?=[\w.]+=)")  # "x=a, b" is one value


class Target(Section, frozen=True):
    metric: Annotated[str, Meta(min_length=1, description="Of the evaluation, e.g. top1.")]
    value: Annotated[float, Meta(description="Reached at or beyond it; below it for a loss.")]

    def __str__(self) -> str:
        """As it is printed: "top1 95.00 %"."""
        return words.metric(self.metric, self.value)

    def reached(self, value: float | None) -> bool:
        if value is None:
            return False
        return value <= self.value if self.metric == "loss" else value >= self.value


class Rules(Section, frozen=True):
    """The table [bench] of the file."""

    repeats: Annotated[int, Meta(ge=2, le=1000, description="Rounds at most.")] = 20
    seconds: Annotated[
        float, Meta(gt=0, le=86_400, description="Measured in each run, after its warm-up.")
    ] = 5.0
    precision: Annotated[
        float, Meta(gt=0, lt=1, description="Half an interval of a ratio that is narrow enough.")
    ] = 0.02
    baseline: Annotated[str, Meta(description="What the others are compared to.")] = ""
    unequal: Annotated[bool, Meta(description="Compare what is not equal as it is.")] = False
    seed: Annotated[int, Meta(ge=0, description="Of the order of each round.")] = 0

    @property
    def least(self) -> int:
        """Rounds before intervals are believed."""
        return min(LEAST, self.repeats)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """`configs` by the contestants' names, in the order in which they were given."""

    rules: Rules
    configs: dict[str, RunConfig]
    target: Target | None = None

    @property
    def baseline(self) -> str:
        return self.rules.baseline or next(iter(self.configs))

    def settings(self, plans: Mapping[str, Plan]) -> tuple[dict[str, str], list[Difference]]:
        """What all contestants have in common, as it is printed, and what they differ in."""
        ordered = [plans[name] for name in self.configs]
        return settings([*self.configs.values()], ordered, evaluated=self.target is not None)

    def with_changes(self, changes: dict[str, Any]) -> Definition:
        """A copy with dotted keys of every config set; raises ConfigError."""
        changed = {name: config.with_changes(changes) for name, config in self.configs.items()}
        return msgspec.structs.replace(self, configs=changed)

    def to_toml(self) -> str:
        data: dict[str, Any] = {"bench": msgspec.to_builtins(self.rules)}
        if self.target:
            data["target"] = msgspec.to_builtins(self.target)
        data["contestants"] = {name: config.to_dict() for name, config in self.configs.items()}
        return tomli_w.dumps(data)

    @classmethod
    def from_toml(cls, text: str) -> Definition:
        """Raises ConfigError with every problem and its key."""
        try:
            data = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
            raise ConfigError(f"this is not TOML: {error}") from None
        tables = ("bench", "target", "contestants")
        problems = [
            (key, f"unknown table{nearest(key, tables)}") for key in data.keys() - {*tables}
        ]
        rules = build(Rules, _table(data, "bench"), "bench.", problems)
        target = build(Target, data["target"], "target.", problems) if "target" in data else None
        configs = {}
        for name, values in _table(data, "contestants").items():
            configs[name] = build(RunConfig, values, f"contestants.{name}.", problems)
        if problems:
            raise ConfigError(problems)
        return make(configs, msgspec.structs.asdict(rules), target)  # type: ignore[arg-type]


def make(
    configs: dict[str, RunConfig], rules: dict[str, Any], target: Target | None = None
) -> Definition:
    """A definition whose baseline is one of the contestants; raises ConfigError."""
    problems: list[tuple[str, str]] = []
    built = build(Rules, rules, "bench.", problems)
    if not configs:
        problems.append(("contestants", "there are none: name the presets to compare"))
    wanted = rules.get("baseline")
    if wanted and wanted not in configs:
        text = f"{wanted!r} is no contestant{nearest(wanted, configs)}"
        problems.append(("bench.baseline", text))
    if target is not None:
        build(Target, msgspec.structs.asdict(target), "target.", problems)
    if problems:
        raise ConfigError(problems)
    assert isinstance(built, Rules)
    return Definition(rules=built, configs=configs, target=target)


def contestants(names: Sequence[str], changes: dict[str, Any]) -> dict[str, RunConfig]:
    """Configs by name, of presets or files, each perhaps with keys of its own changed:
    "ddp", "./mine.toml", "ddp,precision=bf16". Raises ConfigError.
    """
    found: dict[str, RunConfig] = {}
    for text in names:
        preset, *own = _CHANGE.split(text)
        config = load_preset(preset, {**changes, **dict(map(parse_assignment, own))})
        name = ",".join([Path(preset).stem, *own])
        if name in found:
            raise ConfigError(f"{name} is there twice; a bench has each contestant once")
        found[name] = config
    return found


def plans(definition: Definition, cwd: str | None = None) -> dict[str, Plan]:
    """The plan of each contestant; raises ConfigError where one cannot run here, or where they
    are unequal and that was not asked for.
    """
    made, problems = {}, []
    for name, config in definition.configs.items():
        try:
            made[name] = one_of_many(check(config, cwd))
        except ConfigError as error:
            problems += [(f"{name}: {key}" if key else name, text) for key, text in error.problems]
    if problems:
        raise ConfigError(problems)
    _, differences = definition.settings(made)
    unfair = [each for each in differences if not each.fair]
    if unfair and not definition.rules.unequal:
        head = "the comparison would be unequal; make it equal with --set, or ask for --unequal"
        raise ConfigError([("", head), *_told(unfair, list(made))])
    return made


def _told(differences: Sequence[Difference], names: Sequence[str]) -> list[tuple[str, str]]:
    return [
        (
            each.key,
            ", ".join(f"{value} in {name}" for name, value in zip(names, each.values, strict=True)),
        )
        for each in differences
    ]


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError([(key, f"must be a table, not {value!r}")])
    return value
