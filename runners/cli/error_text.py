"""The text of an error on stderr."""

from __future__ import annotations

from distrain.runners.errors import ConfigError, DistrainError


def format_error(error: DistrainError) -> str:
    """Return one sentence, or a heading and one line per problem with its config key."""
    problems = error.problems if isinstance(error, ConfigError) else [("", str(error))]
    if len(problems) == 1:
        return f"distrain: {_format_problem(*problems[0])}"
    heading = "this configuration cannot run:"
    first_key, first_text = problems[0]
    if not first_key:
        heading = first_text
        problems = problems[1:]
    lines = [f"  {_format_problem(key, text)}" for key, text in problems]
    return "\n".join([f"distrain: {heading}", *lines])


def _format_problem(key: str, text: str) -> str:
    return f"{key}: {text}" if key else text
