"""Tell how much memory this process may use, and give back what it no longer does."""

import ctypes
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
