"""A figure of the report is declared once, beside the field that holds it; the tables of every form are made from that.

The annotation of ``RankTime.busy_us`` says what it means, and what tables for people head it with; its name's ending
says its unit, and so how it is shown::

    busy_us: Annotated[float, Column("Summed time of its kernels.", "busy")]

A property whose return type is annotated so declares a figure that is worked out; its docstring is the meaning
(:class:`tracekit.reporting.step_row.StepRow`).
"""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import polars as pl

from tracekit.format import format_count, format_duration, format_megabytes, format_percent, format_rate
from tracekit.messages import Message
from tracekit.reporting.figure import Figure
from tracekit.schema import TableColumn, TableSchema

DTYPES: dict[Any, pl.DataType | type[pl.DataType]] = {
    str: pl.String,
    int: pl.Int64,
    float: pl.Float64,
    bool: pl.Boolean,
    Message: pl.String,
    tuple: pl.String,
}
"""Type of a column by that of its field."""
UNITS: dict[str, Callable[[Any], str]] = {
    "_us": format_duration,
    "gbps": format_rate,
    "bytes": format_megabytes,
    "share": format_percent,
    "utilization": format_percent,
    "count": format_count,
    "kernels": format_count,
}
"""How tables for people show a figure, by how its name ends."""
FIGURE_ENDS = {
    "": ("likely", "."),
    "_low": ("low", ", lower end of the 90 % interval."),
    "_high": ("high", ", upper end."),
}
"""Columns of a figure with an interval: ending of the name, the figure's part, and what is added to the meaning."""


@dataclass(frozen=True, slots=True)
class Column:
    """What a figure is, wherever it stands.

    Attributes:
        meaning: What it means, with the unit where its name doesn't give it; of a property, its docstring.
        heading: What it is headed with in tables for people; empty of a figure that only wide tables have.
        show: Formats it there; None to go by how its name ends.
        name: Its name in files, where that isn't the field's.
    """

    meaning: str = ""
    heading: str = ""
    show: Callable[[Any], str] | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Field:
    """A field that has a column, of one of a table's data classes."""

    name: str
    kind: Any
    column: Column
    of: type


@dataclass(frozen=True)
class Table:
    """A table whose rows are objects of one data class, or of several side by side.

    Attributes:
        name: Its name, as a sheet has it.
        doc: What it holds.
        kinds: The data classes.
        order: Fields whose columns it has, in this order; empty for all.
    """

    name: str
    doc: str
    kinds: tuple[type, ...]
    order: tuple[str, ...] = ()

    @cached_property
    def schema(self) -> TableSchema:
        """Its columns in files; a figure with an interval has three."""
        columns = (column for one in self._fields for column in _list_file_columns(one))
        return TableSchema(self.name, self.doc, tuple(columns))

    @cached_property
    def columns(self) -> dict[str, Column]:
        """What each field that has a column is."""
        return {one.name: one.column for one in self._fields}

    @cached_property
    def shown(self) -> dict[str, Column]:
        """Those with a heading."""
        return {name: column for name, column in self.columns.items() if column.heading}

    @cached_property
    def _fields(self) -> list[_Field]:
        found = {one.name: one for kind in self.kinds for one in _find_fields(kind)}
        return [found[name] for name in self.order or found]

    def show(self, name: str, value: Any) -> str:
        """Format a figure for people; a dash where it isn't known."""
        if value is None:
            return "–"
        ending = next((known for ending, known in UNITS.items() if name.endswith(ending)), str)
        return (self.columns[name].show or ending)(value)

    def show_rows(
        self, rows: Iterable[Any], without: Sequence[str] = ()
    ) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Return headings and cells for people, but for some columns."""
        names = [name for name in self.shown if name not in without]
        cells = [tuple(self.show(name, getattr(row, name)) for name in names) for row in rows]
        return tuple(self.columns[name].heading for name in names), cells

    def build_frame(self, rows: Iterable[Any]) -> pl.DataFrame:
        """Build the frame of some rows: objects of the table's data class, or tuples of one of each."""
        parts = [row if isinstance(row, tuple) else (row,) for row in rows]
        places = {kind: place for place, kind in enumerate(self.kinds)}
        data: dict[str, list[object]] = {}
        for one in self._fields:
            values = [getattr(row[places[one.of]], one.name, None) for row in parts]
            data |= _spread_values(one, values)
        return self.schema.build_frame(data)


def describe_fields(kind: type) -> dict[str, str]:
    """Return the meaning of each field of a data class that declares one."""
    return {one.name: one.column.meaning for one in _find_fields(kind)}


def _find_fields(kind: type) -> list[_Field]:
    hints = get_type_hints(kind, include_extras=True)
    found = [one for field in fields(kind) for one in _read_column(kind, field.name, hints[field.name])]
    for name, value in vars(kind).items():
        if isinstance(value, property) and value.fget is not None:
            hint = get_type_hints(value.fget, include_extras=True)["return"]
            for one in _read_column(kind, name, hint):
                found.append(replace(one, column=replace(one.column, meaning=inspect.getdoc(value) or "")))
    return found


def _read_column(kind: type, name: str, hint: Any) -> Iterator[_Field]:
    plain, *extras = get_args(hint) or (None,)
    yield from (_Field(name, _strip_none(plain), one, kind) for one in extras if isinstance(one, Column))


def _strip_none(kind: Any) -> Any:
    """Return ``str`` for ``str | None``, and ``tuple`` for ``tuple[str, ...]``."""
    known = [one for one in get_args(kind) if one is not NoneType]
    if get_origin(kind) is tuple:
        return tuple
    return known[0] if known else kind


def _list_file_columns(field: _Field) -> list[TableColumn]:
    name, meaning = field.column.name or field.name, field.column.meaning
    if field.kind is Figure:
        stem = meaning.removesuffix(".")
        return [TableColumn(f"{name}{end}", pl.Float64, f"{stem}{part}") for end, (_, part) in FIGURE_ENDS.items()]
    return [TableColumn(name, DTYPES[field.kind], meaning)]


def _spread_values(field: _Field, values: list[Any]) -> Mapping[str, list[object]]:
    name = field.column.name or field.name
    if field.kind is Figure:
        return {
            f"{name}{end}": [getattr(value, part, None) for value in values] for end, (part, _) in FIGURE_ENDS.items()
        }
    if field.kind is Message:
        return {name: [None if value is None else str(value) for value in values]}
    if field.kind is tuple:
        return {name: [None if value is None else ", ".join(value) for value in values]}
    return {name: values}
