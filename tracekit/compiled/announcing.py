"""Announce the compilation of the inner loops: it happens once per installation, and its duration looks like a hang."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from tracekit.messages import ProgressCallback
from tracekit.messages.requests import COMPILING_LOOPS

_listener: ContextVar[ProgressCallback] = ContextVar("listener", default=lambda stage: None)


@contextmanager
def announce_compilation(progress: ProgressCallback) -> Iterator[None]:
    """Call ``progress`` when a loop is compiled within the context; loading compiled code is quick and not announced.

    Args:
        progress: Called with a description of the current stage.
    """
    token = _listener.set(progress)
    try:
        yield
    finally:
        _listener.reset(token)


def note_compilation() -> None:
    """Tell the caller that a loop is about to be compiled."""
    _listener.get()(COMPILING_LOOPS())
