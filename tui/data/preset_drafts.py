"""The presets of the launch screen with the user's unsaved changes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from distrain.runners.bench.candidate_texts import name_scripts
from distrain.runners.config.presets import Preset, list_file
from distrain.runners.config.schema import RunConfig
from distrain.tui.data import draft_store
from distrain.tui.data.draft import Draft

DEFAULT_PRESET = "ddp"


class PresetDrafts:
    """All presets, a draft of each that can be read, which one is current and which are marked."""

    def __init__(self, current_name: str) -> None:
        self.current_name = current_name
        self.presets: dict[str, Preset] = {}
        self.by_name: dict[str, Draft] = {}
        self.marked: list[str] = []
        self._unwritten: dict[str, list[str]] = {}  # changes by key, where the disk is full
        self._stored: dict[str, list[str]] = {}  # changes by key, as this app has left them
        self.notice = ""  # what the user has to know about the last update or change

    def update(self, presets: Sequence[Preset]) -> None:
        """Take over the presets as they are on disk now, with the changes given to `keep`."""
        known = self.presets
        self.presets = {preset.name: preset for preset in presets}
        stored, self.notice = draft_store.load_changes()
        self._stored = stored
        changes = stored | self._unwritten
        self.by_name = {
            preset.name: Draft.of(
                preset.name,
                preset.config,
                changes.get(_key(preset.name, is_script=preset.origin == "script"), ()),
                is_preset=preset.origin != "script",
            )
            for preset in presets
            if preset.config is not None
        }
        self.marked = [name for name in self.marked if name in self.by_name]
        if self.current_name not in self.presets:
            first = next(iter(self.presets), "")
            gone, self.current_name = self.current_name, first
            if DEFAULT_PRESET in self.presets:
                self.current_name = DEFAULT_PRESET
            if gone in known:  # the keys that launch would launch another one unseen
                gone_notice = f"{gone} no longer exists: {self.current_name} is shown instead"
                self.notice = " · ".join(filter(None, [self.notice, gone_notice]))

    @property
    def current(self) -> Draft | None:
        """Return the draft of the current preset, or None if its file cannot be read."""
        return self.by_name.get(self.current_name)

    @property
    def problem(self) -> str:
        """Return why the current preset has no draft."""
        preset = self.presets.get(self.current_name)
        return preset.problem if preset else "there is no preset to launch"

    @property
    def changed_names(self) -> list[str]:
        return [
            name for name, draft in self.by_name.items() if draft.config != draft.base or draft.axes
        ]

    def find_changed_file(self) -> str:
        """Return the current or a marked preset whose file is not as it was read; "" for none."""
        for name in (self.current_name, *self.marked):
            preset = self.presets.get(name)
            if preset is None or preset.origin == "script":
                continue
            if _as_text(list_file(Path(preset.path)).config) != _as_text(preset.config):
                return Path(name).name
        return ""

    @property
    def bench_configs(self) -> dict[str, RunConfig]:
        """Return the configs of the marked presets, by names that include their changes.

        A script has the name that it gets on the command line. Of several presets with one name,
        those that are files have their paths.
        """
        drafts = [self.by_name[name] for name in self.marked if name in self.by_name]
        script_names = iter(name_scripts([draft.config for draft in drafts if not draft.is_preset]))
        stems = Counter(draft.stem for draft in drafts)
        configs = {}
        for draft in drafts:
            if draft.is_preset:
                name = draft.stem if stems[draft.stem] == 1 else draft.name
                configs[",".join([name, *draft.assignments])] = draft.config
            else:
                configs[next(script_names)] = draft.config
        return configs

    def keep(self, draft: Draft) -> None:
        """Replace the draft of a preset and save its changes.

        Raise OSError if they cannot be written: then they last as long as this object.
        """
        self.by_name[draft.name] = draft
        key = _key(draft.name, is_script=not draft.is_preset)
        changes = self._unwritten[key] = draft.assignments
        self.notice = draft_store.save_changes(key, changes, self._stored.get(key, ()))
        self._stored[key] = changes
        del self._unwritten[key]

    def toggle_mark(self, name: str) -> None:
        if name in self.marked:
            self.marked.remove(name)
        else:
            self.marked.append(name)


def _as_text(config: RunConfig | None) -> str:
    """Return a config as text, in which nan is equal to nan."""
    return "" if config is None else config.to_toml()


def _key(name: str, is_script: bool) -> str:
    """Return the key of an entry's changes in drafts.toml.

    A script is named as it was typed, so its key includes the folder that it is listed in.
    """
    return f"{os.getcwd()}: {name}" if is_script else name
