"""Ask the operating system: how much memory this process may use, and whose files these are."""

import ctypes
import os
import stat
from pathlib import Path

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


def get_address_space_bytes() -> int | None:
    """Return the limit on this process's memory (``ulimit -v``); ``None`` without one."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if limit == resource.RLIM_INFINITY else limit


def find_memory_bytes() -> int:
    """Return the memory of the machine, the container or the process, whichever has least."""
    import psutil

    machine: int = psutil.virtual_memory().total
    try:
        container = int(CONTAINER_LIMIT.read_text(encoding="ascii"))
    except (OSError, ValueError):  # no container, or "max"
        container = machine
    return min(machine, container, get_address_space_bytes() or machine)


def release_freed_memory() -> None:
    """Return freed memory to the operating system, where the C library (glibc) keeps it.

    Thousands of freed arrays of some 100 kB lie between others that are in use: glibc returns none of them by itself.
    """
    trim = getattr(ctypes.pythonapi, "malloc_trim", None)
    if trim is not None:
        trim(0)


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
