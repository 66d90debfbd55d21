"""Import optional packages."""

from importlib import import_module
from types import ModuleType

from tracekit.errors import TracekitError
from tracekit.messages.requests import EXTRA_MISSING, PACKAGE_MISSING


def import_package(package: str, distribution: str, extra: str | None = None) -> ModuleType:
    """Import an optional package.

    Args:
        package: Name of the module.
        distribution: Usual name of the package.
        extra: tracekit's extra that installs it; None to install it by its own name.

    Raises:
        TracekitError: The package isn't installed, or one of its own requirements isn't.
    """
    try:
        return import_module(package)
    except ImportError as error:
        shown = {"distribution": distribution, "reason": str(error)}
        missing = (
            PACKAGE_MISSING(**shown, install=distribution) if extra is None else EXTRA_MISSING(**shown, extra=extra)
        )
        raise TracekitError(missing) from error
