"""Read tables from a JSON file: a list, ``{"tables": [...]}``, or the configuration of a DLRM.

    [{"num_embeddings": 40000000, "embedding_dim": 128, "pooling_factor": 20, "name": "user", "alpha": 1.05},
     "26*1000000x128:1"]

Names of keys as in torchrec's ``EmbeddingBagConfig``, or as in a DLRM's configuration, which also tells the samples of
a rank (``batch_size``) and what updates the tables (``table_optimizer``).
"""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tracekit.bounds import (
    MAX_COUNT,
    MAX_MODEL_CONFIG_BYTES,
    MAX_POOLING,
    MAX_TABLE_ROWS,
    MAX_TABLE_WIDTH,
    MAX_TABLES,
    MAX_ZIPF_ALPHA,
)
from tracekit.errors import RequestError
from tracekit.messages import layouts as messages
from tracekit.models.dlrm import TABLE_KEYS, TableSpec, parse_table_spec
from tracekit.sharding.errors import ShardingError
from tracekit.sharding.tables import DEFAULT_OPTIMIZER, WEIGHT_BYTES, PlannedTable, TableDefaults, expand_specs
from tracekit.workload.ops.table_lookups import OPTIMIZER_STATE

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

    Args:
        path: The file.
        defaults: What counts for tables that don't tell it themselves.

    Returns:
        The tables, and the samples that a rank takes in a step; 0 where the file doesn't tell them.

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
        with path.open("rb") as file:
            text = file.read(MAX_MODEL_CONFIG_BYTES + 1)
        return msgspec.json.decode(text) if len(text) <= MAX_MODEL_CONFIG_BYTES else None
    except (OSError, msgspec.DecodeError, RecursionError) as error:
        raise ShardingError(messages.SHARDING_UNREADABLE(path=str(path), reason=str(error))) from error


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
