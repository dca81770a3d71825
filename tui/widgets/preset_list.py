"""The list of presets, with their configuration and origin."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from distrain.runners import formatting
from distrain.runners.config.plan import describe_setup
from distrain.runners.config.presets import Preset
from distrain.runners.config.schema import RunConfig
from distrain.tui import keymap
from distrain.tui.data.config_fields import editable_text
from distrain.tui.widgets.border_text import fit_on_border

KEYS = ("enter previews · → edits", "enter previews")
SHORT_NAME = 24  # cells of a name in an entry of one line
UNKNOWN_WIDTH = 1000  # cells, of a list that has not been laid out


class PresetList(OptionList):
    """Shows presets, and posts `Chosen` when the user goes on with one. It launches nothing."""

    HELP = (
        "Named configurations. Enter goes to the preview of the preset under the cursor, where "
        "Enter launches it; → edits its fields. ◆ marks your own presets and files, • unsaved "
        "changes, ✘ files that cannot be used. {launch.mark} "
        "marks presets (✓), and {launch.bench} measures the marked ones in a bench."
    )
    DEFAULT_CSS = """
    PresetList {
        border: round $foreground 30%;
        border-title-color: $text-muted; border-subtitle-color: $text-muted;
        background: transparent; background-tint: transparent;
        padding: 0 1; height: 1fr; min-width: 8; scrollbar-size-vertical: 1;
        text-wrap: nowrap; text-overflow: ellipsis;
        &:focus {
            border: round $accent; border-title-color: $text; background-tint: transparent;
        }
        & > .option-list--option { padding: 0; }
    }
    """
    BINDINGS = [  # noqa: RUF012
        keymap.make_hidden_binding("enter", "choose"),
        keymap.make_hidden_binding("k", "cursor_up"),
        keymap.make_hidden_binding("j", "cursor_down"),
    ]

    class Chosen(Message):
        """The user wants to launch the preset under the cursor."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.border_title = "Presets"
        self._presets: Sequence[Preset] = ()
        self._changed: Collection[str] = ()
        self._marked: Collection[str] = ()
        self._asked = ""
        self._short = False

    @property
    def name_now(self) -> str:
        """Return the preset under the cursor, or ""."""
        index = self.highlighted
        return self._presets[index].name if index is not None and self._presets else ""

    def mark(self, names: Collection[str]) -> None:
        """Show these presets as marked."""
        self._marked = frozenset(names)
        self._write()

    def show(self, presets: Sequence[Preset], changed: Collection[str], now: str) -> None:
        """Show presets, mark unsaved changes by name, and put the cursor on `now`."""
        names = [preset.name for preset in presets]
        same = names == [preset.name for preset in self._presets]
        self._presets = list(presets)
        self._changed = changed
        if same and self.option_count:
            self._write()
        else:
            self._fill()
            self._asked = ""
        # A repeated `now` does not move the cursor back: the caller may not know yet that it moved.
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
        room = self.scrollable_content_region.width or UNKNOWN_WIDTH
        signs = ""
        if preset.name in self._marked:
            signs += "✓ "
        if preset.name in self._changed:
            signs += "• "
        return short_entry(preset, signs) if self._short else entry(preset, signs, room)

    def on_resize(self) -> None:
        self._short = self.screen.has_class("-narrow")
        self._write()
        self._describe(self.has_focus)
        if self.highlighted is not None:
            self.scroll_to_highlight()

    def on_focus(self) -> None:
        self._describe(has_focus=True)

    def on_blur(self) -> None:
        self._describe(has_focus=False)

    def _describe(self, has_focus: bool) -> None:
        """Show the main keys, as far as they fit on the border."""
        names = len(self._presets)
        if not has_focus:
            self.border_subtitle = f"{names} presets · esc lists them" if self._short else ""
        else:
            self.border_subtitle = fit_on_border(KEYS, self)

    async def _on_click(self, event: events.Click) -> None:
        # Textual selects the clicked option, which would leave the list here.
        event.prevent_default()
        option = event.style.meta.get("option")
        if option is not None:
            self.highlighted = option

    def action_choose(self) -> None:
        self.post_message(self.Chosen())


def entry(preset: Preset, signs: str, width: int) -> Text:
    """Return three lines: name with signs, combination, description. The list cuts them."""
    lines = [_name(preset, signs, width), Text(f"  {combination(preset)}", "dim")]
    about = describe(preset.config) if preset.config else reason(preset)
    lines.append(Text(f"  {about}", "dim" if preset.config else "red"))
    return Text("\n").join(lines)


def short_entry(preset: Preset, signs: str) -> Text:
    """Return name, combination and description in one line."""
    line = _name(preset, signs, SHORT_NAME)
    line.append(" " * max(SHORT_NAME - line.cell_len, 1))
    if preset.config:
        line.append(combination(preset).ljust(29) + describe(preset.config), "dim")
    else:
        line.append(reason(preset), "red")
    return line


def _name(preset: Preset, signs: str, width: int) -> Text:
    mark = "✘ " if preset.config is None else signs
    line = Text().append(mark, "red" if preset.config is None else "cyan")
    if preset.origin == "file":
        line.append(Path(preset.path).name, "bold").append(" ◆ file", "cyan")
    else:
        line.append(_fitted(preset, width - line.cell_len - 1), "bold")
    if preset.origin == "yours":
        line.append(" ◆ yours", "cyan")
        if preset.hides_built_in:
            line.append(", hides the built-in", "dim")
    return line


def _fitted(preset: Preset, room: int) -> str:
    """Return the name; of a script without room for its path, that of its file."""
    config = preset.config
    path = config.script.path if config and config.is_script else None
    if path is None or "/" not in path or len(preset.name) <= room:
        return preset.name
    return preset.name.replace(path, f"…/{Path(path).name}", 1)


def combination(preset: Preset) -> str:
    """Return strategy, launcher and precision."""
    config = preset.config
    if config is None:
        return "cannot be used"
    return " · ".join(describe_setup(config, None))


def describe(config: RunConfig) -> str:
    """Return the description, or the devices of a script."""
    if config.is_script and not config.description:
        return "one process" if config.is_one_process else f"on {editable_text(config.devices)}"
    return formatting.single_line(config.description)


def reason(preset: Preset) -> str:
    """Return why a file cannot be used, in one line."""
    lines = preset.problem.splitlines() or [""]
    return "; ".join(lines[1:]) or lines[0]
