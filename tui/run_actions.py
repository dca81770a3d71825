"""What a person does to runs, the same from every screen: asks first where something is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from textual import work
from textual.app import App

from runners import record as records
from runners import words
from runners.config import RunConfig
from runners.errors import DistrainError
from runners.plan import Plan
from runners.runs import Run, check
from runners.state import RunState
from tui import keymap
from tui.settings import Settings

if TYPE_CHECKING:
    from runners.bench import Bench, BenchState


T = TypeVar("T")


class Wanted(NamedTuple):
    """A run or bench that is to be: what to call it, its configs, what launches it (told whether
    to `queue`), the folders that it goes to and is launched from, and what opens it.
    """

    what: str
    configs: Sequence[RunConfig]
    launch: Callable[..., Any]
    runs_dir: Path
    cwd: str | None = None
    watch: Callable[[Any], None] | None = None


class RunActions(App[None]):
    """Mixed into the app; every method says how it went."""

    runs_dir: Path
    readonly: bool
    settings: Settings

    def __init__(self) -> None:
        super().__init__()
        self.deleted: Sequence[str] = ()
        self._told: set[str] = set()
        self._launching = ""  # what is, or is asked about

    def key(self, id: str) -> str:
        """The key that an action has, as it is written."""
        return " ".join(map(self.get_key_display, keymap.pressed(id, self.settings.keys)))

    def refuse(self, why: str) -> None:
        """Say why something cannot be done."""
        self.notify(why, severity="warning", timeout=8)

    def may_change(self) -> bool:
        """Whether this app may act on runs; says why where not."""
        if self.readonly:
            self.refuse("this app only looks on (--readonly)")
        return not self.readonly

    def watch_run(self, run: Run) -> None:
        """Open the screen of a run."""
        from tui.screens.run import RunScreen

        self.push_screen(RunScreen(run))

    def stop(self, run: Run) -> None:
        """Ask how, and stop."""
        if not self.may_change():
            return None
        if not run.is_live:
            return self.refuse(f"{called(run)} has ended: {run.record.status}")

        from tui.screens.dialogs import Choice

        queued = run.record.status == "queued"

        def answer(how: str | None) -> None:
            if how and queued and run.record.status != "queued":
                self.refuse(f"{called(run)} has left the queue meanwhile, and goes on")
            elif how:
                self._try(partial(run.stop, now=how == "now"), f"stopping {called(run)}")

        text = (
            "Every rank leaves after the same step and a checkpoint is written; "
            f"{self.key('run.resume')} goes on from there later. “Now” ends it at once: what came "
            "after the last checkpoint is lost."
        )
        answers = [("gently", "Stop with a checkpoint", "warning"), ("now", "Now", "error")]
        if queued:
            text = "It leaves the queue and never starts."
            answers = [("now", "Take it out of the queue", "warning")]
        self.push_screen(Choice(f"Stop {called(run)}?", text, answers), answer)
        return None

    def rerun(self, run: Run) -> None:
        """The same config again."""
        if self.may_change():
            self.start(_again(run, "rerun", run.repetition(), run.rerun))

    def resume(self, run: Run) -> None:
        """Go on from the last checkpoint."""
        if self.may_change():
            self.start(_again(run, "resumption", run.resumption(), run.resume))

    def start(
        self,
        wanted: Wanted,
        then: Callable[[bool], None] = lambda began: None,
        queue: bool = False,
    ) -> None:
        """Launch and watch the new run, once a person has said what to do about busy devices;
        with `queue` it waits for them unasked. `then` hears whether anything began.
        """
        if self._launching:
            self.refuse(f"{self._launching} is being launched")
            return
        self._launching = wanted.what

        def done(began: bool) -> None:
            self._launching = ""
            then(began)

        if queue:
            self._launch(wanted, done, queue)
        else:
            self._look_who_is_there(wanted, done)

    @work(thread=True)
    def _look_who_is_there(self, wanted: Wanted, then: Callable[[bool], None]) -> None:
        from runners import claims  # with psutil, which nobody else waits for

        try:
            plans = [check(config, wanted.cwd) for config in wanted.configs]
        except DistrainError as error:
            self.call_from_thread(self._refuse_launch, wanted, error, then)
            return
        obstacles: list[str] = []
        with suppress(DistrainError):  # without a queue nobody can be asked; the run may start
            obstacles = claims.who_has_any(plans, wanted.runs_dir)
        self.call_from_thread(self._ask_if_busy, wanted, plans, obstacles, then)

    def _ask_if_busy(
        self,
        wanted: Wanted,
        plans: Sequence[Plan],
        obstacles: list[str],
        then: Callable[[bool], None],
    ) -> None:
        """Two runs on one device slow each other down: that is for the person to decide."""
        from tui.screens.busy import Busy

        def answer(how: str | None) -> None:
            if how:
                self._launch(wanted, then, queue=how == "queue")
            else:
                then(False)

        if obstacles:
            self.push_screen(Busy(wanted.what, plans, wanted.runs_dir, obstacles), answer)
        else:
            answer("now")

    @work(thread=True)
    def _launch(self, wanted: Wanted, then: Callable[[bool], None], queue: bool) -> None:
        """In a thread, for it takes a second."""
        try:
            run = wanted.launch(queue=queue)
        except DistrainError as error:
            self.call_from_thread(self._refuse_launch, wanted, error, then)
        else:
            self.call_from_thread(then, True)
            self.call_from_thread(wanted.watch or self.watch_run, run)

    def _refuse_launch(
        self, wanted: Wanted, error: DistrainError, then: Callable[[bool], None]
    ) -> None:
        then(False)
        self.refuse(f"{wanted.what}: {error}")

    def edit(self, run: Run | Bench, then: Callable[[], None] = lambda: None) -> None:
        """Name, notes and tags."""
        if not self.may_change():
            return
        from tui.screens.dialogs import Edit

        noted = run.record if isinstance(run, Run) else run
        meta = noted.meta

        def save(fields: dict[str, str]) -> str:
            changed: dict[str, Any] = {k: v for k, v in fields.items() if v != before[k]}
            if "tags" in changed:
                changed["tags"] = [tag.strip() for tag in fields["tags"].split(",") if tag.strip()]
            try:
                noted.set_meta(**changed)
            except DistrainError as error:
                return str(error)
            self.notify("saved")
            then()
            return ""

        before = {"name": noted.name, "notes": meta.notes, "tags": ", ".join(meta.tags)}
        self.push_screen(Edit(f"About {run.id}", before, save))

    def delete(self, runs: Sequence[Run | Bench], then: Callable[[], None] = lambda: None) -> None:
        """Move runs to the trash, from which `undo` takes them back."""
        if not self.may_change():
            return None
        live = [run for run in runs if run.is_live]
        if live:
            return self.refuse(f"{called(live[0])} is {state_of(live[0]).status}; stop it first")

        from tui.screens.dialogs import Choice

        def answer(how: str | None) -> None:
            if how:
                gone = [path.name for run in runs if (path := self._try(run.remove))]
                if gone:
                    self.deleted = gone
                    told = words.things(len(gone), _noun(runs))
                    self.notify(f"moved to the trash: {told}; {self.key('runs.undo')} undoes it")
                then()

        title = (
            f"Delete {called(runs[0]) if len(runs) == 1 else words.things(len(runs), _noun(runs))}?"
        )
        undo = self.key("runs.undo")
        text = f"It goes to {records.TRASH} in the runs folder, with checkpoints; {undo} undoes it."
        self.push_screen(Choice(title, text, [("yes", "Delete", "error")]), answer)
        return None

    def tell_end(self, run: Run | Bench) -> None:
        """A run or bench has just ended: say so, once."""
        if run.id in self._told:
            return
        self._told.add(run.id)
        state = state_of(run)
        severity = {"completed": "information", "stopped": "warning"}.get(state.status, "error")
        how = words.line(state.reason or state.status)
        self.notify(f"{called(run)}: {how}", severity=severity)  # type: ignore[arg-type]
        if self.settings.bell:
            self.bell()

    def _try(self, do: Callable[[], T], said: str = "") -> T | None:
        try:
            found = do()
        except DistrainError as error:
            self.refuse(str(error))
            return None
        if said:
            self.notify(said)
        return found


def _again(run: Run, how: str, config: RunConfig, launch: Callable[..., Run]) -> Wanted:
    what = f"{how} of {called(run)}"
    return Wanted(what, [config], launch, run.record.runs_dir, run.launched_from)


def called(run: Run | Bench) -> str:
    """What to call it in a sentence."""
    return (run.record.name if isinstance(run, Run) else run.name) or run.id


def state_of(run: Run | Bench) -> RunState | BenchState:
    return run.record.state if isinstance(run, Run) else run.state


def _noun(things: Sequence[Run | Bench]) -> str:
    runs = sum(isinstance(each, Run) for each in things)
    return "run" if runs == len(things) else "run or bench"
