"""Pick a preset, make it one's own, launch it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from textual import work
from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container
from textual.message import Message
from textual.widget import Widget

from runners import horovod, presets, runs, words
from runners.config import RunConfig
from runners.presets import Preset
from tui import keymap
from tui.data import drafts, form
from tui.data.consequences import Outlook, Outlooks
from tui.data.form import Draft
from tui.keymap import LAUNCH
from tui.run_actions import Wanted
from tui.screens.base import AppScreen
from tui.screens.dialogs import Choice
from tui.screens.save_preset import save_as
from tui.screens.verify import ask_what_to_verify
from tui.widgets.consequences import Consequences
from tui.widgets.form_pane import FormPane
from tui.widgets.key_bar import KeyBar
from tui.widgets.preset_list import PresetList
from tui.widgets.sheet import Sheet

PAUSE_S = 0.12  # of typing, before what follows is worked out
USUAL = "ddp"


class LaunchScreen(AppScreen):
    """Keeps a draft for each preset; its panes show the one under the cursor."""

    HELP = (
        "Enter on a preset launches it; {launch.start} launches from anywhere. Changes stay with "
        "their preset, also for the next time; {launch.save} keeps them under a name of your own, "
        "{launch.reset} takes them back. {launch.verify} shows whether it computes what one plain "
        "process computes; {launch.mark} in the list marks presets, {launch.bench} measures them "
        "beside each other. {launch.install} builds and installs Horovod where it is missing."
    )
    KEYS = (LAUNCH,)
    BINDINGS = [  # noqa: RUF012
        *keymap.bindings(LAUNCH),
        keymap.hidden("escape", "leave"),
        keymap.hidden("right,l", "enter_form"),
    ]

    class Listed(Message):
        """All presets, as they are on disk now."""

        def __init__(self, found: list[Preset]) -> None:
            super().__init__()
            self.found = found

    class WorkedOut(Message):
        """What follows from a config."""

        def __init__(self, outlook: Outlook) -> None:
            super().__init__()
            self.outlook = outlook

    class LookedForHorovod(Message):
        """Why it cannot be used here, if so."""

        def __init__(self, problem: str) -> None:
            super().__init__()
            self.problem = problem

    def __init__(self) -> None:
        super().__init__()
        self._presets: dict[str, Preset] = {}
        self._drafts: dict[str, Draft] = {}
        self._now = ""
        self._marked: list[str] = []
        self._outlook: Outlook | None = None
        self._outlooks = Outlooks(self.distrain.runs_dir)

    def compose(self) -> ComposeResult:
        with Container(id="launch"):
            yield PresetList(id="presets")
            yield FormPane(id="form")
            yield Consequences(id="follows")
        yield KeyBar()

    def on_mount(self) -> None:
        self._list, self._form = self.query_one(PresetList), self.query_one(FormPane)
        self._now = self.distrain.settings.preset
        self._list.focus()

    def on_screen_resume(self) -> None:
        if self._presets:
            self._look_for_presets()
        else:  # no key may come before there is something that it could mean
            self.on_launch_screen_listed(self.Listed(presets.listing()))

    def maximize(self, widget: Widget, container: bool = True) -> bool:
        """The form goes as a whole: its sheet alone would lack the line to type in."""
        return super().maximize(self._form if isinstance(widget, Sheet) else widget, container)

    def on_descendant_focus(self) -> None:
        self.set_class(self._list.has_focus, "-choosing")

    # --- presets --------------------------------------------------------------------------------

    @work(thread=True, exclusive=True, group="presets")
    def _look_for_presets(self) -> None:
        self.post_message(self.Listed(presets.listing()))

    def on_launch_screen_listed(self, event: Listed) -> None:
        self._presets = {preset.name: preset for preset in event.found}
        kept = drafts.kept()
        self._drafts = {
            preset.name: Draft.of(preset.name, preset.config, kept.get(preset.name, ()))
            for preset in event.found
            if preset.config is not None
        }
        self._marked = [name for name in self._marked if name in self._drafts]
        self._list.mark(self._marked)
        if self._now not in self._presets:
            self._now = USUAL if USUAL in self._presets else next(iter(self._presets), "")
        self._paint()
        self._work_out(0)

    @property
    def _draft(self) -> Draft | None:
        preset = self._presets.get(self._now)
        return self._drafts.get(self._now) if preset and preset.config else None

    def on_option_list_option_highlighted(self, event: PresetList.OptionHighlighted) -> None:
        if event.option_list is self._list and self._list.name_now not in ("", self._now):
            self._form.commit()
            self._now = self._list.name_now
            self._paint()
            self._work_out(PAUSE_S)

    def on_preset_list_launched(self) -> None:
        self.action_start()

    def action_enter_form(self) -> None:
        if not self._list.has_focus:
            raise SkipAction()
        if self._draft is None:
            self._refuse_file()
        else:
            self._form.go_in()

    # --- the form -------------------------------------------------------------------------------

    def on_form_pane_changed(self, event: FormPane.Changed) -> None:
        if draft := self._drafts.get(event.name):
            self._keep(draft.with_value(event.key, event.value))

    def _keep(self, draft: Draft) -> None:
        self._drafts[draft.name] = draft
        try:
            drafts.keep(draft.name, draft.assignments)
        except OSError as error:
            self.notify(f"{drafts.path()} cannot be written: {error.strerror}")
        self._paint()
        self._work_out(PAUSE_S)

    def action_reset(self) -> None:
        """Of the field under the cursor; in the list, of the whole preset."""
        field, draft = self._form.field, self._draft
        if draft and self._list.has_focus and draft.changes:
            self._ask_to_reset(draft)
        elif draft and field and draft.changed(field.key) and not self._list.has_focus:
            self._form.leave_line()
            self._keep(draft.reset(field.key))
        else:
            what = "the preset" if self._list.has_focus else "the field under the cursor"
            self.distrain.refuse(f"{what} is as in its file")

    def _ask_to_reset(self, draft: Draft) -> None:
        def answer(how: str | None) -> None:
            if how:
                self._keep(Draft.of(draft.name, draft.base))

        text = f"Changed and not saved: {', '.join(draft.assignments)}"
        answers = [("yes", "Take them back", "warning")]
        self.app.push_screen(Choice(f"{draft.name} as in its file?", text, answers), answer)

    def action_all(self) -> None:
        self._form.show_all()

    def action_filter(self) -> None:
        if self._draft:
            self._form.filter()

    def _paint(self) -> None:
        draft = self._draft
        changed = [name for name, each in self._drafts.items() if each.config != each.base]
        self._list.show(list(self._presets.values()), changed, self._now)
        self._form.show(draft, self._complaints(), self._title(), self._instead())
        busy = draft is not None and not self._is_known
        outlook = self._outlook if draft else None
        self.query_one(Consequences).show(outlook, self._command(), busy)

    def _instead(self) -> str:
        """What stands in place of the fields of a preset that cannot be used."""
        preset = self._presets.get(self._now)
        if preset is None:
            return "reading the presets …"
        return f"{preset.problem}\n\nMend the file, then come back: it is read again."

    def _title(self) -> str:
        draft = self._draft
        if draft is None:
            return self._now
        changes = len(draft.changes)
        return f"{draft.name} · {words.things(changes, 'change')}" if changes else draft.name

    # --- what follows ---------------------------------------------------------------------------

    @property
    def _is_known(self) -> bool:
        """Whether the outlook is that of the draft."""
        draft, outlook = self._draft, self._outlook
        return draft is not None and outlook is not None and outlook.config == draft.config

    def _complaints(self) -> Mapping[str, str]:
        if not self._is_known or self._outlook is None:
            return {}
        found: dict[str, str] = {}
        for key, text in self._outlook.problems:
            found[key] = f"{found[key]}; {text}" if key in found else text
        return found

    def _work_out(self, pause: float) -> None:
        if self._draft and not self._is_known:
            self.set_timer(max(pause, 0.001), self._ask)

    def _ask(self) -> None:
        # Several pauses may have been begun; what was asked for by the first answers all.
        if self._draft and not self._is_known:
            self._answer(self._draft)

    @work(thread=True, exclusive=True, group="outlook")
    def _answer(self, draft: Draft) -> None:
        self.post_message(self.WorkedOut(self._outlooks.of(draft.config)))
        form.offers("model.name")  # parses torchvision's source once, before anybody asks

    def on_launch_screen_worked_out(self, event: WorkedOut) -> None:
        draft = self._draft
        if draft and event.outlook.config == draft.config:
            self._outlook = event.outlook
            self._paint()
            self.refresh_bindings()

    def _command(self) -> str:
        draft = self._draft
        return shlex.join(draft.command(self._runs_dir_to_name())) if draft else ""

    def _runs_dir_to_name(self) -> Path | None:
        folder = self.distrain.runs_dir
        return None if folder == runs.runs_folder() else folder

    def action_copy(self) -> None:
        if command := self._command():
            self.distrain.copy(command, "the command")
        else:
            self._refuse_file()

    # --- launching ------------------------------------------------------------------------------

    def action_start(self) -> None:
        self._launch(queue=False)

    def action_queue(self) -> None:
        self._launch(queue=True)

    def _launch(self, queue: bool) -> None:
        if not self._form.commit():
            self._refuse_line()
            return
        self.call_later(self._launch_draft, queue)

    def _launch_draft(self, queue: bool) -> None:
        """Once a value that was still being typed has come."""
        draft = self._draft
        if draft is None:
            self._refuse_file()
        elif self._is_known and self._outlook and self._outlook.problems:
            self._refuse_problems(self._outlook)
        else:
            self.distrain.remember(preset=draft.name)
            self._form.border_subtitle = "launching …"
            launch = partial(
                runs.launch,
                draft.config,
                name=draft.name,
                runs_dir=self.distrain.runs_dir,
                command=shlex.split(self._command()),
            )
            wanted = Wanted(draft.name, [draft.config], launch, self.distrain.runs_dir)
            self.distrain.start(wanted, self._after_launch, queue)

    # --- a bench of several ---------------------------------------------------------------------

    def action_mark(self) -> None:
        if not self._list.has_focus:
            raise SkipAction()
        name = self._list.name_now  # the screen may hear a moment later where the cursor is
        if name not in self._drafts:
            self._refuse_file()
            return
        if name in self._marked:
            self._marked.remove(name)
        else:
            self._marked.append(name)
        self._list.mark(self._marked)
        self._list.action_cursor_down()

    def action_bench(self) -> None:
        if not self._form.commit():
            self.distrain.refuse("what is being typed cannot be used; esc leaves it")
            return
        self.call_later(self._bench)

    def _bench(self) -> None:
        """Of the marked presets with their changes, which their names tell; the first marked is the
        baseline, unless another is chosen.
        """
        names = [name for name in self._marked if name in self._drafts]
        if not names:
            hint = "mark presets with {launch.mark}, then {launch.bench} measures them"
            self.distrain.refuse(keymap.keyed(hint, self.app))
            return
        drafts = [self._drafts[name] for name in names]
        configs = {",".join([draft.name, *draft.assignments]): draft.config for draft in drafts}
        self.distrain.plan_bench(configs, self._after_launch)

    def _after_launch(self, began: bool) -> None:
        """This screen goes before the run's comes; it stays where nothing began."""
        if began and self.app.screen is self:
            self.app.pop_screen()
        elif self.is_current:
            self._paint()

    def _refuse_line(self) -> None:
        self.distrain.refuse("what is being typed cannot be used; esc leaves it")

    def _refuse_file(self) -> None:
        preset = self._presets.get(self._now)
        self.distrain.refuse(preset.problem if preset else "there is no preset to launch")

    def _refuse_problems(self, outlook: Outlook) -> None:
        key, text = outlook.problems[0]
        more = len(outlook.problems) - 1
        others = f" (and {words.things(more, 'other problem')})" if more else ""
        self.distrain.refuse(f"{key}: {text}{others}" if key else text + others)
        if key and self._list.has_focus is False:
            self._form.go_in(key)

    def action_verify(self) -> None:
        if not self._form.commit():
            self._refuse_line()
        elif self._drafts:
            self.call_later(self._ask_what_to_verify)
        else:
            self._refuse_file()

    def _ask_what_to_verify(self) -> None:
        ask_what_to_verify(self.app, self._draft, list(self._drafts.values()))

    # --- Horovod --------------------------------------------------------------------------------

    def offers(self, binding: Binding) -> bool:
        """The footer has the key to install Horovod where that is what is wanting."""
        if binding.id == "launch.install":
            return any(horovod.FIX in text for text in self._complaints().values())
        return super().offers(binding)

    @work(thread=True, exclusive=True, group="horovod")
    def action_install(self) -> None:
        self.post_message(self.LookedForHorovod(horovod.problem()))

    def on_launch_screen_looked_for_horovod(self, event: LookedForHorovod) -> None:
        if event.problem:
            from tui.screens.install import InstallHorovod

            self.app.push_screen(InstallHorovod(), self._after_install)
        else:
            self.distrain.refuse("Horovod is installed and works")

    def _after_install(self, _: object) -> None:
        """What follows may be another thing now."""
        self._outlook = None
        self._paint()
        self._work_out(0)

    # --- presets of one's own -------------------------------------------------------------------

    def action_save(self) -> None:
        if not self._form.commit():
            self._refuse_line()
            return
        self.call_later(self._ask_name)

    def _ask_name(self) -> None:
        if draft := self._draft:
            save_as(self.app, draft, self._presets, partial(self._saved, draft))
        else:
            self._refuse_file()

    def _saved(self, before: Draft, name: str, config: RunConfig) -> None:
        """The changes are the new preset's now, no longer those of the one before."""
        self._keep(Draft.of(before.name, before.base))
        self._keep(Draft.of(name, config))
        self._now = name
        self.distrain.remember(preset=name)
        self._look_for_presets()

    # --- leaving --------------------------------------------------------------------------------

    async def action_leave(self) -> None:
        """Back to the list, and from there to where one came from."""
        if self.maximized:
            self.minimize()
        elif not self._list.has_focus:
            self._list.focus()
        else:
            self.app.pop_screen()
