"""Check the recorded inputs of ops; inputs in another format than the profiler's are dropped."""

import json
from collections.abc import Callable
from math import prod
from typing import Any

import polars as pl

from tracekit.arrays import list_distinct
from tracekit.bounds import MAX_OP_ELEMENTS
from tracekit.schema import OP_INPUT_COLUMNS


def drop_malformed_inputs(ops: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Drop inputs that are not lists as the profiler writes them, and count the ops that lost theirs.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    malformed = {name: _find_malformed(ops[name], form) for name, form in INPUT_CHECKS.items()}
    if not any(malformed.values()):
        return ops, 0
    bad = pl.any_horizontal(pl.col(name).is_in(texts) for name, texts in malformed.items())
    bad = bad.fill_null(value=False)
    count = int(ops.select(bad.sum()).item())
    return ops.with_columns(pl.when(~bad).then(pl.col(name)).alias(name) for name in INPUT_CHECKS), count


def _find_malformed(texts: pl.Series, form: Callable[[Any], bool]) -> list[str]:
    return [text for text in list_distinct(texts) if not _has_form(text, form)]


def _has_form(text: str, form: Callable[[Any], bool]) -> bool:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, list) and all(map(form, values))


def _is_shape(value: Any) -> bool:
    """Return whether the value is a shape that some machine could hold, or a list of such shapes (tensor list)."""
    return _is_nested(value, _are_sizes)


def _is_stride(value: Any) -> bool:
    """Return whether the value is a list of integers, or a list of such lists (tensor list)."""
    return _is_nested(value, _are_whole)


def _is_nested(value: Any, form: Callable[[list[Any]], bool]) -> bool:
    return isinstance(value, list) and (form(value) or all(isinstance(part, list) and form(part) for part in value))


def _are_sizes(values: list[Any]) -> bool:
    return (
        _are_whole(values) and min(values, default=0) >= 0 and prod(max(size, 1) for size in values) < MAX_OP_ELEMENTS
    )


def _are_whole(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


INPUT_CHECKS: dict[str, Callable[[Any], bool]] = dict(
    zip((column.name for column in OP_INPUT_COLUMNS), (_is_shape, _is_text, _is_stride, _is_text), strict=True)
)
"""Check of each input column: shapes, types, strides, and values as text."""
