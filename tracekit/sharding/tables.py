"""Embedding tables as a sharding plan needs them: from text, a file, or a trace's look-ups.

A JSON file is a list, ``{"tables": [...]}``, or the configuration of a DLRM::

    [{"num_embeddings": 40000000, "embedding_dim": 128, "pooling_factor": 20, "name": "user", "alpha": 1.05},
     "26*1000000x128:1"]

Names of keys as in torchrec's ``EmbeddingBagConfig``, or as in a DLRM's configuration, which also tells the samples of
a rank (``batch_size``) and what updates the tables (``table_optimizer``).
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from predictors.given_files import describe_failure, read_regular_file
from tracekit.analysis.embedding_tables import TableKind, list_table_kinds
from tracekit.bounds import (
    MAX_COUNT,
    MAX_MODEL_CONFIG_BYTES,
    MAX_POOLING,
    MAX_TABLE_ROWS,
    MAX_TABLE_WIDTH,
    MAX_TABLES,
    MAX_ZIPF_ALPHA,
)
from tracekit.errors import RequestError, TracekitError
from tracekit.messages import layouts as messages
from tracekit.models.dlrm import DEFAULT_POOLING, TABLE_KEYS, TableSpec, parse_table_spec
from tracekit.models.lookups import IndexPattern, ZipfPattern
from tracekit.program import Program
from tracekit.workload.ops.table_lookups import OPTIMIZER_STATE, TableLookup, compute_state_bytes


class ShardingError(TracekitError):
    """Tables can't be read, or don't fit."""


WEIGHT_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of a weight by its type."""
DEFAULT_WEIGHT_TYPE = "fp32"
DEFAULT_OPTIMIZER = "rowwise_adagrad"
"""The optimizer of torchrec's examples and of most jobs with tables of billions of weights."""


@dataclass(frozen=True, slots=True)
class TableDefaults:
    """What counts for tables that don't tell it themselves.

    Attributes:
        optimizer: What updates them; None for what a trace tells, else ``DEFAULT_OPTIMIZER``.
        pattern: How rows are looked up; None if nobody knows.
    """

    weight_type: str = DEFAULT_WEIGHT_TYPE
    optimizer: str | None = None
    pattern: IndexPattern | None = None


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """An embedding table that is to be sharded.

    Attributes:
        name: Its name, unique in a plan.
        width: Elements of a row.
        pooling: Mean look-ups of a sample for each feature, whose rows are summed.
        pattern: How its rows are looked up; None if nobody knows.
        weight_type: A key of ``WEIGHT_BYTES``.
        optimizer: A key of ``table_lookups.OPTIMIZER_STATE``.
        features: Features that share the table.
    """

    name: str
    rows: int
    width: int
    pooling: float = DEFAULT_POOLING
    pattern: IndexPattern | None = None
    weight_type: str = DEFAULT_WEIGHT_TYPE
    optimizer: str = DEFAULT_OPTIMIZER
    features: int = 1

    @property
    def item_bytes(self) -> int:
        """Bytes of a weight."""
        return WEIGHT_BYTES[self.weight_type]

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights."""
        return float(self.rows) * self.width * self.item_bytes

    @property
    def state_bytes(self) -> float:
        """Bytes of the optimizer's state."""
        return self.rows * compute_state_bytes(self.optimizer, self.width)

    @property
    def dense_step_bytes(self) -> float:
        """Bytes that a replica's optimizer moves: a gradient is cleared and read, all weights and states change."""
        return 4 * self.weight_bytes + 2 * self.state_bytes

    def describe_lookup(self, rows: int, width: int, indices: float, bags: float) -> TableLookup:
        """Return the look-ups in a shard of ``rows``: of ``indices`` rows, which are summed to ``bags``."""
        return TableLookup(max(rows, 1), width, indices, bags, self.item_bytes, self.pattern)


def expand_specs(specs: Iterable[TableSpec], defaults: TableDefaults, first: int = 0) -> list[PlannedTable]:
    """Return the tables that a user wrote as ``26*1000000x128:20``, named ``table_0`` and so on as torchrec does."""
    kinds = [
        PlannedTable(
            name="",
            rows=spec.rows,
            width=spec.width,
            pooling=spec.pooling,
            pattern=defaults.pattern if spec.alpha is None else ZipfPattern(spec.alpha),
            weight_type=defaults.weight_type,
            optimizer=defaults.optimizer or DEFAULT_OPTIMIZER,
        )
        for spec in specs
        for _ in range(spec.count)
    ]
    return [replace(kind, name=f"table_{number}") for number, kind in enumerate(kinds, first)]


EXACT_PREFIX = "exact_"
"""Of names of FBGEMM's optimizers."""


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    """A table of the file, after its keys are renamed."""

    rows: Annotated[int, Meta(ge=1, le=MAX_TABLE_ROWS)]
    width: Annotated[int, Meta(ge=1, le=MAX_TABLE_WIDTH)]
    pooling: Annotated[float, Meta(ge=0, le=MAX_POOLING)] = 1.0
    alpha: Annotated[float, Meta(ge=0, le=MAX_ZIPF_ALPHA)] | None = None
    count: Annotated[int, Meta(ge=1, le=MAX_TABLES)] = 1
    name: str | None = None
    feature_names: list[str] | None = None
    data_type: str | None = None
    optimizer: str | None = None


