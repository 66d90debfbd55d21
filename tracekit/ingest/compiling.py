"""Announce the compilation of the inner loops: it happens once per installation, and its duration looks like a hang."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING_MESSAGE = "compile the inner loops, once per installation: 5 to 20 s"


@contextmanager
def announce_compilation(progress: Callable[[str], None]) -> Iterator[None]:
    """Call ``progress`` when numba first compiles within the context; loading compiled code is quick and not announced.

    Args:
        progress: Called with a description of the current stage.
    """
    from numba.core import event

    class Once(event.Listener):
        is_said = False

        def on_start(self, event: object) -> None:
            if not self.is_said:
                self.is_said = True
                progress(COMPILING_MESSAGE)

        def on_end(self, event: object) -> None:
            return

    with event.install_listener("numba:compile", Once()):
        yield
