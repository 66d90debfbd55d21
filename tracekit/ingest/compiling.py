"""A word to the user while inner loops are compiled: once per installation, and long enough to look like a hang."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

COMPILING = "compile the inner loops, once per installation: 5 to 20 s"


@contextmanager
def said(progress: Callable[[str], None]) -> Iterator[None]:
    """Call ``progress`` when numba begins to compile for the first time meanwhile; loading what it compiled is quick.

    Args:
        progress: Called with what is being done.
    """
    from numba.core import event

    class Once(event.Listener):
        is_said = False

        def on_start(self, event: object) -> None:
            if not self.is_said:
                self.is_said = True
                progress(COMPILING)

        def on_end(self, event: object) -> None:
            return

    with event.install_listener("numba:compile", Once()):
        yield
