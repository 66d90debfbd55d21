"""Read files that users give: regular ones only, and TOML within the limits on its size and nesting."""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MAX_TOML_BYTES = 1 << 20
"""A description of a GPU or a cluster takes a few kB, with all of its sources 20 kB."""
MAX_TOML_NESTING = 16
"""Brackets inside brackets; descriptions need three."""


def read_regular_file(path: Path, most_bytes: int) -> bytes:
    """Read at most so many bytes of a file.

    A pipe, which may wait for ever, and a device, which may never end, are refused unread.

    Raises:
        OSError: It can't be read.
        ValueError: It is no regular file.
    """
    # Without O_NONBLOCK, opening a pipe waits for a writer; without O_BINARY, Windows changes what is read.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise ValueError("not a file")
        return file.read(most_bytes)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is no file, too large, no TOML or nested too deeply; the message says which.
    """
    data = read_regular_file(path, MAX_TOML_BYTES + 1)
    if len(data) > MAX_TOML_BYTES:
        raise ValueError(f"larger than {MAX_TOML_BYTES:,} bytes")
    try:
        document = tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        document = None
    except ValueError as error:
        raise ValueError(f"not TOML: {error}") from error
    if document is None or not _is_flat(document, MAX_TOML_NESTING):
        raise ValueError(f"nested more than {MAX_TOML_NESTING} deep")
    if not _has_short_integers(document):
        raise ValueError("not TOML: a whole number has more than 64 bits")
    return document


def describe_failure(error: Exception) -> str:
    """Return why a file couldn't be read, without the path."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _is_flat(value: object, levels: int) -> bool:
    """Return whether a value has at most so many levels of tables and lists."""
    return levels >= 0 and all(_is_flat(one, levels - 1) for one in _list_items(value))


def _has_short_integers(value: object) -> bool:
    """Return whether all whole numbers have 64 bits, as TOML wants it: Python reads, but doesn't write, longer ones."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return all(map(_has_short_integers, _list_items(value)))


def _list_items(value: object) -> Iterable[object]:
    """List what is in a table or list."""
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
