"""Finding: optimizer steps that read and write the parameters many times, where a fused one does so once."""

from collections.abc import Iterator

from tracekit.arrays import find_matches
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding

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
