"""What a bench measures: candidates, rounds and rules.

A definition is stored as TOML with complete configs, so that it can be run again when presets have
changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
import tomli_w
from msgspec import Meta

from distrain.models.errors import nearest
from distrain.runners import formatting
from distrain.runners.analysis.comparison.fairness import Reported, Settings, compare_candidates
from distrain.runners.analysis.comparison.model import Difference
from distrain.runners.analysis.comparison.sentences import format_setting
from distrain.runners.analysis.interval import MIN_MEASUREMENTS, MOST
from distrain.runners.checks import check
from distrain.runners.config import toml
from distrain.runners.config.field_types import Name
from distrain.runners.config.plan import Plan, require_one_host
from distrain.runners.config.schema import RunConfig
from distrain.runners.config.validation import Section, build, shown
from distrain.runners.errors import ConfigError
from distrain.runners.protocol.events import Facts

TABLES = ("bench", "target", "candidates")
OLD_CANDIDATES_TABLE = "contestants"  # in files of older versions


class Target(Section, frozen=True):
    """The evaluation result that runs train to, instead of for a fixed time."""

    metric: Annotated[Name, Meta(min_length=1, description="Name of the metric, e.g. top1.")]
    value: Annotated[
        float,
        Meta(
            ge=-MOST,
            le=MOST,
            description="Reached at or above this value; for a loss or perplexity, and where "
            "best_is of checkpoint or task is min, at or below it.",
        ),
    ]

    def __str__(self) -> str:
        """Return the target as it is printed: "top1 95.00 %"."""
        return formatting.metric(self.metric, self.value)

    def is_reached_by(self, value: float | None, facts: Facts | None) -> bool:
        """Return whether this value is as good as the target, of a run with these facts."""
        if value is None:
            return False
        given = facts.best_is if facts and facts.best == self.metric else None
        is_least_best = (given or formatting.best_is(self.metric)) == "min"
        return value <= self.value if is_least_best else value >= self.value


class Rules(Section, frozen=True):
    """The table [bench] of the file."""

    repeats: Annotated[int, Meta(ge=2, le=1000, description="Maximum number of rounds.")] = 20
    seconds: Annotated[
        float, Meta(gt=0, le=86_400, description="Time measured in each run after its warm-up.")
    ] = 5.0
    steps: Annotated[
        Annotated[int, Meta(ge=1)] | None,
        Meta(description="Steps measured in each run after its warm-up, in place of the time."),
    ] = None
    precision: Annotated[
        float,
        Meta(
            gt=0, lt=1, description="Rounds end once every ratio is known within ± this fraction."
        ),
    ] = 0.02
    baseline: Annotated[
        str, Meta(description="Candidate that the others are compared to; empty for the first.")
    ] = ""
    unequal: Annotated[bool, Meta(description="Allow candidates with unequal settings.")] = False
    seed: Annotated[int, Meta(ge=0, description="Seed of the order in each round.")] = 0

    @property
    def min_rounds(self) -> int:
        """The number of rounds from which intervals are meaningful."""
        return min(MIN_MEASUREMENTS, self.repeats)


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """What a bench measures. `configs` are ordered as given, by the names of the candidates."""

    rules: Rules
    configs: dict[str, RunConfig]
    target: Target | None = None

    @property
    def baseline(self) -> str:
        return self.rules.baseline or next(iter(self.configs))

    @property
    def has_scripts(self) -> bool:
        return any(config.is_script for config in self.configs.values())

    def settings(
        self, plans: Mapping[str, Plan], reported: Mapping[str, Reported] | None = None
    ) -> Settings:
        """Return how the settings of the candidates compare.

        `reported` is known of the candidates that have been measured.
        """
        settings = compare_candidates(
            list(self.configs.values()),
            [plans[name] for name in self.configs],
            [(reported or {}).get(name) for name in self.configs],
            evaluated=self.target is not None,
        )
        names = list(self.configs)
        differences = [
            each
            for each in settings.differences
            if each.key != "script" or each.values != names  # the names say it
        ]
        return settings._replace(differences=differences)

    def forbidden(self, settings: Settings) -> list[tuple[str, str]]:
        """Return the keys and values that are unequal, unless the rules allow it."""
        if self.rules.unequal:
            return []
        unfair = [difference for difference in settings.differences if not difference.fair]
        return [(each.key, _format_values(each, list(self.configs))) for each in unfair]

    def with_changes(self, changes: dict[str, Any]) -> Definition:
        """Return a copy with dotted keys of every config changed. Raises ConfigError."""
        configs = {name: config.with_changes(changes) for name, config in self.configs.items()}
        return msgspec.structs.replace(self, configs=configs)

    def to_toml(self) -> str:
        rules = msgspec.to_builtins(self.rules)
        data: dict[str, Any] = {
            "bench": {key: value for key, value in rules.items() if value is not None}
        }
        if self.target:
            data["target"] = msgspec.to_builtins(self.target)
        data["candidates"] = {name: config.to_dict() for name, config in self.configs.items()}
        return tomli_w.dumps(data)

    @classmethod
    def from_toml(cls, text: str) -> Definition:
        """Return the definition in a bench.toml. Raises ConfigError with every problem."""
        try:
            data = toml.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigError(f"this is not TOML: {error}") from None
        problems = [
            (table, f"unknown table{nearest(table, TABLES)}")
            for table in data
            if table not in (*TABLES, OLD_CANDIDATES_TABLE)
        ]
        rules = build(Rules, _read_table(data, "bench"), "bench.", problems)
        target = None
        if "target" in data:
            target = build(Target, data["target"], "target.", problems)
        configs = {}
        for table in (OLD_CANDIDATES_TABLE, "candidates"):
            for name, values in _read_table(data, table).items():
                configs[name] = RunConfig.read(values, f"{table}.{name}.", problems)
        if problems:
            raise ConfigError(problems)
        return make(configs, msgspec.structs.asdict(rules), target)  # type: ignore[arg-type]


def make(
    configs: dict[str, RunConfig], rules: dict[str, Any], target: Target | None = None
) -> Definition:
    """Return a definition of these candidates.

    `configs` are by the names of the candidates; `rules` are keys of `Rules` with their values.
    Raises ConfigError with every problem.
    """
    problems: list[tuple[str, str]] = []
    checked_rules = build(Rules, rules, "bench.", problems)
    if not configs:
        problems.append(("candidates", "none given; name the presets to compare"))
    problems += [
        ("candidates", f"a name must be printable text, not {name!r}")
        for name in filter(formatting.has_control_characters, configs)
    ]
    baseline = rules.get("baseline")
    if baseline and baseline not in configs:
        text = f"{baseline!r} is not a candidate{nearest(baseline, configs)}"
        problems.append(("bench.baseline", text))
    if target is not None:
        build(Target, msgspec.structs.asdict(target), "target.", problems)
    if problems:
        raise ConfigError(problems)
    assert isinstance(checked_rules, Rules)
    return Definition(rules=checked_rules, configs=configs, target=target)


def plans(definition: Definition, cwd: str | None = None) -> dict[str, Plan]:
    """Return the plan of each candidate.

    `cwd` is the folder that relative paths in the configs start from. Raises ConfigError if a
    candidate cannot run here, or if settings are unequal and the rules do not allow it.
    """
    found: dict[str, Plan] = {}
    problems: list[tuple[str, str]] = []
    target = definition.target
    # A task of the user's own may have it in percent.
    has_own_task = any(":" in each.task.name for each in definition.configs.values())
    if target and formatting.is_accuracy(target.metric) and target.value > 1 and not has_own_task:
        text = f"{target.metric} is at most 1; write {target.value:g}% or {target.value / 100:g}"
        problems.append(("target.value", text))
    for name, config in definition.configs.items():
        try:
            found[name] = require_one_host(check(config, cwd))
            _check_measurable(config, target)
        except ConfigError as error:
            for key, text in error.problems:
                problems.append((f"{name}: {key}" if key else name, text))
    if problems:
        raise ConfigError(problems)
    if unequal := definition.forbidden(definition.settings(found)):
        heading = "the comparison would be unequal; make it equal with --set, or use --unequal"
        raise ConfigError([("", heading), *unequal])
    return found


def _check_measurable(config: RunConfig, target: Target | None) -> None:
    """Raise ConfigError if a script cannot be measured."""
    if not config.is_script:
        return
    if not config.script.is_python:
        text = "only Python scripts report steps; name a script (.py) or a module (-m)"
        raise ConfigError([("script.path", text)])
    if target is not None:
        text = "a script evaluates when it wants, so that it cannot be trained to a target"
        raise ConfigError([("target", text)])


def _format_values(difference: Difference, names: Sequence[str]) -> str:
    pairs = zip(names, difference.values, strict=True)
    return ", ".join(f"{format_setting(value)} in {name}" for name, value in pairs)


def _read_table(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise ConfigError([(key, f"must be a table, not {shown(value)}")])
    return value
