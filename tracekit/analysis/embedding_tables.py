"""Find the embedding tables of a recommender, by the look-ups of a step."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import polars as pl

from tracekit.program import Program
from tracekit.run import MeasuredRun
from tracekit.workload.ops.embedding import BAG_OPS
from tracekit.workload.ops.fbgemm import LOOKUP_OPS, PLACEMENTS, parse_lookup
from tracekit.workload.ops.table_lookups import DENSE, FP32_BYTES, OPTIMIZER_STATE, Placement, compute_state_bytes
from tracekit.workload.signature import Signature

LOOKUP_COLUMNS = ("op", "input_dims", "input_types", "concrete_inputs")


@dataclass(frozen=True, slots=True)
class EmbeddingTables:
    """Embedding tables that a step looks rows up in, of all measured ranks.

    Attributes:
        tables: Their number.
        weights: Elements of those in the GPUs' memory.
        weight_bytes: Bytes of these.
        least_width: Elements of a row, the mean of each look-up: the least.
        most_width: The most.
        indices: Rows looked up in a step, with repetitions.
        optimizers: Names of the optimizers that FBGEMM runs in the backward pass.
        on_host: Number of tables whose weights lie elsewhere.
    """

    tables: int
    weights: int
    weight_bytes: int
    least_width: int
    most_width: int
    indices: int
    optimizers: tuple[str, ...] = ()
    on_host: int = 0


@dataclass(frozen=True, slots=True)
class _TableSet:
    """The tables of one look-up, of which equal ones in a step are others."""

    rank: int
    optimizer: str
    tables: int
    weights: int
    item_bytes: int
    on_host: bool = False
    state_bytes: float = 0.0


def find_embedding_tables(run: MeasuredRun) -> EmbeddingTables | None:
    """Find the tables; None where no look-up with sums over several rows was recorded with its shapes."""
    looked_up = run.kernels.filter(_is_table_lookup(), run.is_in_chosen_steps)
    sets = list(_count_sets(looked_up, run.measured_step.steps).items())
    if not sets:
        return None
    weights = [(one.weights * count, one.item_bytes) for one, count in sets if not one.on_host]
    widths = looked_up["cols"].to_numpy()
    return EmbeddingTables(
        tables=sum(one.tables * count for one, count in sets),
        weights=sum(held for held, _ in weights),
        weight_bytes=sum(held * size for held, size in weights),
        least_width=int(widths.min()),
        most_width=int(widths.max()),
        indices=round(int(looked_up["rows"].sum()) / max(run.measured_step.steps, 1)),
        optimizers=tuple(sorted({one.optimizer for one, _ in sets if one.optimizer})),
        on_host=sum(one.tables * count for one, count in sets if one.on_host or not one.weights),
    )


@dataclass(frozen=True, slots=True)
class TableKind:
    """Equal tables that a rank looks rows up in.

    Attributes:
        tables: Their number.
        rows: Rows of each.
        width: Elements of a row.
        optimizer: What FBGEMM updates them by; empty for another one.
        indices: Rows looked up in a table in a step.
        bags: Sums of a table in a step.
    """

    rank: int
    tables: int
    rows: int
    width: int
    item_bytes: int
    optimizer: str
    indices: float
    bags: float


def list_table_kinds(program: Program) -> list[TableKind]:
    """List the tables that a step looks rows up in; those of one look-up count as equal."""
    looked_up = program.kernels.filter(_is_table_lookup(), program.is_in_chosen_steps)
    columns = ("rank", *LOOKUP_COLUMNS)
    calls = looked_up.group_by(columns, maintain_order=True).agg(pl.col("op_row").n_unique().alias("calls"))
    found: dict[_TableSet, list[tuple[TableKind, int]]] = {}
    for row in calls.iter_rows(named=True):
        one, kind = _describe_set(row), _describe_kind(row)
        if one is not None and kind is not None:
            found.setdefault(one, []).append((kind, row["calls"]))
    steps = max(program.chosen_steps["step"].n_unique(), 1)
    return [_merge_calls(calls_of_set, steps) for calls_of_set in found.values()]


def _merge_calls(calls: list[tuple[TableKind, int]], steps: int) -> TableKind:
    """Return the tables of equal look-ups, whose number of indices differs from step to step."""
    total = sum(count for _, count in calls)
    first = calls[0][0]
    indices, bags = (sum(getattr(kind, name) * count for kind, count in calls) / total for name in ("indices", "bags"))
    return replace(first, tables=first.tables * max(round(total / steps), 1), indices=indices, bags=bags)


def _describe_kind(row: dict[str, Any]) -> TableKind | None:
    signature = Signature.parse(*(row[name] for name in LOOKUP_COLUMNS))
    if signature.op in BAG_OPS:
        table, index, offset = (signature.get_tensor(place) for place in range(3))
        if table is None or index is None or offset is None or len(table.shape) != 2:
            return None
        item = int(table.get_item_bytes(FP32_BYTES))
        return TableKind(row["rank"], 1, table.shape[0], table.shape[1], item, "", index.numel, offset.numel)
    found = parse_lookup(signature)
    if found is None or not found.width or not found.looked_up.weights:
        return None
    known, kind = found.looked_up, "" if found.kind == DENSE else found.kind
    width = max(round(found.width), 1)
    rows = max(round(known.weights / (known.tables * found.width)), 1)
    each = (known.indices / known.tables, found.bags / known.tables)
    return TableKind(row["rank"], known.tables, rows, width, known.weight_bytes, kind, *each)


def _is_table_lookup() -> pl.Expr:
    """Select the kernels that look rows of embedding tables up."""
    named = pl.col("op").is_in(BAG_OPS) | pl.col("op").str.contains(LOOKUP_OPS)
    return named & (pl.col("family") == "embedding") & pl.col("rows").is_not_null()


def compute_table_bytes(program: Program) -> float:
    """Compute the bytes of tables on the GPU with their optimizers' states, of the rank that has most of them."""
    looked_up = program.kernels.filter(_is_table_lookup(), program.is_in_chosen_steps)
    held: Counter[int] = Counter()
    for one, count in _count_sets(looked_up, program.chosen_steps["step"].n_unique()).items():
        if not one.on_host:
            held[one.rank] += round(count * (one.weights * one.item_bytes + one.state_bytes))
    return max(held.values(), default=0)


