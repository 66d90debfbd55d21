"""A trace to its kernel table."""

import polars as pl

from tracekit import schema
from tracekit.trace import Captured, RankTrace
from tracekit.workload import (
    collectives,
    description,
    experts,
    functions,
    geometry,
    gradients,
    lists,
    outputs,
    parameters,
    phases,
    places,
    projections,
    repeats,
    short_rows,
    stacks,
    tokens,
)
from tracekit.workload import steps as step_table
from tracekit.workload.owners import at_rows, innermost_ops, launching_calls


def extract(trace: RankTrace, steps: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per GPU activity, joined to what launched it, with the work it does (``schema.KERNELS``).

    Rows keep the order of ``trace.activities``.

    Args:
        trace: What the rank recorded.
        steps: Its steps; by default those that its own marks tell.
    """
    owned = _join_owners(trace, step_table.find(trace) if steps is None else steps)
    work_of = description.of_calls(owned.select(description.CALL_SIGNATURE).unique())
    described = owned.rename({"bytes": "recorded_bytes"}).join(
        work_of, on=description.CALL_SIGNATURE, how="left", nulls_equal=True, maintain_order="left"
    )
    sized = described.with_columns(bytes=pl.coalesce("recorded_bytes", "bytes"))
    shared = _share(gradients.tell_apart(collectives.describe(sized, trace.ops)))
    repeated = repeats.inherit(shared.with_columns(work_from=_work_from()))
    launched = short_rows.fill(lists.fill(geometry.fill(projections.fill(repeated, trace.ops))))
    known = tokens.fill(experts.fill(launched), trace)
    return schema.KERNELS.conform(known.with_columns(phase=phases.phase_of("launched_in")))


def has_work() -> pl.Expr:
    """Whether a kernel's work is known: its dimensions, or the bytes it moves."""
    product = pl.all_horizontal(pl.col("m", "n", "k").is_not_null())
    return product | pl.any_horizontal(pl.col("q_len", "bytes").is_not_null())


def _work_from() -> pl.Expr:
    sized = pl.col("kind").is_in(["memcpy", "memset"]) | (pl.col("family") == "collective")
    return (
        pl.when(has_work() & pl.col("from_gradients"))
        .then(pl.lit("gradients"))
        .when(has_work() & sized)
        .then(pl.lit("recorded"))
        .when(has_work())
        .then(pl.lit("shapes"))
    )


def _join_owners(trace: RankTrace, steps: pl.DataFrame) -> pl.DataFrame:
    """Activities with the call, op and step that launched them, and that op's inputs."""
    call = launching_calls(trace.activities, trace.calls)
    op_row = at_rows(innermost_ops(trace.calls, trace.ops), call)
    columns = _of_ops(trace.ops, op_row)
    captured_row = pl.repeat(None, trace.activities.height, dtype=pl.Int64, eager=True)
    if trace.captured is not None:
        captured = trace.captured
        captured_row = at_rows(innermost_ops(captured.calls, captured.ops), captured.launched_by)
        replayed = captured_row.is_not_null()
        op_row = op_row.set(replayed, None)
        others = _of_ops(captured.ops, captured_row)
        columns = {name: others[name].zip_with(replayed, values) for name, values in columns.items()}
        columns |= _geometry(trace.activities, captured)
    module, line = stacks.launched_at(trace, call)
    recorded = [pl.coalesce(column.name, columns.pop(column.name)) for column in schema.COLLECTIVE]
    return (
        trace.activities.with_columns(
            *recorded,
            call=call,
            op_row=op_row,
            captured_row=captured_row,
            step=_steps(trace, call, steps),
            launched_in=phases.launched_in(trace, call),
            module=module,
            python_line=line,
            **columns,
        )
        .pipe(places.of_products)
        .pipe(places.of_recurrent)
        .with_columns(elements=parameters.over_all(parameters.elements_by_blocks(trace.ops)))
    )


def _of_ops(ops: pl.DataFrame, rows: pl.Series) -> dict[str, pl.Series]:
    """What ops tell of the activities that they own, by column."""
    columns = (ops[column.name] for column in (*schema.SIGNATURE, *schema.COLLECTIVE))
    named = (
        ops["name"].alias("op"),
        outputs.infer(ops),
        outputs.quantised(ops),
        *functions.forward_inputs(ops),
        *columns,
    )
    return {values.name: at_rows(values, rows) for values in named}


def _geometry(activities: pl.DataFrame, captured: Captured) -> dict[str, pl.Series]:
    """Grid of the activities; of a graph's, which profilers don't note, that of the captured call."""
    noted = {name: activities[name] for name in ("blocks", "threads_per_block")}
    return {
        name: values.zip_with(values.is_not_null(), at_rows(captured.calls[name], captured.launched_by))
        for name, values in noted.items()
    }


def _steps(trace: RankTrace, call: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """The step that launched each activity; a trace without step marks is one step, whoever launched it."""
    if step_table.is_whole_trace(steps):
        return pl.repeat(step_table.WHOLE_TRACE, trace.activities.height, dtype=pl.Int64, eager=True)
    return step_table.assign(at_rows(trace.calls["ts_ns"], call), steps)


def _share(kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels that do one op's work together share it by their measured time.

    Split-K GEMMs, but also any op on a tensor too large for 32-bit indexing, which PyTorch runs in pieces.
    """
    owned = pl.any_horizontal(pl.col("op_row", "captured_row").is_not_null())
    # Every replay of a graph runs its captured ops once.
    owner = pl.struct("op_row", "captured_row", pl.when(pl.col("captured_row").is_not_null()).then("call"))
    together = pl.col("shares"), owned, pl.col("family") != "collective", has_work()
    part = pl.col("dur_ns") / pl.col("dur_ns").sum().over(owner, "family", "direction", "shares")
    return kernels.with_columns(share=pl.when(*together, part.is_finite()).then(part).otherwise(1.0))
