"""Target `presets`: the text of a preset or of a bench.toml, up to the plans that follow from it.

The result is a config, or a ConfigError whose text is printable. What loads is the same again after
it was written as TOML.
"""

from __future__ import annotations

import json
import re
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, get_type_hints

import tomli_w

from distrain.runners import formatting
from distrain.runners.bench.definition import Definition
from distrain.runners.cli.error_text import format_error
from distrain.runners.config.plan import describe_setup
from distrain.runners.config.planning import make_plan
from distrain.runners.config.presets import BUILT_IN, find
from distrain.runners.config.schema import RunConfig, differences
from distrain.runners.config.validation import choices_of
from distrain.runners.errors import ConfigError
from distrain.runners.system.devices import Device, Gpus
from distrain.runners.system.host import Host
from distrain.runners.system.network import Interfaces
from tests.fuzz.mutations import changed, hostile_value, paths_in

MAX_LENGTH = 8192
MUTATES_BYTES = True
GPUS = [Device(kind="cuda", index=index, uuid=f"GPU-{index}a", name="A") for index in range(2)]
NO_INTERFACES: Interfaces = {}
HOSTS = [
    Host(cores=8, environment={}, gpus=Gpus([], "no driver"), interfaces=NO_INTERFACES),
    Host(cores=8, environment={}, gpus=Gpus(GPUS), interfaces=NO_INTERFACES),
    Host(
        cores=2,
        environment={"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "CUDA_VISIBLE_DEVICES": "0"},
        gpus=Gpus(GPUS),
        interfaces=NO_INTERFACES,
    ),
]
_folder = Path(tempfile.mkdtemp(prefix="distrain-fuzz-"))


def prepare() -> None: ...


def close() -> None:
    for path in _folder.iterdir():
        path.unlink()
    _folder.rmdir()


def check(data: bytes) -> None:
    path = _folder / "fuzzed.toml"
    path.write_bytes(data)
    try:
        config, _ = find(path)
    except ConfigError as error:
        _require_printable(error)
    else:
        _check_config(config)
    try:
        definition = Definition.from_toml(data.decode())
    except UnicodeDecodeError:
        return
    except ConfigError as error:
        _require_printable(error)
    else:
        _require_same(Definition.from_toml(definition.to_toml()), definition)


def _check_config(config: RunConfig) -> None:
    _require_same(RunConfig.from_toml(config.to_toml()), config)
    _require_same(RunConfig.from_toml(config.to_toml(whole=False)), config)
    _require_same(RunConfig.from_dict(config.to_dict()), config)
    _require_same(config.with_changes({}), config)
    differences(RunConfig(), config)
    for host in HOSTS:
        try:
            describe_setup(config, make_plan(config, host))
        except ConfigError as error:
            _require_printable(error)


def _require_same(found: object, expected: object) -> None:
    # As text, because 1 and true are equal, and NaN is not. The sign of a zero that is a default
    # may change.
    assert _text(found) == _text(expected), "TOML changes it"


def _text(value: object) -> str:
    return re.sub(r"-0\.0\b", "0.0", repr(value))


def _require_printable(error: ConfigError) -> None:
    text = format_error(error)
    assert not formatting.has_control_characters(text.replace("\n", "").replace("\t", "")), text
    assert text.strip() != "distrain:", "an error without a text"


# --- inputs ---------------------------------------------------------------------------------------


def _fields(kind: Any, prefix: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if hasattr(hint, "__struct_fields__"):
            found |= _fields(hint, (*prefix, name))
        else:
            found[(*prefix, name)] = hint
    return found


FIELDS = _fields(RunConfig)
DICTIONARY = sorted(
    {f"{path[-1]} = " for path in FIELDS}
    | {f"[{path[0]}]" for path in FIELDS if len(path) > 1}
    | {f'"{choice}"' for hint in FIELDS.values() for choice in choices_of(hint)}
    | {"[candidates.a]", "[bench]", "[target]", "1979-05-27T07:32:00Z", "07:32:00", "1979-05-27"}
    | {"inf", "nan", "0x10", '"""', "'''", "cpu:2", "{ a = 1 }", "[[", "]]"}
)
SCRIPT = '[script]\npath = "train.py"\nargs = ["--lr", "1"]\nenv = { A = "b" }\n'
BENCH = """[bench]
repeats = 4
[target]
metric = "top1"
value = 1.0
[candidates.a]
[candidates.b]
"""
DATES = """[model]
name = "a:b"
args = { d = 1979-05-27, t = 07:32:00, l = [1979-05-27T07:32:00, 1979-05-27T07:32:00.5+01:00] }
"""


def seeds() -> Sequence[bytes]:
    presets = [path.read_bytes() for path in sorted(BUILT_IN.glob("*.toml"))]
    whole = RunConfig().to_toml()
    return [*presets, *(text.encode() for text in (whole, SCRIPT, BENCH, DATES))]


def mutate(data: bytes, random: Random) -> bytes:
    """Return the text with a key that is set, changed or removed."""
    try:
        values = tomllib.loads(data.decode())
        json.dumps(values)  # without dates
    except (ValueError, RecursionError, TypeError):
        return random.choice(SEEDS)
    chance = random.random()
    if chance < 0.5 or not paths_in(values):
        for _ in range(random.choice((1, 1, 2, 5))):
            path, hint = random.choice(PAIRS)
            _set(_table(values, random), path, _value(hint, random))
    else:
        values = changed(values, random)
    try:
        return tomli_w.dumps(values).encode()
    except (TypeError, AttributeError, ValueError, RecursionError):  # TOML has no null
        return data


def _table(values: dict[str, Any], random: Random) -> dict[str, Any]:
    """Return the table of a candidate where there is one, else the outermost."""
    candidates = values.get("candidates")
    if isinstance(candidates, dict) and candidates:
        chosen = candidates[random.choice([*candidates])]
        return chosen if isinstance(chosen, dict) else values
    return values


def _value(hint: Any, random: Random) -> Any:
    """Return a value that the field accepts, about every second time."""
    choices = choices_of(hint)
    if choices and random.random() < 0.7:
        return random.choice(choices)
    if random.random() < 0.5:
        return random.choice((1, 2, 4, 0.5, True, False, "cpu:2", "0", "a.b:c", [0, 1], ["x"]))
    return hostile_value(random)


def _set(table: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    *parents, key = path
    for name in parents:
        inner = table.setdefault(name, {})
        if not isinstance(inner, dict):
            return
        table = inner
    table[key] = value


PAIRS = [*FIELDS.items()]
SEEDS = seeds()
