"""Work of kernels whose ops did not record it, inferred from what is recorded near them: one ordered list of rules."""

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from tracekit.rules import Rule, RuleNames
from tracekit.trace import RankTrace
from tracekit.workload.work_inference import (
    attention_projections,
    gradients,
    grouped_gemm,
    multi_tensor,
    pointwise,
    repeats,
    softmax,
    tokens,
)


@dataclass(frozen=True, slots=True)
class WorkRule:
    """A rule and the function that applies it to a kernel table, given the trace."""

    rule: Rule
    infer: Callable[[pl.DataFrame, RankTrace], pl.DataFrame]


DIRECTION_RULES = (WorkRule(gradients.RULE, lambda kernels, trace: gradients.infer_weight_gradients(kernels)),)
"""Rules on kernels of known work, applied before an op's work is split over its kernels."""

WORK_RULES = (
    WorkRule(repeats.RULE, lambda kernels, trace: repeats.infer_repeated_work(kernels)),
    WorkRule(attention_projections.RULE, attention_projections.infer_attention_projections),
    WorkRule(pointwise.RULE, lambda kernels, trace: pointwise.infer_pointwise_work(kernels)),
    WorkRule(multi_tensor.RULE, lambda kernels, trace: multi_tensor.infer_multi_tensor_work(kernels)),
    WorkRule(softmax.RULE, lambda kernels, trace: softmax.infer_softmax_rows(kernels)),
    WorkRule(grouped_gemm.RULE, lambda kernels, trace: grouped_gemm.infer_grouped_gemm_work(kernels)),
    WorkRule(tokens.RULE, tokens.infer_token_counts),
)
"""Rules on kernels of unknown work, in order: one that is sure of the work comes before one that gives bounds."""


def apply_work_rules(
    rules: tuple[WorkRule, ...], kernels: pl.DataFrame, trace: RankTrace, without: RuleNames
) -> pl.DataFrame:
    """Apply the rules that are on, in order."""
    for rule in rules:
        if rule.rule.is_on(without):
            kernels = rule.infer(kernels, trace)
    return kernels
