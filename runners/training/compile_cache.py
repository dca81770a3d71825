"""The folder in which torch.compile keeps the code that it generates.

torch executes what it finds there. By default the folder is in /tmp and has the name of the user,
whoever has made it.
"""

from __future__ import annotations

import getpass
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from distrain.runners.system.private_folder import is_private
from distrain.runners.system.scratch import scratch_parent


def use_private_cache() -> None:
    """Make torch's folder one that only this user can write to; call it before torch is imported.

    Where somebody else has made the folder, temporary files of this process go to one of the run.
    TORCHINDUCTOR_CACHE_DIR alone is not enough: torch keeps its compiled headers below /tmp.
    """
    folder = _default_folder()
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        is_own = folder.lstat().st_uid == os.getuid() and not folder.is_symlink()
        if is_own and not is_private(folder):
            folder.chmod(0o700)  # a umask has let others write to it
    if not is_private(folder):
        tempfile.tempdir = tempfile.mkdtemp(prefix="torchinductor-", dir=scratch_parent())
        os.environ["TMPDIR"] = tempfile.tempdir


def _default_folder() -> Path:
    """Return the folder that torch uses by default."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user ID without an account
        user = f"uid_{os.getuid()}"
    name = re.sub(r'[\\/:*?"<>|]', "_", user)
    return Path(tempfile.gettempdir(), f"torchinductor_{name}")
