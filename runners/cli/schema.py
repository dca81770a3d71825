"""`schema`: the JSON Schema of a preset."""

from __future__ import annotations

from argparse import Namespace

from distrain.runners.cli.terminal import print_json
from distrain.runners.config.schema import json_schema


def execute(_: Namespace) -> int:
    print_json(json_schema())
    return 0
