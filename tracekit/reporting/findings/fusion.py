"""Chains of kernels that each read and write memory for little arithmetic."""

from collections.abc import Iterator

import polars as pl

from tracekit.reporting.findings.case import ROWS, Case
from tracekit.reporting.findings.model import Evidence, Finding
from tracekit.units import counted, duration

FUSIBLE = ("elementwise", "copy", "reduction", "softmax", "norm")
FIRST_INPUT = r"^\[\[([\d,]+)\]"
SHOWN = 6
"""Ops of a chain that are named."""


def find(case: Case) -> Iterator[Finding]:
    """Fires if fusing chains of neighbours on a stream saves a hundredth of the step.

    A fused chain is taken to last as long as the longest kernel in it, which moves at least the chain's ends.
    """
    chains = _chains(case.kernels)
    if chains.is_empty():
        return
    saves_us = case.saved_by_merging(chains, "chain")
    if not case.worth(saves_us):
        return
    yield Finding(
        kind="unfused-chains",
        title=(
            f"{counted(chains.height / case.steps)} memory-bound kernels follow each other in chains, "
            f"{duration(case.per_step(chains))} of a step."
        ),
        advice="torch.compile fuses them; by hand: fused layers (norm with residual, bias with activation).",
        saves_us=saves_us,
        evidence=_evidence(case, chains),
    )


def _chains(kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels of different ops that follow each other on a stream over inputs of one shape, numbered by ``chain``."""
    lane = [column for column in ("rank", "step", "device", "stream") if column in kernels.columns]
    fusible = pl.col("family").is_in(FUSIBLE) & pl.col("graph_node_id").is_null() & pl.col("first_input").is_not_null()
    ordered = kernels.with_columns(first_input=pl.col("input_dims").str.extract(FIRST_INPUT)).sort(*lane, "ts_ns")
    alike = pl.struct(*lane, "first_input", fusible=fusible)
    numbered = ordered.with_columns(chain=(alike != alike.shift(1)).fill_null(True).cum_sum()).filter(fusible)
    return numbered.filter(pl.col("op_row").n_unique().over("chain") > 1)


def _evidence(case: Case, chains: pl.DataFrame) -> tuple[Evidence, ...]:
    """The sequences of ops with most time."""
    sequences = chains.group_by("chain", maintain_order=True).agg(
        pl.coalesce("op", "name").alias("ops"), pl.col("time_us").sum()
    )
    alike = sequences.group_by("ops", maintain_order=True).agg(pl.col("time_us").sum(), count=pl.len())
    rows = alike.sort("time_us", descending=True, maintain_order=True).head(ROWS).iter_rows(named=True)
    return tuple(
        Evidence(
            what=" → ".join(row["ops"][:SHOWN])
            + (f" → {len(row['ops']) - SHOWN} more" if len(row["ops"]) > SHOWN else ""),
            time_us=row["time_us"] / case.steps,
            detail=f"{counted(row['count'] / case.steps)} times",
        )
        for row in rows
    )
