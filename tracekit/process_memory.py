"""Tell how much memory this process may use."""

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