def _count_sets(looked_up: pl.DataFrame, steps: int) -> dict[_TableSet, int]:
    """Count the equal sets of tables of a step, by its look-ups."""
    calls = looked_up.group_by("rank", *LOOKUP_COLUMNS).agg(pl.col("op_row").n_unique().alias("calls"))
    found: Counter[_TableSet] = Counter()
    for row in calls.iter_rows(named=True):
        described = _describe_set(row)
        if described:
            found[described] += row["calls"]
    return {one: max(round(count / max(steps, 1)), 1) for one, count in found.items()}


def _describe_set(row: dict[str, Any]) -> _TableSet | None:
    """Describe the tables of one look-up; None where its shapes aren't those of a known version."""
    signature = Signature.parse(*(row[name] for name in LOOKUP_COLUMNS))
    if signature.op in BAG_OPS:
        table = signature.get_tensor(0)
        if table is None:
            return None
        return _TableSet(row["rank"], "", 1, table.numel, int(table.get_item_bytes(FP32_BYTES)))
    found = parse_lookup(signature)
    if found is None:
        return None
    kind, tables = "" if found.kind == DENSE else found.kind, found.looked_up
    on_host = PLACEMENTS[tables.placement] is not Placement.DEVICE
    rows = tables.weights / found.width if found.width else 0.0
    state = rows * compute_state_bytes(kind, found.width) if kind in OPTIMIZER_STATE and found.width else 0.0
    return _TableSet(row["rank"], kind, tables.tables, tables.weights, tables.weight_bytes, on_host, state)
