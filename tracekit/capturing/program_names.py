"""Tell names of programs from names of traces."""

from collections.abc import Sequence
from pathlib import Path

CONFIG_SUFFIX = ".json"
HEAD_BYTES = 1 << 20


def is_program(inputs: Sequence[str]) -> bool:
    """Return whether a command's inputs name a program: ``FILE.py:FUNCTION``, or a model's ``config.json`` alone."""
    if len(inputs) != 1:
        return False
    given = Path(inputs[0])
    return strip_function(inputs[0]) != inputs[0] or (given.suffix == CONFIG_SUFFIX and is_config(given))


def strip_function(name: str) -> str:
    """Return the file of ``FILE.py:FUNCTION``; any other name as it is."""
    path, _, function = name.rpartition(":")
    return path if path.endswith(".py") and function.isidentifier() else name


def is_config(path: Path) -> bool:
    """Return whether a file is the configuration of a Hugging Face model."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return is_config_text(file.read(HEAD_BYTES))


def is_config_text(head: bytes) -> bool:
    """Return whether a file is one, by the beginning of its text."""
    return b'"model_type"' in head and b'"traceEvents"' not in head
