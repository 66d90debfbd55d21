"""A trace to its kernel table."""

from typing import Any

import polars as pl

from tracekit import schema
from tracekit.trace import RankTrace
from tracekit.workload import collectives
from tracekit.workload import steps as step_table
from tracekit.workload.classify import classify, is_helper
from tracekit.workload.names import copy_kind_of, dtype_of
from tracekit.workload.ops import Columns, work
from tracekit.workload.ops.conv import as_weight_gradient, is_weight_gradient
from tracekit.workload.owners import innermost_ops, launching_calls
from tracekit.workload.signature import ITEM_BYTES, Signature

CALL_SIGNATURE = ("op", "name", "kind", "input_dims", "input_types", "concrete_inputs")
DESCRIPTION = (
    "family", "dtype", "direction", "batch", "m", "n", "k", "heads", "kv_heads", "q_len", "kv_len", "head_dim",
    "causal", "rows", "cols", "flops", "bytes", "copy_kind",
)  # fmt: skip


def extract(trace: RankTrace) -> pl.DataFrame:
    """One row per GPU activity, joined to what launched it, with the work it does (``schema.KERNELS``).

    Rows keep the order of ``trace.activities``.
    """
    owned = _join_owners(trace)
    work_of = _describe(owned.select(CALL_SIGNATURE).unique())
    described = owned.rename({"bytes": "recorded_bytes"}).join(
        work_of, on=CALL_SIGNATURE, how="left", nulls_equal=True, maintain_order="left"
    )
    sized = described.with_columns(bytes=pl.coalesce("bytes", "recorded_bytes"))
    return schema.KERNELS.conform(_share(collectives.describe(sized)))


def has_work() -> pl.Expr:
    """Whether a kernel's work is known: its dimensions, or the bytes it moves."""
    return pl.any_horizontal(pl.col("m", "q_len", "bytes").is_not_null())


def _join_owners(trace: RankTrace) -> pl.DataFrame:
    """Activities with the call, op and step that launched them, and that op's inputs."""
    call = launching_calls(trace.activities, trace.calls)
    op_row = _gather(innermost_ops(trace.calls, trace.ops), call)
    step = _steps(trace, call)
    ops = {column.name: _gather(trace.ops[column.name], op_row) for column in (*schema.SIGNATURE, *schema.COLLECTIVE)}
    recorded = [pl.coalesce(column.name, ops.pop(column.name)) for column in schema.COLLECTIVE]
    return trace.activities.with_columns(
        *recorded, call=call, op_row=op_row, op=_gather(trace.ops["name"], op_row), step=step, **ops
    )


def _steps(trace: RankTrace, call: pl.Series) -> pl.Series:
    """The step that launched each activity; a trace without step marks is one step, whoever launched it."""
    steps = step_table.find(trace)
    if step_table.is_whole_trace(steps):
        return pl.repeat(step_table.WHOLE_TRACE, trace.activities.height, dtype=pl.Int64, eager=True)
    return step_table.assign(_gather(trace.calls["ts_ns"], call), steps)


def _gather(values: pl.Series, rows: pl.Series) -> pl.Series:
    """``values`` at ``rows``; null where the row is."""
    if values.is_empty():
        return pl.Series(values.name, [None] * len(rows), dtype=values.dtype)
    return values.gather(rows)


def _describe(signatures: pl.DataFrame) -> pl.DataFrame:
    """Family, dtype and work of each distinct kernel in each distinct call."""
    rows = [row | _describe_one(**row) for row in signatures.iter_rows(named=True)]
    dtypes = {name: schema.KERNELS.dtypes[name] for name in (*CALL_SIGNATURE, *DESCRIPTION)}
    return pl.DataFrame(rows, schema=dtypes)


def _describe_one(
    op: str | None,
    name: str,
    kind: str,
    input_dims: str | None,
    input_types: str | None,
    concrete_inputs: str | None,
) -> dict[str, Any]:
    family = classify(kind, name, op)
    if kind == "memcpy":
        return {"family": family, "copy_kind": copy_kind_of(name)}
    by_name = dtype_of(name)
    if op is None or input_dims is None or kind != "kernel":
        return {"family": family, "dtype": by_name}
    signature = Signature.parse(op, input_dims, input_types, concrete_inputs)
    dtype = "tf32" if by_name == "tf32" else signature.dtype or by_name
    columns = None if is_helper(family, op) else work(signature, family, ITEM_BYTES.get(by_name or "", 4))
    return {"family": family, "dtype": dtype, **_in_direction(columns or {}, name)}


def _in_direction(columns: Columns, kernel: str) -> Columns:
    backward = columns.get("direction") == "dgrad" and is_weight_gradient(kernel)
    return as_weight_gradient(columns) if backward else columns


def _share(kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels that do one op's work together share it by their measured time.

    Split products, but also any op on a tensor too large for 32-bit indexing, which PyTorch runs in pieces.
    """
    together = pl.col("kind") == "kernel", pl.col("op_row").is_not_null(), pl.col("family") != "collective", has_work()
    part = pl.col("dur_ns") / pl.col("dur_ns").sum().over("op_row", "family", "direction")
    return kernels.with_columns(share=pl.when(*together, part.is_finite()).then(part).otherwise(1.0))
