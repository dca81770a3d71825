"""The launch screen: choose a preset, change it, launch it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from textual import work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from distrain.runners import formatting, horovod
from distrain.runners.config import presets
from distrain.runners.config.presets import Preset
from distrain.runners.config.schema import RunConfig
from distrain.tui import keymap
from distrain.tui.data import launch_preview, recent_scripts
from distrain.tui.data.copying import CopyValue
from distrain.tui.data.draft import Draft
from distrain.tui.data.preset_drafts import PresetDrafts
from distrain.tui.dialogs.add_entry import ask_for_entry
from distrain.tui.dialogs.kept import open_kept
from distrain.tui.dialogs.save_preset import save_as
from distrain.tui.keymap import LAUNCH
from distrain.tui.screens.app_screen import AppScreen
from distrain.tui.screens.current_preview import CurrentPreview, PreviewBuilt
from distrain.tui.screens.draft_editing import DraftEditing
from distrain.tui.screens.draft_launch import DraftLaunch
from distrain.tui.screens.verify_screen import ask_what_to_verify
from distrain.tui.widgets.form_pane import FormPane
from distrain.tui.widgets.form_table import FormTable
from distrain.tui.widgets.key_bar import KeyBar
from distrain.tui.widgets.launch_control import LaunchControl
from distrain.tui.widgets.preset_list import PresetList
from distrain.tui.widgets.preview_pane import PreviewPane

FORM, PREVIEW = 1, 2  # the panes on the right of the list, in order
PAUSE_S = 0.12  # after a key press, before the preview is built


class LaunchScreen(AppScreen):
    """Show the presets, the draft of the current one as a form, and a preview of its run."""

    HELP = (
        "Enter on a preset goes to the preview, where Enter launches it; {launch.start} launches "
        "from any pane. ← and → move between the panes. {launch.script} "
        "adds a script of your own, which runs unchanged, or a preset file. Changes to a preset "
        "are kept for the next time; {launch.save} saves them as a preset of your own, "
        "{launch.reset} discards them. {launch.verify} checks that a preset computes what one "
        "plain process computes. {launch.mark} in the list marks presets and scripts, and "
        "{launch.bench} compares their speed. {launch.install} builds and installs Horovod where "
        "it is missing."
    )
    KEYS = (LAUNCH,)
    BINDINGS = [  # noqa: RUF012
        *keymap.make_bindings(LAUNCH),
        keymap.make_hidden_binding("escape", "leave"),
        keymap.make_hidden_binding("left", "go(-1)"),
        keymap.make_hidden_binding("right", "go(1)"),
    ]

    class PresetsRead(Message):
        """All presets, as they are on disk now, and what the user has to know about them."""

        def __init__(self, presets: list[Preset], notice: str) -> None:
            super().__init__()
            self.presets = presets
            self.notice = notice

    class HorovodChecked(Message):
        """Why Horovod cannot be used here, or an empty string."""

        def __init__(self, problem: str) -> None:
            super().__init__()
            self.problem = problem

    def __init__(self) -> None:
        super().__init__()
        self.drafts = PresetDrafts(self.distrain.settings.preset)
        self.preview = CurrentPreview(self, self.drafts, self.distrain.runs_dir)
        self._launch = DraftLaunch(self.distrain, self._paint, self._after_launch)

    def compose(self) -> ComposeResult:
        with Container(id="launch"):
            yield PresetList(id="presets")
            yield FormPane(id="form")
            yield PreviewPane(id="preview")
        yield KeyBar()

    def on_mount(self) -> None:
        self._list = self.query_one(PresetList)
        self._form = self.query_one(FormPane)
        self._preview_pane = self.query_one(PreviewPane)
        self._editing = DraftEditing(self.distrain, self.drafts, self._form, self._show_change)
        self._list.focus()

    def on_screen_resume(self) -> None:
        if self.drafts.presets:
            self._read_presets()
        else:  # the first time at once, so that every key finds the presets
            self.on_launch_screen_presets_read(self.PresetsRead(*_read_all()))

    def maximize(self, widget: Widget, container: bool = True) -> bool:
        """Maximize the whole form instead of its table, and the preview instead of its control."""
        panes = {FormTable: self._form, LaunchControl: self._preview_pane}
        return super().maximize(panes.get(type(widget), widget), container)

    def on_descendant_focus(self) -> None:
        self.set_class(self._list.has_focus, "-choosing")

    async def action_leave(self) -> None:
        """Go back to the list, or from the list to the previous screen."""
        if self.maximized:
            self.minimize()
        elif not self._list.has_focus:
            self.set_focus(self._list)
        else:
            self.app.pop_screen()

    # --- presets --------------------------------------------------------------------------------

    @work(thread=True, exclusive=True, group="presets")
    def _read_presets(self) -> None:
        self.post_message(self.PresetsRead(*_read_all()))

    def on_launch_screen_presets_read(self, event: PresetsRead) -> None:
        self.drafts.update(event.presets)
        for notice in filter(None, (event.notice, self.drafts.notice)):
            self.distrain.refuse(notice)
        self._list.mark(self.drafts.marked)
        self._paint()
        self.preview.build_soon(0)

    def on_option_list_option_highlighted(self, event: PresetList.OptionHighlighted) -> None:
        name = self._list.name_now
        if event.option_list is self._list and name not in ("", self.drafts.current_name):
            self._form.commit()
            self.drafts.current_name = name
            self._paint()
            self.preview.build_soon(PAUSE_S)

    def on_preset_list_chosen(self) -> None:
        self._go_to_pane(PREVIEW)

    def action_go(self, direction: int) -> None:
        """Go to the pane on the left or right, while no value is being edited."""
        now = next((n for n, pane in enumerate(self._panes) if pane.has_focus_within), 0)
        self._go_to_pane(max(0, min(now + direction, PREVIEW)))

    @property
    def _panes(self) -> tuple[Widget, Widget, Widget]:
        return self._list, self._form, self._preview_pane

    def _go_to_pane(self, index: int) -> None:
        if index and self.drafts.current is None:
            self.distrain.refuse(self.drafts.problem)
        elif index == FORM:
            self._form.go_in()
        elif index == PREVIEW:
            self.distrain.action_end_tour()  # on a small screen it takes the place of the preview
            self.set_focus(self._preview_pane.control)
        else:
            self.set_focus(self._list)

    def on_launch_control_pressed(self) -> None:
        self.action_start()

    async def action_script(self) -> None:
        """Ask for a script or a preset file to list. Keys wait until the dialog is open."""
        await ask_for_entry(self.distrain, self._go_to_entry)

    def _go_to_entry(self, name: str) -> None:
        self.drafts.current_name = name
        self.set_focus(self._list)
        self._read_presets()

    def action_mark(self) -> None:
        if not self._list.has_focus:
            raise SkipAction()
        name = self._list.name_now  # the current preset may follow the cursor a moment later
        if name in self.drafts.by_name:
            self.drafts.toggle_mark(name)
            self._list.mark(self.drafts.marked)
            self._list.action_cursor_down()
        else:
            self.distrain.refuse(self.drafts.problem)

    # --- the form -------------------------------------------------------------------------------

    def on_form_pane_changed(self, event: FormPane.Changed) -> None:
        self._editing.change(event)

    def on_form_pane_options_wanted(self, event: FormPane.OptionsWanted) -> None:
        self._editing.ask_for_option(event)

    def on_form_pane_discard_wanted(self, event: FormPane.DiscardWanted) -> None:
        self._editing.ask_to_discard(event)

    def _show_change(self) -> None:
        self._paint()
        self.preview.build_soon(PAUSE_S)

    def action_reset(self) -> None:
        self._editing.reset()

    def action_all(self) -> None:
        self._form.show_all()

    def action_filter(self) -> None:
        if self.drafts.current:
            self._form.filter()

    def _after_commit(self, act: Callable[[], None]) -> None:
        """Act once the value that is being typed is in the draft; refuse where it is invalid."""
        if not self._form.commit_before(act):
            self.distrain.refuse("the value being typed is not valid; esc cancels it")

    def on_form_pane_committed(self, event: FormPane.Committed) -> None:
        if name := self.drafts.find_changed_file():  # in an editor, while this screen is open
            self.distrain.refuse(f"{name} has changed on disk; check it, then press the key again")
            self._read_presets()
        else:
            event.act()

    def _after_commit_of_draft(self, act: Callable[[Draft], None]) -> None:
        """Act on the draft of the current preset; refuse where its file cannot be read."""

        def act_on_draft() -> None:
            if draft := self.drafts.current:
                act(draft)
            else:
                self.distrain.refuse(self.drafts.problem)

        self._after_commit(act_on_draft)

    # --- display --------------------------------------------------------------------------------

    def _paint(self) -> None:
        drafts = self.drafts
        draft = drafts.current
        self._list.show(list(drafts.presets.values()), drafts.changed_names, drafts.current_name)
        self._form.show(draft, self.preview.problems, self._title(), self._text_without_fields())
        is_stale = draft is not None and not self.preview.is_current
        shown = self.preview.latest if draft else None
        self._preview_pane.show(shown, self.command, is_stale, self._launch.progress)

    def _text_without_fields(self) -> str:
        """Return what the form shows for a preset that cannot be read."""
        if not self.drafts.presets:
            return "reading the presets …"
        return f"{self.drafts.problem}\n\nFix the file, then return to this screen to reload it."

    def _title(self) -> str:
        draft = self.drafts.current
        if draft is None:
            return self.drafts.current_name
        if not draft.changes:
            return draft.label
        return f"{draft.label} · {formatting.plural(len(draft.changes), 'change')}"

    @property
    def command(self) -> str:
        """Return the command line that launches the current preset without the app."""
        draft = self.drafts.current
        return self._launch.command(draft) if draft else ""

    def copy_values(self) -> list[CopyValue]:
        draft = self.drafts.current
        if draft is None:
            return []
        return [
            CopyValue("command", self.command),
            CopyValue("preset as TOML", draft.config.to_toml()),
        ]

    # --- the preview ----------------------------------------------------------------------------

    def on_preview_built(self, event: PreviewBuilt) -> None:
        if self.preview.accept(event.preview):
            self._paint()
            self.refresh_bindings()

    def rebuild_preview(self, _: object = None) -> None:
        """Build the preview again, as where Horovod may have been installed."""
        self.preview.latest = None
        self._paint()
        self.preview.build_soon(0)

    # --- launch, bench, verify, save ------------------------------------------------------------

    def action_start(self) -> None:
        self._after_commit_of_draft(partial(self._start, queue=False))

    def action_queue(self) -> None:
        self._after_commit_of_draft(partial(self._start, queue=True))

    def _start(self, draft: Draft, queue: bool) -> None:
        if problems := self.preview.problems:
            self._refuse_problems(problems)
            self.rebuild_preview()  # a missing file may be there by now
        else:
            where = launch_preview.launch_labels(self.preview.latest)[0].removeprefix("Launch")
            self._launch.start(draft, where, queue)

    def _refuse_problems(self, problems: Mapping[str, str]) -> None:
        key, text = next(iter(problems.items()))
        message = f"{key}: {text}" if key else text
        if more := len(problems) - 1:
            message += f" (and {formatting.plural(more, 'other problem')})"
        self.distrain.refuse(message)
        if key and not self._list.has_focus:
            self._form.go_in(key)

    def _after_launch(self, opens: bool) -> None:
        """Leave before the screen of the run opens; stay where none does."""
        if opens and self.app.screen is self:
            self.app.pop_screen()
        elif self.is_current:
            self._paint()

    def action_bench(self) -> None:
        self._after_commit(self._plan_bench)

    def _plan_bench(self) -> None:
        """Plan a bench of the marked presets; the first is the baseline, unless changed later."""
        marked = map(self.drafts.by_name.get, self.drafts.marked)
        if any(map(self._launch.refuse_sweep, marked)):
            return
        if configs := self.drafts.bench_configs:
            self.distrain.benches.plan(configs, self._after_launch)
        else:
            hint = "mark presets or scripts with {launch.mark}; {launch.bench} compares their speed"
            self.distrain.refuse(keymap.insert_keys(hint, self.app))

    def action_verify(self) -> None:
        self._after_commit(self._ask_what_to_verify)

    def _ask_what_to_verify(self) -> None:
        if self._launch.refuse_sweep(self.drafts.current):
            return
        if self.drafts.by_name:
            drafts = list(self.drafts.by_name.values())
            ask_what_to_verify(self.app, self.drafts.current, drafts)
        else:
            self.distrain.refuse(self.drafts.problem)

    def action_save(self) -> None:
        self._after_commit_of_draft(self._ask_for_name)

    def _ask_for_name(self, draft: Draft) -> None:
        if self._launch.refuse_sweep(draft):
            return
        save_as(self.app, draft, self.drafts.presets, partial(self._after_save, draft))

    def _after_save(self, before: Draft, name: str, config: RunConfig) -> None:
        """Go to the new preset. The preset that it was made from loses its changes."""
        self._editing.keep(before.without_changes())
        self._editing.keep(Draft.of(name, config))
        self.drafts.current_name = name
        self.distrain.remember(preset=name)
        self._read_presets()

    # --- Horovod --------------------------------------------------------------------------------

    def offers(self, binding: Binding) -> bool:
        """Show the key that installs Horovod only where Horovod is what is missing."""
        if binding.id == "launch.install":
            return any(horovod.FIX in text for text in self.preview.problems.values())
        return binding.id != "app.new" and super().offers(binding)

    def obstacle(self, id: str) -> str:
        if id == "app.new":
            hint = "This is the screen that launches: choose a preset, then {launch.start}."
            return keymap.insert_keys(hint, self.app)
        return super().obstacle(id)

    @work(thread=True, exclusive=True, group="horovod")
    def action_install(self) -> None:
        self.post_message(self.HorovodChecked(horovod.problem()))

    def on_launch_screen_horovod_checked(self, event: HorovodChecked) -> None:
        if event.problem:
            from distrain.tui.dialogs.install_horovod import NAME, InstallHorovodDialog

            open_kept(self.app, NAME, InstallHorovodDialog, self.rebuild_preview)
        else:
            self.distrain.refuse("Horovod is installed and works")


def _read_all() -> tuple[list[Preset], str]:
    """Return what was added in this folder and all presets, and what the user has to know."""
    added, notice = recent_scripts.load()
    return [*added, *presets.listing()], notice
