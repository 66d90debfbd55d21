"""What ops note of their inputs, in the form in which the profiler writes it; anything else is left out."""

import json
from collections.abc import Callable
from math import prod
from typing import Any

import polars as pl

from tracekit.schema import SIGNATURE

# More than a rack of GPUs holds, so that counts of bytes and operations fit 64 bits.
MOST_ELEMENTS = 1 << 44


def readable(ops: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Ops without inputs that aren't lists as the profiler writes them, and how many ops lost theirs.

    Args:
        ops: As in the trace (``schema.OPS``).
    """
    bad = pl.any_horizontal(pl.col(name).is_in(_unreadable(ops[name], form)) for name, form in FORMS.items())
    bad = bad.fill_null(value=False)
    count = int(ops.select(bad.sum()).item())
    return ops.with_columns(pl.when(~bad).then(pl.col(name)).alias(name) for name in FORMS), count


def _unreadable(texts: pl.Series, form: Callable[[Any], bool]) -> list[str]:
    return [text for text in texts.drop_nulls().unique() if not _has_form(text, form)]


def _has_form(text: str, form: Callable[[Any], bool]) -> bool:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, list) and all(map(form, values))


def _is_shape(value: Any) -> bool:
    """Sizes of a tensor that some machine could hold, or of a list of tensors such lists."""
    return _is_nested(value, _are_sizes)


def _is_stride(value: Any) -> bool:
    """Numbers, or of a list of tensors such lists."""
    return _is_nested(value, _are_whole)


def _is_nested(value: Any, form: Callable[[list[Any]], bool]) -> bool:
    return isinstance(value, list) and (form(value) or all(isinstance(part, list) and form(part) for part in value))


def _are_sizes(values: list[Any]) -> bool:
    return _are_whole(values) and min(values, default=0) >= 0 and prod(max(size, 1) for size in values) < MOST_ELEMENTS


def _are_whole(values: list[Any]) -> bool:
    return all(type(value) is int for value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


FORMS: dict[str, Callable[[Any], bool]] = dict(
    zip((column.name for column in SIGNATURE), (_is_shape, _is_text, _is_stride, _is_text), strict=True)
)
"""Of the inputs of an op by column: shapes, types, strides, and values as text."""
