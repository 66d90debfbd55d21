"""Import optional packages."""

from importlib import import_module
from types import ModuleType

from tracekit.errors import TracekitError


def import_package(package: str, distribution: str, hint: str) -> ModuleType:
    """Import an optional package.

    Args:
        package: Name of the module.
        distribution: Usual name of the package.
        hint: How to install it.

    Raises:
        TracekitError: The package isn't installed, or one of its own requirements isn't.
    """
    try:
        return import_module(package)
    except ImportError as error:
        raise TracekitError(f"{distribution} can't be imported ({error}).", hint) from error
