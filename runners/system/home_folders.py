"""The folders for distrain's own files below the home folder of this user, as XDG defines them.

None of them needs to exist. All raise ConfigError where the home folder is unknown: of a user ID
without an account, as containers have, when $HOME is not set.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from distrain.runners.errors import ConfigError


def config_folder() -> Path:
    """Return where presets and settings are: $DISTRAIN_CONFIG_DIR if that is set.

    Raises ConfigError also if that begins with the home of an unknown user.
    """
    base = os.environ.get("DISTRAIN_CONFIG_DIR")
    if not base:
        import platformdirs  # most commands do without

        return _expand(platformdirs.user_config_dir)
    try:
        return Path(base).expanduser()
    except RuntimeError:
        raise ConfigError(f"$DISTRAIN_CONFIG_DIR: there is no folder {base}") from None


def state_folder() -> Path:
    """Return where it is kept what is trusted."""
    import platformdirs

    return _expand(platformdirs.user_state_dir)


def cache_folder() -> Path:
    """Return where files are that can be made again."""
    import platformdirs

    return _expand(platformdirs.user_cache_dir)


def _expand(find: Callable[[str], str]) -> Path:
    try:
        return Path(find("distrain"))
    except RuntimeError:
        raise ConfigError("the home folder of this user is unknown: set $HOME") from None
