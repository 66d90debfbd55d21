"""Find the embedding tables of a recommender, by the look-ups of a step."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import polars as pl

from tracekit.run import MeasuredRun
from tracekit.workload.ops.embedding import BAG_OPS
from tracekit.workload.ops.fbgemm_calls import LOOKUP_OPS, PLACEMENTS, parse_lookup
from tracekit.workload.ops.table_lookups import Placement
from tracekit.workload.signature import Signature

LOOKUP_COLUMNS = ("op", "input_dims", "input_types", "concrete_inputs")
DENSE = "dense"
"""Kind of look-ups whose tables no optimizer of FBGEMM updates."""
FP32_BYTES = 4
"""Bytes of a weight whose type isn't recorded."""


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


def find_embedding_tables(run: MeasuredRun) -> EmbeddingTables | None:
    """Find the tables; None where no look-up with sums over several rows was recorded with its shapes.

    Args:
        run: The measured run.
    """
    looked_up = run.kernels.filter(
        pl.col("op").is_in(BAG_OPS) | pl.col("op").str.contains(LOOKUP_OPS),
        pl.col("family") == "embedding",
        pl.col("rows").is_not_null(),
        run.is_in_chosen_steps,
    )
    calls = looked_up.group_by("rank", *LOOKUP_COLUMNS).agg(pl.col("op_row").n_unique().alias("calls"))
    found: Counter[_TableSet] = Counter()
    for row in calls.iter_rows(named=True):
        described = _describe_set(row)
        if described:
            found[described] += row["calls"]
    if not found:
        return None
    steps = max(run.measured_step.steps, 1)
    sets = [(one, max(round(count / steps), 1)) for one, count in found.items()]
    weights = [(one.weights * count, one.item_bytes) for one, count in sets if not one.on_host]
    widths = looked_up["cols"].to_numpy()
    return EmbeddingTables(
        tables=sum(one.tables * count for one, count in sets),
        weights=sum(held for held, _ in weights),
        weight_bytes=sum(held * size for held, size in weights),
        least_width=int(widths.min()),
        most_width=int(widths.max()),
        indices=round(int(looked_up["rows"].sum()) / steps),
        optimizers=tuple(sorted({one.optimizer for one in found if one.optimizer})),
        on_host=sum(one.tables * count for one, count in sets if one.on_host or not one.weights),
    )


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
    return _TableSet(row["rank"], kind, tables.tables, tables.weights, tables.weight_bytes, on_host)
