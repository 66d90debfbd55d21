"""Tell whether files are this user's alone: what others may write isn't read back as tracekit's own."""

import os
import stat
from pathlib import Path

_HAS_OWNERS = hasattr(os, "getuid")
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def is_private(state: os.stat_result, *owners: int) -> bool:
    """Return whether only this user may write a file; on Windows always true, as user folders are private there.

    Args:
        state: The file's state.
        owners: Numbers of other users that are trusted.
    """
    if not _HAS_OWNERS:
        return True
    return state.st_uid in (os.getuid(), *owners) and not state.st_mode & _WRITABLE_BY_OTHERS


def find_public_directory(*directories: Path) -> Path | None:
    """Return the first directory that another user owns or anybody may write; ``None`` if there is none.

    Directories that a group may write are taken, as many systems make them so; what lies in them is told by its owner.
    Those that don't exist are skipped.
    """
    if not _HAS_OWNERS:
        return None
    for directory in directories:
        try:
            state = directory.stat()
        except OSError:
            continue
        if state.st_uid != os.getuid() or state.st_mode & stat.S_IWOTH:
            return directory
    return None
