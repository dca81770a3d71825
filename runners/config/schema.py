"""RunConfig: everything that decides a run, validated once, round-trips through TOML.

It holds intent only (global batch, total loader workers). What follows from it on given devices is
in the plan.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, datetime, time
from typing import Annotated, Any

import msgspec
import tomli_w
from msgspec import Meta

from distrain.runners import formatting
from distrain.runners.config import toml
from distrain.runners.config.field_types import (
    ONE_PROCESS,
    SCRIPT,
    Launcher,
    PrecisionName,
    StrategyName,
)
from distrain.runners.config.launch_sections import (
    DdpConfig,
    DistConfig,
    HorovodConfig,
    ReportConfig,
    ScriptConfig,
    SlurmConfig,
)
from distrain.runners.config.training_sections import (
    CheckpointConfig,
    DataConfig,
    EvalConfig,
    ModelConfig,
    TaskConfig,
    TrainConfig,
)
from distrain.runners.config.validation import Devices, Section, build, describe_unknown, shown
from distrain.runners.errors import ConfigError

# Variables that the launchers of ranks set.
LAUNCHERS_OWN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
# What only the training loop of distrain uses: a script decides all this itself.
OF_THE_LOOP = ("precision", "task", "model", "data", "train", "eval", "checkpoint", "ddp")

_DATES = (datetime, date, time)


class RunConfig(Section, frozen=True):
    """Everything that decides a run, as a person writes it.

    Where `script` names a program, the keys OF_THE_LOOP have no meaning: they are neither accepted
    nor written.
    """

    description: Annotated[str, Meta(description="One line for lists.")] = ""
    strategy: Annotated[StrategyName, Meta(description="How replicas are synchronised.")] = "ddp"
    launcher: Annotated[Launcher, Meta(description="How rank processes are started.")] = "torchrun"
    precision: Annotated[
        PrecisionName,
        Meta(
            description="Precision of the arithmetic; weights stay in fp32. auto: fp16 on CUDA, "
            "bf16 on CPU."
        ),
    ] = "fp32"
    devices: Annotated[
        Devices,
        Meta(
            description='"auto" (all GPUs, else two CPU processes), "all", "cpu:N", '
            "or a list of GPU indices or UUIDs."
        ),
    ] = "auto"
    oversubscribe: Annotated[bool, Meta(description="Allow several ranks on one GPU.")] = False
    code_dir: Annotated[
        str | None,
        Meta(description="Folder of your own modules; by default that of the preset file."),
    ] = None
    script: ScriptConfig = ScriptConfig()
    train: TrainConfig = TrainConfig()
    task: TaskConfig = TaskConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    dist: DistConfig = DistConfig()
    ddp: DdpConfig = DdpConfig()
    horovod: HorovodConfig = HorovodConfig()
    slurm: SlurmConfig = SlurmConfig()
    report: ReportConfig = ReportConfig()

    @property
    def is_script(self) -> bool:
        """Whether a program of the user's runs in place of the training loop."""
        return self.strategy == SCRIPT

    @property
    def saves_at_stop(self) -> bool:
        """Whether a run that is asked to stop writes a checkpoint: a script may or may not."""
        return not self.is_script and self.checkpoint.keep > 0

    @property
    def has_rank_wrappers(self) -> bool:
        """Whether another program starts the ranks, so that each has a launcher of its own."""
        return self.launcher == "horovodrun" and self.horovod.via != "distrain"

    @property
    def unused_keys(self) -> tuple[str, ...]:
        """The keys at the top that have no meaning in this config."""
        return OF_THE_LOOP if self.is_script else ("script",)

    @property
    def workload(self) -> str:
        """What it names: "mlp on digits", or the words of the script.

        A task may have a network and data of its own: see `RunState.workload`.
        """
        if self.is_script:
            return formatting.shell_words(self.script.words)
        return " on ".join(filter(None, self.trained))

    @property
    def trained(self) -> tuple[str, str]:
        """The names of network and data; of a user's task that sets neither, its own and none."""
        has_own = self.model == type(self.model)() and self.data.name == type(self.data)().name
        if ":" in self.task.name and has_own:
            return self.task.name, ""
        return self.model.name, self.data.name

    @property
    def is_one_process(self) -> bool:
        """Whether the run is a single process, whatever its devices."""
        return self.strategy in ONE_PROCESS or (self.is_script and self.launcher == "inline")

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """Validate plain data; raises ConfigError with every problem and its key."""
        problems: list[tuple[str, str]] = []
        config = cls.read(data, "", problems)
        if config is None:
            raise ConfigError(problems)
        return config

    @classmethod
    def read(cls, data: object, prefix: str, problems: list[tuple[str, str]]) -> RunConfig | None:
        """Return the config of a table, or None if there are problems: see `build`.

        A script without a launcher is one process, or one for each of the devices that are named.
        """
        if isinstance(data, dict) and ("script" in data or data.get("strategy") == SCRIPT):
            is_single = data.get("devices", "auto") == "auto"
            defaults = {"strategy": SCRIPT, "launcher": "inline" if is_single else "torchrun"}
            data = {**defaults, **data}
            problems += [(prefix + key, text) for key, text in _script_problems(data)]
        config = build(cls, data, prefix, problems)
        assert config is None or isinstance(config, RunConfig)
        return config

    @classmethod
    def from_toml(cls, text: str) -> RunConfig:
        """Parse and validate TOML; raises ConfigError."""
        try:
            data = toml.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"this is not TOML: {error}") from None
        except RecursionError:
            raise ConfigError("this is not a preset: it is nested too deeply") from None
        except ValueError as error:  # numbers of thousands of digits
            raise ConfigError(f"this is not a preset: {error}") from None
        return cls.from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data without unset (None) fields; `from_dict` gives the same config."""
        # TOML has dates, which arguments of a factory may be.
        data: dict[str, Any] = _without_none(msgspec.to_builtins(self, builtin_types=_DATES))
        return {key: value for key, value in data.items() if key not in self.unused_keys}

    def to_toml(self, whole: bool = True) -> str:
        """Return TOML; without `whole` only what differs from the defaults."""
        data = self.to_dict()
        if not whole:
            defaults = _without_none(msgspec.to_builtins(RunConfig()))
            if self.is_script:
                del defaults["launcher"]  # its default depends on the devices
            data = _without_defaults(data, defaults)
        return tomli_w.dumps(data)

    def with_changes(self, changes: dict[str, Any]) -> RunConfig:
        """Return a copy with dotted keys set, e.g. {"train.lr": 0.05}; None unsets a key.

        A whole section, {"train": {"lr": 0.05}}, sets the keys that it has. Raises ConfigError.
        """
        data = self.to_dict()
        if self.is_script and self.launcher == "inline" and self.devices == "auto":
            del data["launcher"]  # the default, which depends on the devices
        problems = []
        for key, value in changes.items():
            *path, last = key.split(".")
            table = data
            for index, name in enumerate(path):
                table = table.setdefault(name, {})
                if not isinstance(table, dict):
                    problems.append((key, f"{'.'.join(path[: index + 1])} is not a table"))
                    break
            else:
                before = None if path else table.get(last)
                if isinstance(before, dict) and isinstance(value, dict):
                    value = {**before, **value}
                table[last] = value
        if problems:
            raise ConfigError(problems)
        return RunConfig.from_dict(_without_none(data))


def _script_problems(data: dict[str, Any]) -> list[tuple[str, str]]:
    script = data.get("script") or {}
    if not isinstance(script, dict):
        return []  # it is reported as no table
    problems = []
    if data["strategy"] != SCRIPT:
        text = "a script wraps its model itself; leave strategy out"
        problems.append(("strategy", text))
    if bool(script.get("path")) == bool(script.get("module")):
        problems.append(("script", "name one program, by script.path or by script.module"))
    env = script.get("env")
    for name, value in env.items() if isinstance(env, dict) else ():
        if problem := _variable_problem(name, value):
            problems.append((f"script.env.{name}", problem))
    if unused := [key for key in OF_THE_LOOP if data.get(key)]:
        text = f"the script decides this itself; leave out {', '.join(unused)}"
        problems.append((unused[0], text))
    return problems


def _variable_problem(name: str, value: Any) -> str:
    """Return why a script cannot set a variable; empty if it can."""
    if not isinstance(value, str):
        return f"must be text, not {shown(value)}"
    if not name or "=" in name or "\0" in name + value:
        return "is no variable that a process can have"
    if name in LAUNCHERS_OWN or name.startswith("DISTRAIN_"):
        return "is set by the launcher"
    return ""


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a preset, for editors."""
    schema = msgspec.json.schema(RunConfig)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `KEY=VALUE` of --set: VALUE is TOML if it parses, else a string; `KEY=` unsets.

    Raises ConfigError if there is no "=", or if the key to unset is unknown.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes KEY=VALUE, e.g. --set train.lr=0.05, not {text!r}")
    if not value.strip():
        if problem := describe_unknown(RunConfig, key.strip()):
            raise ConfigError([(key.strip(), problem)])
        return key.strip(), None
    try:
        table = tomllib.loads(f"value = {value}")
        parsed = table["value"] if len(table) == 1 else value  # a line break may begin another key
        # 01:30:00 is a time of day in TOML, which no key takes.
        return key.strip(), value.strip() if isinstance(parsed, date | time) else parsed
    except tomllib.TOMLDecodeError:
        return key.strip(), value
    except (RecursionError, ValueError) as error:
        raise ConfigError(f"the value of {key.strip()} cannot be read: {error}") from None


def parse_devices(text: str) -> str | list[int | str]:
    """Parse --devices: "0,1" → [0, 1], "GPU-a,GPU-b" → a list, other text unchanged."""
    if text in ("auto", "all") or text.startswith("cpu"):
        return text
    parts = [part.strip() for part in text.split(",")]
    return [int(part) if re.fullmatch("[0-9]{1,9}", part) else part for part in parts]


def differences(first: RunConfig, second: RunConfig) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys whose values differ, each with both values (None where unset).

    `code_dir` is left out: it is where a preset lies, not what it does.
    """
    a = toml.flatten(first.to_dict())
    b = toml.flatten(second.to_dict())
    keys = sorted((a | b).keys() - {"code_dir"})
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def _without_defaults(data: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Return the nested data that differs from the defaults."""
    left: dict[str, Any] = {}
    for key, value in data.items():
        known = defaults.get(key)
        if isinstance(value, dict) and isinstance(known, dict):
            if inner := _without_defaults(value, known):
                left[key] = inner
        elif value != known:
            left[key] = value
    return left


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_none(item) for key, item in value.items() if item is not None}
    return value
