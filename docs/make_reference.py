"""Write the tables of docs/*.md between their markers: `python docs/make_reference.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from textual.keys import format_key

from distrain.runners.config.plan import describe_setup
from distrain.runners.config.presets import BUILT_IN, load_preset
from distrain.runners.config.schema import json_schema
from distrain.tui.keymap import TITLES, group_by_title

PAGES = [Path(__file__).with_name(name) for name in ("presets.md", "app.md")]
FAR = 1_000_000  # limits that nobody comes near are left out
LIMITS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def tables() -> dict[str, str]:
    """Return the text of each marked section."""
    return {"presets": built_in_presets(), "keys": every_key(), "keymap": keymap()}


def keymap() -> str:
    """Return tables of every key of the app, by scope, with the ids for remapping."""
    parts = []
    for title, keys in group_by_title(TITLES).items():
        rows = [[f"`{written(key.keys)}`", key.label, key.help, f"`{key.id}`"] for key in keys]
        parts += [f"### {title}", table(["key", "action", "meaning", "id"], rows)]
    return "\n\n".join(parts)


def written(keys: str) -> str:
    """Return Textual's key names as they are printed on a keyboard."""
    return " ".join(format_key(key) for key in keys.split(","))


def built_in_presets() -> str:
    rows = []
    for path in sorted(BUILT_IN.glob("*.toml")):
        config = load_preset(path)
        setup = " · ".join(describe_setup(config, None))
        rows.append([f"`{path.stem}`", setup, config.workload, config.description])
    return table(["preset", "strategy · launcher · precision", "trains", "description"], rows)


def every_key() -> str:
    sections = json_schema()["$defs"]
    top = sections["RunConfig"]["properties"]
    plain = {key: about for key, about in top.items() if "$ref" not in about}
    parts = ["### At the top", keys(plain)]
    for name, about in top.items():
        if "$ref" in about:
            section = sections[about["$ref"].rpartition("/")[2]]
            parts += [f"### `[{name}]`", keys(section["properties"])]
    return "\n\n".join(parts)


def keys(properties: dict[str, Any]) -> str:
    rows = [
        [f"`{key}`", kind(about), default(about["default"]), about.get("description", "")]
        for key, about in properties.items()
    ]
    return table(["key", "takes", "default", "meaning"], rows)


def kind(about: dict[str, Any]) -> str:
    """Return the type and range of a key."""
    if "enum" in about:
        return ", ".join(f"`{choice}`" for choice in about["enum"])
    if "examples" in about:
        known = ", ".join(f"`{choice}`" for choice in about["examples"])
        return f"{known}, or `package.module:Class`"
    if "anyOf" in about:
        return " or ".join(kind(each) for each in about["anyOf"] if each != {"type": "null"})
    words = {"integer": "whole number", "string": "text", "boolean": "`true`, `false`"}
    word = words | {"number": "number", "object": "table", "array": "list"}
    limits = [
        f"{sign} {about[name]:,}"
        for name, sign in LIMITS.items()
        if abs(about.get(name, FAR)) < FAR
    ]
    return " ".join([word[about["type"]], " and ".join(limits)]).strip()


def default(value: Any) -> str:
    return "unset" if value is None else f"`{json.dumps(value)}`"


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def filled(page: str) -> str:
    """Return the page with the sections between markers regenerated."""
    for name, text in tables().items():
        begin, end = f"<!-- {name}: made by make_reference.py -->", f"<!-- end of {name} -->"
        head, there, rest = page.partition(begin)
        if there:
            page = f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(filled(path.read_text()))