class _File(msgspec.Struct):
    """A file that is no bare list; other keys of a DLRM's configuration say nothing about its tables."""

    tables: list[Any]
    batch_size: Annotated[int, Meta(ge=1, le=MAX_COUNT)] | None = None
    table_optimizer: str | None = None


def read_table_file(path: Path, defaults: TableDefaults) -> tuple[list[PlannedTable], int]:
    """Read the tables of a file.

    Raises:
        ShardingError: It can't be read, or a table is impossible.
    """
    file = _read_file(path)
    defaults = replace(defaults, optimizer=defaults.optimizer or file.table_optimizer)
    tables: list[PlannedTable] = []
    for number, entry in enumerate(file.tables):
        try:
            tables += _parse_entry(entry, defaults, len(tables))
        except (msgspec.ValidationError, RequestError, ValueError) as error:
            reason = error.message if isinstance(error, RequestError) else str(error)
            raise ShardingError(
                messages.SHARDING_TABLE_MALFORMED(number=number, path=str(path), reason=reason.rstrip("."))
            ) from error
        if len(tables) > MAX_TABLES:
            raise ShardingError(messages.SHARDING_TABLES_TOO_MANY(path=str(path), most=MAX_TABLES))
    names = [table.name for table in tables]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        reason = f"two are called {twice}"
        raise ShardingError(messages.SHARDING_TABLE_MALFORMED(number=names.index(twice), path=str(path), reason=reason))
    return tables, file.batch_size or 0


def is_table_file(path: Path) -> bool:
    """Return whether a file lists tables, and is no trace."""
    try:
        given = _decode(path)
    except (ShardingError, UnicodeError):
        return False
    if isinstance(given, dict):
        return "tables" in given
    return isinstance(given, list) and not any(isinstance(entry, dict) and "ph" in entry for entry in given)


def _read_file(path: Path) -> _File:
    given = _decode(path)
    try:
        file = msgspec.convert(given if isinstance(given, dict) else {"tables": given}, _File)
        optimizer = _check_known("table_optimizer", file.table_optimizer, OPTIMIZER_STATE)
    except ValueError as error:
        reason = str(error).rstrip(".")
        raise ShardingError(messages.SHARDING_UNREADABLE(path=str(path), reason=reason)) from error
    return _File(file.tables, file.batch_size, optimizer)


def _check_known(name: str, value: str | None, known: Collection[str]) -> str | None:
    if value is not None and (value := value.lower().removeprefix(EXACT_PREFIX)) not in known:
        raise ValueError(f"its {name} is {value!r}, known are {', '.join(known)}")
    return value


def _decode(path: Path) -> Any:
    try:
        text = read_regular_file(path, MAX_MODEL_CONFIG_BYTES + 1)
        return msgspec.json.decode(text) if len(text) <= MAX_MODEL_CONFIG_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        reason = describe_failure(error)
        raise ShardingError(messages.SHARDING_UNREADABLE(path=str(path), reason=reason)) from error


def _parse_entry(entry: Any, defaults: TableDefaults, first: int) -> list[PlannedTable]:
    if isinstance(entry, str):
        return expand_specs([parse_table_spec(entry)], defaults, first)
    if not isinstance(entry, dict):
        raise ValueError(f"it is {msgspec.json.encode(entry).decode():.40}")
    found = msgspec.convert({TABLE_KEYS.get(key, key): value for key, value in entry.items()}, _Entry)
    kind = _check_known("data_type", found.data_type, WEIGHT_BYTES) or defaults.weight_type
    updated = _check_known("optimizer", found.optimizer, OPTIMIZER_STATE) or defaults.optimizer or DEFAULT_OPTIMIZER
    spec = TableSpec(found.count, found.rows, found.width, found.pooling, found.alpha)
    tables = expand_specs([spec], TableDefaults(kind, updated, defaults.pattern), first)
    names = [table.name for table in tables] if found.name is None else _number_names(found.name, found.count)
    features = max(len(found.feature_names or ()), 1)
    return [replace(table, name=name, features=features) for table, name in zip(tables, names, strict=True)]


def _number_names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}_{number}" for number in range(count)]


def find_tables(program: Program, defaults: TableDefaults) -> tuple[list[PlannedTable], int]:
    """Find the tables of all ranks, and the samples that a rank takes in a step.

    Tables that a job has split over its ranks are looked up for the samples of all ranks, those that each rank has a
    copy of for its own.

    The types of weights are those of the trace, whatever ``defaults`` say.

    Returns:
        The tables, and the samples; no tables where none were recorded with their shapes.
    """
    kinds = list_table_kinds(program)
    if not kinds:
        return [], 0
    samples = max(kind.bags for kind in kinds)
    tables = [table for number, kind in enumerate(kinds) for table in _name_tables(number, kind, defaults)]
    return tables, max(round(samples / program.trace.world_size), 1)


def _name_tables(number: int, kind: TableKind, defaults: TableDefaults) -> list[PlannedTable]:
    known = defaults.optimizer or kind.optimizer or DEFAULT_OPTIMIZER
    return [
        PlannedTable(
            name=f"rank{kind.rank}_lookup{number}_table{place}",
            rows=kind.rows,
            width=kind.width,
            pooling=kind.indices / max(kind.bags, 1.0),
            pattern=defaults.pattern,
            weight_type=next((name for name, size in WEIGHT_BYTES.items() if size == kind.item_bytes), "fp32"),
            optimizer=known if known in OPTIMIZER_STATE else DEFAULT_OPTIMIZER,
        )
        for place in range(kind.tables)
    ]
