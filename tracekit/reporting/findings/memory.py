"""Findings about memory: traffic that fusion, a fused optimizer or pinned buffers save, and how much of it is used."""

from collections.abc import Iterator

import polars as pl

from tracekit.arrays import IN_ORDER, find_matches
from tracekit.messages import findings as told
from tracekit.prediction.memory import judge_memory_fit
from tracekit.reporting.findings.context import MAX_EVIDENCE_ROWS, Evidence, Finding, FindingContext

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
            detail=told.CHAIN_RAN(times=row["count"] / context.step_count),
        )
        for row in longest.iter_rows(named=True)
    )


FOREACH_ADAM_PATTERN = r"_foreach_addcdiv_"
"""The op that ends every foreach Adam step; it reads three tensors and writes one."""
ADDCDIV_TENSOR_COUNT = 4
FUSED_ADAM_TENSOR_COUNT = 7
"""A fused Adam reads parameters, gradients and both moments, and writes all of them except the gradients."""


def find_unfused_optimizer(context: FindingContext) -> Iterator[Finding]:
    """Find an unfused Adam, if a fused one saves at least 1 % of the step by moving all state once at the same rate."""
    passes = context.select_families("optimizer")
    passes = passes[find_matches(passes["op"], "_foreach_")]
    last = passes[find_matches(passes["op"], FOREACH_ADAM_PATTERN)]
    moved = passes["work_bytes"].sum()
    if last.is_empty() or not moved:
        return
    fused = FUSED_ADAM_TENSOR_COUNT / ADDCDIV_TENSOR_COUNT * float(last["work_bytes"].sum()) / float(moved)
    saves_us = context.compute_saving_us(passes, passes["time_us"] * min(fused, 1.0))
    if not context.is_worth_reporting(saves_us):
        return
    per_step = passes.height / context.step_count
    yield Finding(
        message=told.UNFUSED_OPTIMIZER(kernels_us=context.sum_per_step_us(passes), kernels=per_step),
        saves_us=saves_us,
        evidence=context.list_evidence(passes),
    )


PAGEABLE_NAME = "Pageable"


def find_pageable_copies(context: FindingContext) -> Iterator[Finding]:
    """Find pageable copies if the rate of pinned ones saves at least 1 % of the step."""
    copies = context.select_families("memcpy")
    copies = copies[find_matches(copies["name"], PAGEABLE_NAME)]
    if copies.is_empty():
        return
    saves_us = context.compute_saving_us(copies, context.get_model_us(copies))
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.PAGEABLE_COPIES(copies_us=context.sum_per_step_us(copies)),
        saves_us=saves_us,
        evidence=context.list_evidence(copies, told.OP_LAUNCHED_AS, kernel=pl.col("name")),
    )


CHECKPOINT_OP = "CheckpointFunction"
"""Autograd function of ``torch.utils.checkpoint``."""
MAX_MEMORY_FRACTION = 0.5
"""Fraction of the GPU's memory below which the job could be larger."""


def find_memory_limits(context: FindingContext) -> Iterator[Finding]:
    """Find a job that needs at most half of its GPU's memory, and every target into whose memory it doesn't fit.

    Predictions of a larger batch are what the first would advise.
    """
    gpu = context.run.gpu
    most = judge_memory_fit(context.run.program, gpu, gpu).max_bytes if gpu else None
    has_larger_batch = any(target.batch_ratio > 1 for target in context.targets)
    if gpu and most is not None and most < MAX_MEMORY_FRACTION * gpu.memory_bytes and not has_larger_batch:
        is_checkpointed = any(rank.has_named("ops", CHECKPOINT_OP) for rank in context.run.ranks)
        template = told.MEMORY_HEADROOM_CHECKPOINTED if is_checkpointed else told.MEMORY_HEADROOM
        yield Finding(message=template(max_bytes=most, gpu_bytes=gpu.memory_bytes), saves_us=None)
    for target in context.targets:
        if target.memory.fits is False:
            yield Finding(
                message=told.DOES_NOT_FIT(target=target.label, reason=target.memory.reason),
                saves_us=None,
                on=target.label,
            )
