"""The configuration: defaults of options, from a file of the user's and one in the working directory."""

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from pathlib import Path
from typing import Any

import platformdirs
import typer

from tracekit.errors import TracekitError
from tracekit.messages import requests as messages

VARIABLE = "TRACEKIT_CONFIG"
"""Names the only file to read; none if it is empty."""
LOCAL_FILE = Path("tracekit.toml")
TARGET_KEYS = ("gpu", "cluster")
SOURCE_GPU_KEY = "source_gpu"
KEYS = (*TARGET_KEYS, SOURCE_GPU_KEY, "host", "price", "prices")
"""What can be configured: the names of the options."""
CONFIGURED_COMMANDS = ("predict", "sweep", "share")
"""Commands that take targets and their prices."""


@dataclass(frozen=True)
class Config:
    """Defaults of options.

    Attributes:
        files: The files that were read, the first of which wins.
        values: Values by key, as the command line takes them.
        origins: The file that each value is from.
    """

    files: tuple[Path, ...]
    values: Mapping[str, str | list[str]]
    origins: Mapping[str, Path]

    @property
    def targets(self) -> bool:
        """Whether there are default targets."""
        return any(key in self.values for key in TARGET_KEYS)

    @cached_property
    def defaults(self) -> dict[str, str | list[str]]:
        """Values that commands take as the defaults of their options; a source GPU is for some traces only."""
        return {key: value for key, value in self.values.items() if key != SOURCE_GPU_KEY}


def list_config_files() -> list[Path]:
    """List where a configuration is looked for, the first of which wins."""
    named = os.environ.get(VARIABLE)
    if named is not None:
        return [Path(named)] if named else []
    return [LOCAL_FILE, Path(platformdirs.user_config_dir("tracekit", appauthor=False)) / "config.toml"]


def read_config() -> Config:
    """Read the configuration.

    Raises:
        TracekitError: A file can't be read, or holds something else.
    """
    files = [path for path in list_config_files() if path.is_file() or os.environ.get(VARIABLE)]
    values: dict[str, str | list[str]] = {}
    origins: dict[str, Path] = {}
    for path in reversed(files):
        found = _read_file(path)
        if any(key in found for key in TARGET_KEYS):
            for key in TARGET_KEYS:
                values.pop(key, None)
        values |= found
        origins |= dict.fromkeys(found, path)
    return Config(tuple(files), values, {key: origins[key] for key in values})


def settle_defaults(context: Any) -> None:
    """Drop default targets where one is named, and say which options are from the configuration."""
    if not context.default_map:
        return
    named = [key for key in TARGET_KEYS if _is_from(context, key, "COMMANDLINE")]
    if named:
        context.params |= {key: [] for key in TARGET_KEYS if key not in named}
    config = read_config()
    used = {key: context.params[key] for key in KEYS if _is_from(context, key, "DEFAULT_MAP") and context.params[key]}
    for path in config.files:
        options = [
            word
            for key, value in used.items()
            if config.origins[key] == path
            for one in ([value] if isinstance(value, str) else value)
            for word in (f"--{key.replace('_', '-')}", one)
        ]
        if options:
            typer.echo(str(messages.CONFIGURATION_USED(path=str(path), options=shlex.join(options))), err=True)


def _is_from(context: Any, key: str, source: str) -> bool:
    found = context.get_parameter_source(key)
    return found is not None and found.name == source


def _read_file(path: Path) -> dict[str, str | list[str]]:
    from predictors.given_files import describe_failure, read_toml

    try:
        content = read_toml(path)
    except (OSError, ValueError) as error:
        raise TracekitError(
            messages.CONFIGURATION_UNREADABLE(path=str(path), reason=describe_failure(error))
        ) from error
    for key in content:
        if key not in KEYS:
            known = get_close_matches(key, KEYS, n=1) or KEYS
            raise TracekitError(messages.CONFIGURATION_KEY_UNKNOWN(path=str(path), key=key, known=list(known)))
    return {key: _read_value(path, key, value) for key, value in content.items()}


def _read_value(path: Path, key: str, value: Any) -> str | list[str]:
    """Return a value as the command line takes it."""
    if key == "price" and isinstance(value, Mapping):
        if all(isinstance(dollars, Real) and not isinstance(dollars, bool) for dollars in value.values()):
            return [f"{gpu}={float(dollars):.15g}" for gpu, dollars in value.items()]
    elif key in (*TARGET_KEYS, "price"):
        several = value if isinstance(value, list) else [value]
        if all(isinstance(one, str) for one in several):
            return several
    elif isinstance(value, str):
        return str(path.parent / value) if key == "prices" else value
    raise TracekitError(messages.CONFIGURATION_VALUE(path=str(path), key=key))
