"""The head of a bench: what it is, how far, what it does now."""

from __future__ import annotations

from rich.text import Text

from runners import words
from runners.bench import Definition
from runners.bench.wording import rounds, to_go
from tui.data.benches import Look
from tui.widgets.inks import STATUSES
from tui.widgets.text_pane import TextLines

UNEQUAL = "UNEQUAL comparison"


class BenchHeader(TextLines):
    """Three lines; `show` gives it a moment of the bench."""

    DEFAULT_CSS = """
    BenchHeader { height: 3; padding: 0 1; }
    """

    def show(self, look: Look, definition: Definition, hint: str = "") -> None:
        self.put(head(look, definition, self.size.width - 2, hint))


def head(look: Look, definition: Definition, width: int, hint: str = "") -> list[Text]:
    """What it is; how far; what is under way, or why there is no more."""
    lines = [_what(look), _progress(look, definition, width), _now(look)]
    if hint and lines[0].cell_len + 2 + len(hint) <= width:
        lines[0].append(hint.rjust(width - lines[0].cell_len), "dim")
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return lines


def _what(look: Look) -> Text:
    state = look.state
    dot, colour = STATUSES[state.status]
    line = Text.assemble((f"{dot} {state.status}", f"bold {colour}"), "  ", no_wrap=True)
    if look.comparison.unequal:
        line.append(UNEQUAL, "bold yellow").append("  ")
    line.append(look.comparison.title, "bold")
    if look.comparison.title != state.bench_id:
        line.append(f"  {state.bench_id}")
    return line.append(f"  bench of {words.things(len(look.comparison.contestants), 'contestant')}")


def _progress(look: Look, definition: Definition, width: int) -> Text:
    """Rounds that are done, of those that there will be at most."""
    state, rules = look.state, definition.rules
    done = f"{words.things(state.rounds, 'round')} of {rounds(rules, '–')} "
    left = f" {to_go(look.left)}" if look.left else f" took {words.duration(_took(look))}"
    room = max(min(width - len(done) - len(left), 60), 0)
    filled = round(room * min(state.rounds / rules.repeats, 1))
    line = Text(done, no_wrap=True).append("━" * filled, STATUSES[state.status][1])
    return line.append("─" * (room - filled), "dim").append(left)


def _took(look: Look) -> float:
    return sum(each.took for each in look.state.measurements)


def _now(look: Look) -> Text:
    state, now = look.state, look.state.now
    if not state.live or now is None:
        reason = words.line(state.reason or state.status)
        return Text(reason, "red" if state.status == "failed" else "dim", no_wrap=True)
    since = words.age(now.began, look.time)
    line = Text(f"round {now.round}, run {now.run} of {len(now.order)}: ", no_wrap=True)
    line.append(now.contestant, "bold")
    return line.append(f" since {since}" if now.run_id else " is being launched")
