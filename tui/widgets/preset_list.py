"""The list of presets: what each is, whose it is, and which files cannot be used."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from runners import words
from runners.presets import Preset
from tui import keymap


class PresetList(OptionList):
    """`show` gives it the presets; it says which is chosen or launched."""

    HELP = (
        "Named configurations. Enter launches the one under the cursor; → goes into its fields. ◆ "
        "marks your own, • what you have changed and not saved, ✘ a file that cannot be used. "
        "{launch.mark} marks several (✓), and {launch.bench} measures them beside each other."
    )
    DEFAULT_CSS = """
    PresetList {
        border: round $foreground 30%;
        border-title-color: $text-muted; border-subtitle-color: $text-muted;
        background: transparent; background-tint: transparent;
        padding: 0 1; height: 1fr; min-width: 8; scrollbar-size-vertical: 1;
        &:focus {
            border: round $accent; border-title-color: $text; background-tint: transparent;
        }
        & > .option-list--option { padding: 0; }
    }
    """
    BINDINGS = [  # noqa: RUF012
        keymap.hidden("enter", "launch"),
        keymap.hidden("k", "cursor_up"),
        keymap.hidden("j", "cursor_down"),
    ]

    class Launched(Message):
        """The preset under the cursor is to be launched."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = "presets"
        self._presets: Sequence[Preset] = ()
        self._changed: Collection[str] = ()
        self._marked: Collection[str] = ()
        self._asked = ""
        self._short = False

    @property
    def name_now(self) -> str:
        """The preset under the cursor, or nothing."""
        index = self.highlighted
        return self._presets[index].name if index is not None and self._presets else ""

    def mark(self, names: Collection[str]) -> None:
        """Show which are marked."""
        self._marked = frozenset(names)
        self._write()

    def show(self, presets: Sequence[Preset], changed: Collection[str], now: str) -> None:
        """All presets, the names of those with unsaved changes, and the one to stand on."""
        names = [preset.name for preset in presets]
        same = names == [preset.name for preset in self._presets]
        self._presets, self._changed = list(presets), changed
        if same and self.option_count:
            self._write()
        else:
            self._fill()
            self._asked = ""
        # The cursor may have moved on since: whoever asks for the same again does not know yet.
        if now in names and now != self._asked and self.highlighted != names.index(now):
            self.highlighted = names.index(now)
        self._asked = now

    def _fill(self) -> None:
        self.clear_options()
        self.add_options(Option(self._text(preset), id=preset.name) for preset in self._presets)

    def _write(self) -> None:
        for index, preset in enumerate(self._presets):
            self.replace_option_prompt_at_index(index, self._text(preset))

    def _text(self, preset: Preset) -> Text:
        room = max(self.scrollable_content_region.width, 20)
        signs = ("✓ " * (preset.name in self._marked)) + ("• " * (preset.name in self._changed))
        return in_a_line(preset, signs, room) if self._short else entry(preset, signs, room)

    def on_resize(self) -> None:
        self._short = self.screen.has_class("-narrow")
        self._write()
        if self.highlighted is not None:
            self.scroll_to_highlight()

    def on_focus(self) -> None:
        self.border_subtitle = "enter launches · → changes"

    def on_blur(self) -> None:
        names = len(self._presets)
        self.border_subtitle = f"one of {names} · esc lists them" if self._short else ""

    async def _on_click(self, event: events.Click) -> None:
        # Textual's list selects what is clicked, which here would launch it.
        event.prevent_default()
        option = event.style.meta.get("option")
        if option is not None:
            self.highlighted = option

    def action_launch(self) -> None:
        self.post_message(self.Launched())


def entry(preset: Preset, signs: str, width: int) -> Text:
    """Three lines: signs and name, combination, description."""
    lines = [_name(preset, signs, width), Text(f"  {combination(preset)}", "dim")]
    about = words.line(preset.config.description) if preset.config else reason(preset)
    lines.append(Text(f"  {about}", "dim" if preset.config else "red"))
    for line in lines:
        line.truncate(width, overflow="ellipsis")
    return Text("\n", no_wrap=True).join(lines)


def in_a_line(preset: Preset, signs: str, width: int) -> Text:
    """Name, combination and description side by side."""
    line = _name(preset, signs, 24)
    line.append(" " * max(24 - line.cell_len, 1))
    if preset.config:
        line.append(combination(preset).ljust(29) + words.line(preset.config.description), "dim")
    else:
        line.append(reason(preset), "red")
    line.truncate(width, overflow="ellipsis")
    return line


def _name(preset: Preset, signs: str, width: int) -> Text:
    mark = "✘ " if preset.config is None else signs
    line = Text().append(mark, "red" if preset.config is None else "cyan")
    line.append(preset.name, "bold")
    if preset.origin == "yours":
        line.append(" ◆ yours", "cyan")
        if preset.hides_built_in:
            line.append(", not the built-in", "dim")
    return line


def combination(preset: Preset) -> str:
    """Strategy, launcher and precision."""
    config = preset.config
    if config is None:
        return "cannot be used"
    return f"{config.strategy} · {config.launcher} · {config.precision}"


def reason(preset: Preset) -> str:
    """Why a file cannot be used, in one line, without its path where there is more to say."""
    lines = preset.problem.splitlines() or [""]
    return "; ".join(lines[1:]) or lines[0]
