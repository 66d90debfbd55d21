"""Build the kernel table of a trace."""

import polars as pl

from tracekit import schema
from tracekit.arrays import gather_rows
from tracekit.rules import NO_RULES, RuleNames
from tracekit.trace import CapturedGraphs, RankTrace
from tracekit.workload import (
    autograd_functions,
    collectives,
    contradicted_names,
    grouped_sends,
    launch_sites,
    op_work,
    output_shapes,
    parameters,
    phases,
)
from tracekit.workload import steps as step_table
from tracekit.workload.owners import find_innermost_ops
from tracekit.workload.stored_weights import fill_stored_weights
from tracekit.workload.work_inference import DIRECTION_RULES, WORK_RULES, apply_work_rules
from tracekit.workload.work_inference.op_gemms import list_recurrent_gemms, number_op_gemms


def build_kernel_table(
    trace: RankTrace, steps: pl.DataFrame | None = None, without: RuleNames = NO_RULES
) -> pl.DataFrame:
    """Build the kernel table: one row per GPU activity, with its launch and its work (``schema.KERNELS``).

    Rows keep the order of ``trace.activities``.

    Args:
        trace: What the rank recorded.
        steps: The rank's steps; by default those found from the trace's own marks.
        without: Inference rules that are off.
    """
    owned = _join_owners(trace, step_table.find_steps(trace) if steps is None else steps, without)
    work_of = op_work.compute_work_of_calls(owned.select(op_work.CALL_COLUMNS).unique(), trace.indices)
    described = owned.rename({"bytes": "recorded_bytes"}).join(
        work_of, on=op_work.CALL_COLUMNS, how="left", nulls_equal=True, maintain_order="left"
    )
    sized = described.with_columns(bytes=pl.coalesce("recorded_bytes", "bytes"))
    sent = grouped_sends.fill_grouped_sends(sized, trace, collectives.ELEMENT_BYTES)
    named = collectives.describe_collectives(sent, trace.ops, trace.annotations)
    directed = apply_work_rules(DIRECTION_RULES, named, trace, without)
    told = _split_op_work(directed).with_columns(work_from=_classify_work_source())
    known = fill_stored_weights(apply_work_rules(WORK_RULES, told, trace, without))
    return schema.KERNELS.conform(known.with_columns(phase=phases.classify_phase("launched_in")))


def has_work() -> pl.Expr:
    """Return whether a kernel's work is known: its dimensions, or the bytes it moves."""
    product = pl.all_horizontal(pl.col("m", "n", "k").is_not_null())
    return product | pl.any_horizontal(pl.col("q_len", "bytes").is_not_null())


def _classify_work_source() -> pl.Expr:
    sized = pl.col("kind").is_in(["memcpy", "memset"]) | (pl.col("family") == "collective")
    return (
        pl.when(has_work() & pl.col("from_gradients"))
        .then(pl.lit("gradients"))
        .when(has_work() & sized)
        .then(pl.lit("recorded"))
        .when(has_work())
        .then(pl.lit("shapes"))
    )


def _join_owners(trace: RankTrace, steps: pl.DataFrame, without: RuleNames) -> pl.DataFrame:
    """Join the activities to the call, op and step that launched them, and to that op's inputs."""
    call = trace.launches.call
    op_of_call = find_innermost_ops(trace.calls, trace.ops)
    op_row = gather_rows(op_of_call, call)
    columns = _gather_op_columns(trace.ops, op_row)
    captured_row = pl.repeat(None, trace.activities.height, dtype=pl.Int64, eager=True)
    if trace.captured is not None:
        captured = trace.captured
        captured_row = gather_rows(find_innermost_ops(captured.calls, captured.ops), captured.call_row)
        replayed = captured_row.is_not_null()
        op_row = op_row.set(replayed, None)
        others = _gather_op_columns(captured.ops, captured_row)
        columns = {name: others[name].zip_with(replayed, values) for name, values in columns.items()}
        columns |= _fill_captured_grids(trace.activities, captured)
    module, line = launch_sites.find_launch_sites(trace, call)
    recorded = [pl.coalesce(column.name, columns.pop(column.name)) for column in schema.COLLECTIVE_COLUMNS]
    owned = trace.activities.with_columns(
        *recorded,
        call=call,
        op_row=op_row,
        captured_row=captured_row,
        step=_assign_steps(trace, call, steps),
        launched_in=phases.find_launch_phases(trace, call),
        module=pl.coalesce(module, "module_fqn"),
        python_line=line,
        **columns,
    )
    if contradicted_names.RULE.is_on(without):
        owned = contradicted_names.replace_contradicted_names(owned, op_of_call, trace.calls)
    return (
        owned.pipe(number_op_gemms)
        .pipe(list_recurrent_gemms)
        .with_columns(elements=parameters.infer_list_elements(parameters.count_elements_by_blocks(trace.ops)))
    )


def _gather_op_columns(ops: pl.DataFrame, rows: pl.Series) -> dict[str, pl.Series]:
    """Gather the columns of the ops that own the activities, by column name."""
    columns = (ops[column.name] for column in (*schema.OP_INPUT_COLUMNS, *schema.COLLECTIVE_COLUMNS))
    named = (
        ops["name"].alias("op"),
        output_shapes.infer_output_shapes(ops),
        output_shapes.infer_quantised_dtypes(ops),
        *autograd_functions.find_forward_inputs(ops),
        *columns,
    )
    return {values.name: gather_rows(values, rows) for values in named}


def _fill_captured_grids(activities: pl.DataFrame, captured: CapturedGraphs) -> dict[str, pl.Series]:
    """Return the activities' grids; kernels of CUDA graphs, recorded without a grid, get that of the captured call."""
    noted = {name: activities[name] for name in ("blocks", "threads_per_block")}
    return {
        name: values.zip_with(values.is_not_null(), gather_rows(captured.calls[name], captured.call_row))
        for name, values in noted.items()
    }


def _assign_steps(trace: RankTrace, call: pl.Series, steps: pl.DataFrame) -> pl.Series:
    """Return the step that launched each activity; a trace without step marks is one step for all activities."""
    if step_table.is_whole_trace(steps):
        return pl.repeat(step_table.WHOLE_TRACE_STEP, trace.activities.height, dtype=pl.Int64, eager=True)
    return step_table.assign_steps(gather_rows(trace.calls["ts_ns"], call), steps)


def _split_op_work(kernels: pl.DataFrame) -> pl.DataFrame:
    """Split an op's work over the kernels that do it together, by their measured times.

    This applies to split-K GEMMs, and to any op on a tensor too large for 32-bit indexing, which PyTorch runs in
    pieces.
    """
    owned = pl.any_horizontal(pl.col("op_row", "captured_row").is_not_null())
    # Every replay of a CUDA graph runs its captured ops once.
    owner = pl.struct("op_row", "captured_row", pl.when(pl.col("captured_row").is_not_null()).then("call"))
    together = pl.col("shares"), owned, pl.col("family") != "collective", has_work()
    part = pl.col("dur_ns") / pl.col("dur_ns").sum().over(owner, "family", "direction", "shares")
    return kernels.with_columns(share=pl.when(*together, part.is_finite()).then(part).otherwise(1.0))
