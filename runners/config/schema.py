"""RunConfig: everything that decides a run, validated once, round-trips through TOML.

It holds intent only (global batch, total loader workers). What follows from it on given devices is
in the plan.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, time
from typing import Annotated, Any

import msgspec
import tomli_w
from msgspec import Meta

from distrain.runners.config.sections import (
    CheckpointConfig,
    DataConfig,
    DdpConfig,
    DistConfig,
    EvalConfig,
    HorovodConfig,
    Launcher,
    ModelConfig,
    PrecisionName,
    ReportConfig,
    SlurmConfig,
    StrategyName,
    TaskConfig,
    TrainConfig,
)
from distrain.runners.config.validation import Devices, Section, build
from distrain.runners.errors import ConfigError


class RunConfig(Section, frozen=True):
    """Everything that decides a run, as a person writes it."""

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

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> RunConfig:
        """Validate plain data; raises ConfigError with every problem and its key."""
        problems: list[tuple[str, str]] = []
        config = build(cls, data, "", problems)
        if problems:
            raise ConfigError(problems)
        assert isinstance(config, RunConfig)
        return config

    @classmethod
    def from_toml(cls, text: str) -> RunConfig:
        """Parse and validate TOML; raises ConfigError."""
        try:
            data = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"this is not TOML: {error}") from None
        except RecursionError:
            raise ConfigError("this is not a preset: it is nested too deeply") from None
        except ValueError as error:  # numbers of thousands of digits
            raise ConfigError(f"this is not a preset: {error}") from None
        return cls.from_dict(data)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data without unset (None) fields; `from_dict` gives the same config."""
        data: dict[str, Any] = _without_none(msgspec.to_builtins(self))
        return data

    def to_toml(self, whole: bool = True) -> str:
        """Return TOML; without `whole` only what differs from the defaults."""
        data = self.to_dict()
        return tomli_w.dumps(data if whole else _without_defaults(data, RunConfig().to_dict()))

    def with_changes(self, changes: dict[str, Any]) -> RunConfig:
        """Return a copy with dotted keys set, e.g. {"train.lr": 0.05}; None unsets a key.

        Raises ConfigError.
        """
        data = self.to_dict()
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
                table[last] = value
        if problems:
            raise ConfigError(problems)
        return RunConfig.from_dict(_without_none(data))


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a preset, for editors."""
    schema = msgspec.json.schema(RunConfig)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def parse_assignment(text: str) -> tuple[str, Any]:
    """Parse `KEY=VALUE` of --set: VALUE is TOML if it parses, else a string; `KEY=` unsets.

    Raises ConfigError if there is no "=".
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set takes KEY=VALUE, e.g. --set train.lr=0.05, not {text!r}")
    if not value.strip():
        return key.strip(), None
    try:
        parsed = tomllib.loads(f"value = {value}")["value"]
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
    a = flatten(first.to_dict())
    b = flatten(second.to_dict())
    keys = sorted((a | b).keys() - {"code_dir"})
    return {key: (a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)}


def flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested tables as one table with dotted keys."""
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


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
