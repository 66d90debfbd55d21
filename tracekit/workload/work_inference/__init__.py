"""Work of kernels whose ops did not record it, inferred from what is recorded near them: one ordered list of rules."""

import polars as pl

from tracekit.rules import RuleNames
from tracekit.trace import RankTrace
from tracekit.workload.work_inference import (
    attention_projections,
    gradients,
    grouped_gemm,
    model_layers,
    multi_tensor,
    output_tiles,
    pointwise,
    repeats,
    softmax,
    tokens,
)
from tracekit.workload.work_inference.rule import WorkRule

DIRECTION_RULES = (gradients.RULE,)
"""Rules on kernels of known work, applied before an op's work is split over its kernels."""

WORK_RULES = (
    repeats.RULE,
    model_layers.RULE,
    attention_projections.RULE,
    pointwise.RULE,
    multi_tensor.RULE,
    softmax.RULE,
    grouped_gemm.RULE,
    tokens.RULE,
    output_tiles.RULE,
)
"""Rules on kernels of unknown work, in order: one that is sure of the work comes before one that gives bounds."""


def apply_work_rules(
    rules: tuple[WorkRule, ...], kernels: pl.DataFrame, trace: RankTrace, without: RuleNames
) -> pl.DataFrame:
    """Apply the rules that are on, in order."""
    for rule in rules:
        if rule.is_on(without):
            kernels = rule.infer(kernels, trace)
    return kernels
