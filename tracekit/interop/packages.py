"""Imports of packages that not everyone has."""

from importlib import import_module
from types import ModuleType

from tracekit.errors import TracekitError


def require(package: str, distribution: str, hint: str) -> ModuleType:
    """Import a package.

    Args:
        package: What to import.
        distribution: What people call it.
        hint: How to install it.

    Raises:
        TracekitError: It isn't installed, or lacks a package itself.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise TracekitError(f"{distribution} can't be imported ({error}).", hint) from error
