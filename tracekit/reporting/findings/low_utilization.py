"""Finding: GEMMs and convolutions far below their roofline."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from tracekit.arrays import find_matches, mark_any, mark_equal, select_table
from tracekit.messages import Message
from tracekit.messages import findings as shown
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import FindingContext
from tracekit.reporting.findings.finding import Finding
from tracekit.workload.step_kinds import compute_time_share

MAX_UTILIZATION = 0.3
MIN_TIME_FRACTION = 0.03
MAX_WAVES = 3
MIN_LARGE_PCT = 50.0
"""Percent of the time in kernels of more waves, from which on they aren't too small."""
LAYOUT_CONVERSION_PATTERN = r"(?i)nchwToNhwc|nhwcToNchw"
"""cuDNN's kernels that convert tensors to channels-last, or back."""


def find_low_utilization(context: FindingContext) -> Iterator[Finding]:
    """Find GEMMs and convolutions below 30 % of their roofline, if they take at least 3 % of the step.

    The saving assumes that they reach the roofline.
    """
    if context.run.gpu is None:
        return
    tensor = context.select_families("gemm", "conv")
    slow = select_table(tensor, mark_equal(tensor["bound_us"] < MAX_UTILIZATION * tensor["time_us"], True))
    if context.sum_per_step_us(slow) < MIN_TIME_FRACTION * context.step_time_us:
        return
    saves_us = context.compute_saving_us(slow, slow["bound_us"])
    if not context.is_worth_reporting(saves_us):
        return
    reached = 100 * float(slow["bound_us"].sum()) / float(slow["time_us"].sum())
    yield Finding(
        message=_write_message(context, slow, context.run.gpu.sms, reached),
        saves_us=saves_us,
        evidence=context.list_evidence(slow, partial(_describe_blocks, context.run.gpu.sms), blocks=pl.col("blocks")),
    )


def _write_message(context: FindingContext, slow: pl.DataFrame, sms: int, reached_pct: float) -> Message:
    """Write what is low, and what to try: kernels of many blocks aren't too small."""
    values = {"kernels_us": context.sum_per_step_us(slow), "reached_pct": reached_pct}
    is_large = pl.col("blocks") >= MAX_WAVES * sms
    if compute_time_share(slow, "time_us", is_large.fill_null(False)) < MIN_LARGE_PCT:
        return told.LOW_UTILIZATION(**values)
    return told.LOW_UTILIZATION_OF_MANY_BLOCKS(**values, remedies=_list_remedies(context, slow))


def _list_remedies(context: FindingContext, slow: pl.DataFrame) -> list[Message]:
    converts = find_matches(context.kernels["name"], LAYOUT_CONVERSION_PATTERN).size > 0
    is_full = mark_any(slow["dtype"], ("fp32", "tf32")).any()
    return [
        *([told.CHANNELS_LAST()] if converts else []),
        *([told.HALF_PRECISION()] if is_full else []),
        told.OTHER_LIBRARY(),
    ]


def _describe_blocks(sms: int, *, launches: float, blocks: float | None) -> Message:
    """Describe how badly the blocks of a kernel fill the SMs, if they do."""
    waves = MAX_WAVES if blocks is None else blocks / sms
    if waves < 1:
        return shown.FEW_BLOCKS_LAUNCHED(launches=launches, blocks=blocks, sms=sms)
    if waves < MAX_WAVES and waves % 1 > 0:
        return shown.PART_WAVE_LAUNCHED(launches=launches, waves=waves)
    return shown.OP_LAUNCHED(launches=launches)
