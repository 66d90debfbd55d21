"""Run code that isn't ours: a program's, and that of the packages that it and its config need."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import import_module
from typing import Any

from tracekit.errors import CaptureError, TracekitError
from tracekit.messages import models as messages
from tracekit.messages.model import Message, Template

STDOUT, STDERR = 1, 2


@contextmanager
def name_failures(make_message: Callable[[str], Message]) -> Iterator[None]:
    """Turn whatever a program raises, ``sys.exit`` too, into an error that says what it was; Ctrl-C stays.

    Args:
        make_message: Makes the message from the error's description.

    Raises:
        CaptureError: The program raised something.
    """
    try:
        yield
    except (TracekitError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise CaptureError(make_message(describe_error(error))) from error


@contextmanager
def move_prints_to_stderr() -> Iterator[None]:
    """Send what a program prints to stderr, what its libraries and child processes print too."""
    stdout = sys.stdout
    stdout.flush()
    with _move_descriptor(), redirect_stdout(sys.stderr):
        try:
            yield
        finally:
            stdout.flush()


@contextmanager
def _move_descriptor() -> Iterator[None]:
    kept = None
    with suppress(OSError):  # either may be closed
        kept = os.dup(STDOUT)
        os.dup2(STDERR, STDOUT)
    try:
        yield
    finally:
        if kept is not None:
            os.dup2(kept, STDOUT)
            os.close(kept)


def import_package(name: str, missing: Template) -> Any:
    """Import a package.

    Args:
        name: Of the package.
        missing: What to say where it isn't installed.

    Raises:
        CaptureError: It isn't installed, or lacks something itself, which is named.
    """
    try:
        return import_module(name)
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise CaptureError(missing()) from error
        raise CaptureError(messages.PACKAGE_UNUSABLE(package=name, error=describe_error(error))) from error


def describe_error(error: BaseException) -> str:
    """Return the kind and the first line of an error; of one that a missing module caused, that module."""
    missing = _find_missing_module(error)
    error = error if missing is None else missing
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _find_missing_module(error: BaseException | None) -> ModuleNotFoundError | None:
    if error is None or isinstance(error, ModuleNotFoundError):
        return error
    return _find_missing_module(error.__cause__)
