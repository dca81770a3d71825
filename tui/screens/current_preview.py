"""The preview of the draft that the launch screen shows, built in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from textual.message import Message
from textual.screen import Screen

from distrain.tui.data.config_fields import known_names
from distrain.tui.data.draft import Draft
from distrain.tui.data.launch_preview import LaunchPreview, PreviewBuilder
from distrain.tui.data.preset_drafts import PresetDrafts


class PreviewBuilt(Message):
    """The preview of a config, for the screen to pass to `CurrentPreview.accept`."""

    def __init__(self, preview: LaunchPreview) -> None:
        super().__init__()
        self.preview = preview


class CurrentPreview:
    """Builds the preview of the current draft whenever that has changed.

    `latest` is the last preview, which may be that of a draft before.
    """

    def __init__(self, screen: Screen[None], drafts: PresetDrafts, runs_dir: Path) -> None:
        self.latest: LaunchPreview | None = None
        self._screen = screen
        self._drafts = drafts
        self._builder = PreviewBuilder(runs_dir)

    @property
    def is_current(self) -> bool:
        """Return whether the preview is that of the current draft as it is now."""
        return self.latest is not None and self._is_of_current(self.latest)

    def _is_of_current(self, preview: LaunchPreview) -> bool:
        draft = self._drafts.current
        return draft is not None and (preview.config, preview.axes) == (draft.config, draft.axes)

    @property
    def problems(self) -> Mapping[str, str]:
        """Return the problems of the current draft by key."""
        problems: dict[str, str] = {}
        if self.latest and self.is_current:
            for key, text in self.latest.problems:
                problems[key] = f"{problems[key]}; {text}" if key in problems else text
        return problems

    def build_soon(self, pause: float) -> None:
        """Build the preview after a pause (s), unless it is current."""
        if self._drafts.current and not self.is_current:
            self._screen.set_timer(max(pause, 0.001), self._build)

    def _build(self) -> None:
        # Several timers may be running; the preview that the first one builds serves all.
        if (draft := self._drafts.current) and not self.is_current:
            build = partial(self._build_in_thread, draft)
            self._screen.run_worker(build, thread=True, exclusive=True, group="preview")

    def _build_in_thread(self, draft: Draft) -> None:
        self._screen.post_message(PreviewBuilt(self._builder.build(draft.config, draft.axes)))
        known_names("model.name")  # parses torchvision's source once, before it is needed

    def accept(self, preview: LaunchPreview) -> bool:
        """Take over a preview. Return whether it is that of the current draft."""
        if not self._is_of_current(preview):
            return False
        self.latest = preview
        return True
