"""Imports of packages that not everyone has."""

from importlib import import_module
from types import ModuleType

from tracekit.errors import TracekitError


def require(package: str, distribution: str, install: str) -> ModuleType:
    """Import a package.

    Args:
        package: What to import.
        distribution: What people call it.
        install: What ``pip install`` takes.

    Raises:
        TracekitError: It isn't installed, or lacks a package itself.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise TracekitError(f"{distribution} can't be imported ({error}).", f"pip install {install}") from error
