"""Finding: chains of memory-bound kernels with little arithmetic each."""

from collections.abc import Iterator

import polars as pl

from tracekit.arrays import IN_ORDER
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, FindingContext
from tracekit.reporting.findings.finding import Evidence, Finding

FUSIBLE_FAMILIES = ("elementwise", "copy", "reduction", "softmax", "norm")
FIRST_INPUT_PATTERN = r"^\[\[([\d,]+)\]"
CHAIN_COLUMNS = ("kernel", "name", "op", "op_row", "family", "graph_node_id", "ts_ns", "time_us")
MAX_SHOWN_OPS = 6
"""Maximum ops of a chain that are named."""


def find_unfused_chains(context: FindingContext) -> Iterator[Finding]:
    """Find chains of neighbours on a stream whose fusion saves at least 1 % of the step.

    A fused chain is assumed to take as long as its longest kernel, which moves at least the chain's input and output.
    """
    if context.select_families(*FUSIBLE_FAMILIES).is_empty():
        return
    chains = _find_chains(context.kernels)
    if chains.is_empty():
        return
    saves_us = context.compute_merge_saving_us(chains, "chain")
    if not context.is_worth_reporting(saves_us):
        return
    per_step = chains.height / context.step_count
    template = told.UNFUSED_CHAINS_OF_COMPILED if context.is_compiled else told.UNFUSED_CHAINS
    yield Finding(
        message=template(kernels=per_step, kernels_us=context.sum_per_step_us(chains)),
        saves_us=saves_us,
        evidence=_list_chain_evidence(context, chains),
    )


def _find_chains(kernels: pl.DataFrame) -> pl.DataFrame:
    """Return kernels of different ops in a row on a stream with inputs of one shape, numbered by ``chain``."""
    lane = [column for column in ("rank", "step", "device", "stream") if column in kernels.columns]
    fusible = (
        pl.col("family").is_in(FUSIBLE_FAMILIES)
        & pl.col("graph_node_id").is_null()
        & pl.col("first_input").is_not_null()
    )
    ordered = (
        kernels.lazy()
        .select(*lane, *CHAIN_COLUMNS, first_input=pl.col("input_dims").str.extract(FIRST_INPUT_PATTERN))
        .sort(*lane, "ts_ns")
    )
    alike = pl.struct(*lane, "first_input", fusible=fusible)
    numbered = ordered.with_columns(chain=(alike != alike.shift(1)).fill_null(True).cum_sum()).filter(fusible)
    return numbered.filter(pl.col("op_row").n_unique().over("chain") > 1).collect(engine=IN_ORDER)


def _list_chain_evidence(context: FindingContext, chains: pl.DataFrame) -> tuple[Evidence, ...]:
    """List the sequences of ops with most time."""
    sequences = chains.group_by("chain", maintain_order=True).agg(
        pl.coalesce("op", "name").alias("ops"), pl.col("time_us").sum()
    )
    alike = sequences.group_by("ops", maintain_order=True).agg(pl.col("time_us").sum(), count=pl.len())
    longest = alike.sort("time_us", descending=True, maintain_order=True).head(MAX_EVIDENCE_ROWS)
    return tuple(
        Evidence(
            what=" → ".join(row["ops"][:MAX_SHOWN_OPS])
            + (f" → {len(row['ops']) - MAX_SHOWN_OPS} more" if len(row["ops"]) > MAX_SHOWN_OPS else ""),
            time_us=row["time_us"] / context.step_count,
            detail=shown.CHAIN_RAN(times=row["count"] / context.step_count),
        )
        for row in longest.iter_rows(named=True)
    )
