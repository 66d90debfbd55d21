"""Work of kernels whose ops did not record it, inferred from what is recorded near them: one ordered list of rules."""

import polars as pl

from tracekit.rules import RuleNames
from tracekit.trace import RankTrace
from tracekit.workload.work_inference import gemms, grids, model_attention, model_layers, repeats
from tracekit.workload.work_inference.rule import WorkRule as WorkRule

DIRECTION_RULES = (repeats.GRADIENTS_RULE,)
"""Rules on kernels of known work, applied before an op's work is split over its kernels."""

WORK_RULES = (
    repeats.REPEATS_RULE,
    model_layers.MODEL_LAYERS_RULE,
    model_attention.ATTENTION_PROJECTIONS_RULE,
    grids.POINTWISE_RULE,
    grids.MULTI_TENSOR_RULE,
    grids.SOFTMAX_RULE,
    gemms.GROUPED_GEMM_RULE,
    gemms.TOKENS_RULE,
    gemms.OUTPUT_TILES_RULE,
)
"""Rules on kernels of unknown work, in order: one that is sure of the work comes before one that gives bounds."""


def apply_direction_rules(kernels: pl.DataFrame, trace: RankTrace, without: RuleNames) -> pl.DataFrame:
    """Apply the rules on kernels of known work that are on, in order."""
    for rule in DIRECTION_RULES:
        if rule.is_on(without):
            kernels = rule.infer(kernels, trace)
    return kernels


def apply_work_rules(kernels: pl.DataFrame, trace: RankTrace, without: RuleNames) -> pl.DataFrame:
    """Apply the rules on kernels of unknown work that are on, in order, as long as there are any such kernels."""
    for rule in WORK_RULES:
        if rule.is_on(without) and kernels["work_from"].null_count():
            kernels = rule.infer(kernels, trace)
    return kernels
