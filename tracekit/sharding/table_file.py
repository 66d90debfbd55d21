"""Read tables from a JSON file: a list, ``{"tables": [...]}``, or the configuration of a DLRM.

    [{"num_embeddings": 40000000, "embedding_dim": 128, "pooling_factor": 20, "name": "user", "alpha": 1.05},
     "26*1000000x128:1"]

Names of keys as in torchrec's ``EmbeddingBagConfig``, or as in a DLRM's configuration.
"""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from tracekit.bounds import (
    MAX_MODEL_CONFIG_BYTES,
    MAX_POOLING,
    MAX_TABLE_ROWS,
    MAX_TABLE_WIDTH,
    MAX_TABLES,
    MAX_ZIPF_ALPHA,
)
from tracekit.dlrm_config import TABLE_KEYS
from tracekit.embedding_table_spec import TableSpec, parse_table_spec
from tracekit.errors import RequestError
from tracekit.messages import sharding as messages
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


def read_table_file(path: Path, defaults: TableDefaults) -> list[PlannedTable]:
    """Read the tables of a file.

    Args:
        path: The file.
        defaults: What counts for tables that don't tell it themselves.

    Raises:
        ShardingError: It can't be read, or a table is impossible.
    """
    entries = _read_entries(path)
    tables: list[PlannedTable] = []
    for number, entry in enumerate(entries):
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
    return tables


def is_table_file(path: Path) -> bool:
    """Return whether a file lists tables, and is no trace."""
    try:
        given = _decode(path)
    except (ShardingError, UnicodeError):
        return False
    if isinstance(given, dict):
        return "tables" in given
    return isinstance(given, list) and not any(isinstance(entry, dict) and "ph" in entry for entry in given)


def _read_entries(path: Path) -> list[Any]:
    given = _decode(path)
    entries = given.get("tables") if isinstance(given, dict) else given
    if not isinstance(entries, list):
        raise ShardingError(messages.SHARDING_UNREADABLE(path=str(path), reason="it has no list of tables"))
    return entries


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
    kind = (found.data_type or defaults.weight_type).lower()
    updated = (found.optimizer or defaults.optimizer or DEFAULT_OPTIMIZER).lower().removeprefix(EXACT_PREFIX)
    for name, value, known in (("data_type", kind, WEIGHT_BYTES), ("optimizer", updated, OPTIMIZER_STATE)):
        if value not in known:
            raise ValueError(f"its {name} is {value!r}, known are {', '.join(known)}")
    spec = TableSpec(found.count, found.rows, found.width, found.pooling, found.alpha)
    tables = expand_specs([spec], TableDefaults(kind, updated, defaults.pattern), first)
    names = [table.name for table in tables] if found.name is None else _number_names(found.name, found.count)
    features = max(len(found.feature_names or ()), 1)
    return [replace(table, name=name, features=features) for table, name in zip(tables, names, strict=True)]


def _number_names(name: str, count: int) -> list[str]:
    return [name] if count == 1 else [f"{name}_{number}" for number in range(count)]
