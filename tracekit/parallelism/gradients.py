"""The gradients of a traced job, which DDP, FSDP and the memory estimate share."""

from math import gcd

import polars as pl

from tracekit.arrays import select_any
from tracekit.kept import keep_on_first
from tracekit.program import Program
from tracekit.workload.parameters import ACCUMULATE_GRAD_OP
from tracekit.workload.signature import Signature, Tensor

EMBEDDING_TABLE_OPS = r"(?i)embedding_bag|embeddingbag|fbgemm"
"""Ops on embedding tables, whose gradients are not accumulated as dense tensors."""

AUTOGRAD_NODE_PREFIX = "autograd::engine::evaluate_function: "
"""Prefix of the names of autograd's backward nodes."""


@keep_on_first
def find_gradients(program: Program) -> list[Tensor] | None:
    """Find the gradients that one backward pass accumulates, one per parameter; None where none were recorded."""
    calls = program.trace.ops[select_any(program.trace.ops["name"], (ACCUMULATE_GRAD_OP,))]
    if calls.is_empty():
        return None
    table = calls.filter(pl.col("input_dims").is_not_null() & is_in_first_step(program))
    described = list(table.sort("ts_ns").select("input_dims", "input_types").iter_rows())
    if not described:
        return None
    one_pass = described[: len(described) // _count_backward_passes(program, described)]
    return [
        tensor
        for dims, types in one_pass
        for tensor in Signature.parse(ACCUMULATE_GRAD_OP, dims, types, None).get_tensors(0)
    ]


def _count_backward_passes(program: Program, rows: list[tuple[str, str]]) -> int:
    """Count the backward passes in a step.

    The count is the largest number that splits the gradients into equal sequences and divides the calls of every other
    node.
    """
    nodes = program.trace.ops.filter(pl.col("name").str.starts_with(AUTOGRAD_NODE_PREFIX) & is_in_first_step(program))
    most = gcd(len(rows), *nodes.group_by("name").len()["len"])
    counts = (count for count in range(most, 0, -1) if most % count == 0)
    return next(count for count in counts if rows == rows[: len(rows) // count] * count)


def is_in_first_step(program: Program) -> pl.Expr:
    """Select the rows of the first chosen step."""
    step = program.chosen_steps.row(0, named=True)
    return pl.col("ts_ns").is_between(step["start_ns"], step["end_ns"])
