"""End the command line on Ctrl-C without a traceback, from its first import on: importing this module begins it.

Python raises KeyboardInterrupt wherever it is: in the middle of an import it is printed, or comes out as another error.
Programs that import tracekit keep their own handling.
"""

import os
import signal
import sys
from pathlib import PurePath
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130

_interrupted = False


def guard_imports() -> None:
    """End at once on Ctrl-C until the command runs: there is nothing to clean up yet."""
    if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def _is_command() -> bool:
    """Return whether this process runs ``tracekit`` or ``python -m tracekit``."""
    program, *_ = [*sys.argv, ""]
    if program == "-m":
        return "tracekit" in sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1]
    return PurePath(program).stem in ("tracekit", "tracekit-script")


def _end(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(EXIT_INTERRUPTED)


def note_interrupts() -> None:
    """Raise KeyboardInterrupt on Ctrl-C as Python does, and note it; leave other handling alone."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, _end):
        signal.signal(signal.SIGINT, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    global _interrupted
    _interrupted = True
    raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Return whether Ctrl-C was noted: any error since then may be its consequence."""
    return _interrupted


def ignore_interrupts() -> None:
    """Ignore Ctrl-C from here on, where this module handles it: all is done, and the exit code stands."""
    if signal.getsignal(signal.SIGINT) is _interrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def exit_interrupted() -> NoReturn:
    """Exit as interrupted; another Ctrl-C doesn't disturb what remains to do."""
    ignore_interrupts()
    sys.exit(EXIT_INTERRUPTED)


guard_imports()
