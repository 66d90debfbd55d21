"""Findings about products and attention: precision, tensor cores, utilization, kernels that don't fit the GPU."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from predictors.hardware import derive_hardware
from tracekit.arrays import find_matches, find_nulls, mark_any, mark_equal, select_any, select_table
from tracekit.messages import Message
from tracekit.messages import findings as told
from tracekit.reporting.findings.context import Finding, FindingContext
from tracekit.reporting.sections.kernels import IS_FASTER_THAN_BOUND
from tracekit.workload.names.library import is_ampere_attention
from tracekit.workload.step_kinds import compute_time_share


def find_full_precision(context: FindingContext) -> Iterator[Finding]:
    """Find GEMMs in fp32 if TF32 (or fp16 on GPUs without TF32) saves at least 1 % of the step."""
    gpu = context.run.gpu
    wanted = next((dtype for dtype in ("tf32", "fp16") if gpu and dtype in gpu.tensor_tflops), None)
    if wanted is None:
        return
    gemms = context.select_families("gemm")
    gemms = select_table(gemms, mark_equal(gemms["dtype"], "fp32") & ~find_nulls(gemms["m"]))
    if gemms.is_empty():
        return
    saves_us = context.compute_saving_us(gemms, context.predict_on_source_us(gemms.with_columns(dtype=pl.lit(wanted))))
    if not context.is_worth_reporting(saves_us):
        return
    precision = told.FULL_PRECISION if wanted == "tf32" else told.FULL_PRECISION_WITHOUT_TF32
    yield Finding(
        message=precision(gemms_us=context.sum_per_step_us(gemms)),
        saves_us=saves_us,
        evidence=context.list_evidence(gemms),
    )


HALF_DTYPES = ("fp16", "bf16")
# Kernels of cuBLAS, CUTLASS and MAGMA that use CUDA cores instead of tensor cores.
CUDA_CORE_PATTERN = r"(?i)simt|gemv|gemmSN|magma_|_sgemm_|dot_kernel"
ALIGNMENT_ELEMENTS = 8
"""16 bytes of a half-precision row, which tensor cores load at once (NVIDIA, Matrix Multiplication Background)."""
MIN_SIDE = 16
"""Dimensions below this make no full tile, padded or not."""


def find_missing_tensor_cores(context: FindingContext) -> Iterator[Finding]:
    """Find half-precision GEMMs without tensor cores or with misaligned shapes, if the model predicts a gain."""
    if context.run.gpu is None or not context.run.gpu.tensor_tflops:
        return
    halves = context.select_families("gemm")
    halves = halves[select_any(halves["dtype"], HALF_DTYPES)]
    if halves.is_empty():
        return
    sides = pl.min_horizontal("m", "n", "k") >= MIN_SIDE
    gemms = halves.filter(sides)
    plain = pl.col("name").str.contains(CUDA_CORE_PATTERN)
    odd = pl.any_horizontal(pl.col("n", "k") % ALIGNMENT_ELEMENTS != 0)
    yield from _find_unused(context, gemms.filter(plain & ~odd))
    yield from _find_misaligned(context, gemms.filter(odd))


def _find_unused(context: FindingContext, gemms: pl.DataFrame) -> Iterator[Finding]:
    saves_us = context.compute_saving_us(gemms, context.get_model_us(gemms)) if gemms.height else 0.0
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.TENSOR_CORES_UNUSED(gemms_us=context.sum_per_step_us(gemms)),
        saves_us=saves_us,
        evidence=context.list_evidence(gemms, told.OP_LAUNCHED_AS, kernel=pl.col("name").str.slice(0, 60)),
    )


def _find_misaligned(context: FindingContext, gemms: pl.DataFrame) -> Iterator[Finding]:
    if gemms.is_empty():
        return
    padded = gemms.with_columns((pl.col("m", "n", "k") / ALIGNMENT_ELEMENTS).ceil().cast(pl.Int64) * ALIGNMENT_ELEMENTS)
    saves_us = context.compute_saving_us(gemms, context.predict_on_source_us(padded))
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.MISALIGNED_SHAPES(alignment=ALIGNMENT_ELEMENTS, gemms_us=context.sum_per_step_us(gemms)),
        saves_us=saves_us,
        evidence=context.list_evidence(gemms, told.GEMM_LAUNCHED, m=pl.col("m"), n=pl.col("n"), k=pl.col("k")),
    )


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
        return told.FEW_BLOCKS_LAUNCHED(launches=launches, blocks=blocks, sms=sms)
    if waves < MAX_WAVES and waves % 1 > 0:
        return told.PART_WAVE_LAUNCHED(launches=launches, waves=waves)
    return told.OP_LAUNCHED(launches=launches)


MIN_KEYS = 64
SCORE_MATRIX_COLUMNS = ("rows", "cols")
"""Columns that identify a score matrix: its rows (of all heads of all sequences), and the keys."""
NEEDED_COLUMNS = (
    *("kernel", "op", "name", "input_dims", "family", "dtype", "phase", "time_us"),
    *("batch", "m", "n", "k", *SCORE_MATRIX_COLUMNS),
)


def find_unfused_attention(context: FindingContext) -> Iterator[Finding]:
    """Find forward softmaxes and their GEMMs, if one attention kernel instead saves at least 1 % of the step."""
    if context.select_families("softmax").is_empty():
        return
    softmax, gemms = _find_attention_kernels(context.kernels)
    if context.run.gpu is None or gemms.is_empty():
        return
    parts = pl.concat([softmax, gemms], how="diagonal")
    nothing = pl.Series([0.0]).new_from_index(0, gemms.height)
    saves_us = context.compute_saving_us(
        parts, pl.concat([context.predict_on_source_us(_make_fused_attention(softmax)), nothing])
    )
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.UNFUSED_ATTENTION(kernels_us=context.sum_per_step_us(parts)),
        saves_us=saves_us,
        evidence=context.list_evidence(parts),
    )


def _find_attention_kernels(kernels: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the softmaxes over score matrices, with the sizes of their attention, and the batched GEMMs around them.

    Shapes, with ``rows`` = batch x heads x queries::

        QK^T: [batch x m, k] -> scores [rows, cols]      a GEMM whose output the softmax reads (n = cols)
        softmax over cols
        PV:   [rows, cols]   -> [batch x m, n]           a GEMM that reads the scores (k = cols)
    """
    forward = kernels.select(NEEDED_COLUMNS).filter(pl.col("phase") == "forward")
    gemms = forward.filter((pl.col("family") == "gemm") & (pl.col("batch") > 1)).drop("rows", "cols")
    softmax = forward.filter((pl.col("family") == "softmax") & (pl.col("cols") >= MIN_KEYS))
    whole = pl.col("batch") * pl.col("m")
    making = gemms.with_columns(rows=whole, cols="n").join(softmax, on=SCORE_MATRIX_COLUMNS, how="semi")
    using = (
        gemms.with_columns(rows=whole, cols="k")
        .join(making, on=SCORE_MATRIX_COLUMNS, how="semi")
        .join(making, on="kernel", how="anti")
    )
    sizes = making.group_by(SCORE_MATRIX_COLUMNS).agg(pl.col("batch", "m", "k", "dtype").first())
    found = softmax.drop("batch", "m", "k", "dtype").join(
        sizes, on=SCORE_MATRIX_COLUMNS, how="inner", maintain_order="left"
    )
    return found, pl.concat([making, using])


def _make_fused_attention(softmax: pl.DataFrame) -> pl.DataFrame:
    """Return one attention kernel per softmax, without the replaced kernels' time as an upper bound."""
    return softmax.select(
        "dtype",
        family=pl.lit("attention"),
        batch=pl.lit(1, pl.Int64),
        heads="batch",
        q_len="m",
        kv_len="cols",
        head_dim="k",
        causal=pl.lit(False),
        paged=pl.lit(False),
        time_us=pl.lit(float("inf")),
    )


NEWEST_STACK = "cudnn"
"""A framework with kernels for the matrix units of every GPU."""


def find_older_attention(context: FindingContext) -> Iterator[Finding]:
    """Find attention over whole sequences written for an A100's matrix units on a later GPU, if the model is faster."""
    if context.run.gpu is None or (rate := derive_hardware(context.run.gpu).mma_rate_fraction) == 1:
        return
    older = context.kernels.filter(is_ampere_attention())
    if older.is_empty():
        return
    saves_us = context.compute_saving_us(
        older, context.predict_on_source_us(older.with_columns(framework=pl.lit(NEWEST_STACK)))
    )
    if not context.is_worth_reporting(saves_us):
        return
    yield Finding(
        message=told.OLDER_ATTENTION(kernels_us=context.sum_per_step_us(older), rate_pct=100 * rate),
        saves_us=saves_us,
        evidence=context.list_evidence(older),
    )


def find_faster_than_bound(context: FindingContext) -> Iterator[Finding]:
    """Find kernels that are faster than their roofline bound by more than 2 %."""
    beaten = context.kernels.filter(IS_FASTER_THAN_BOUND)
    if beaten.is_empty():
        return
    part = compute_time_share(context.kernels, "time_us", IS_FASTER_THAN_BOUND)
    families = sorted(beaten["family"].unique())
    yield Finding(
        message=told.FASTER_THAN_BOUND(kernels=beaten.height, time_pct=part, families=families),
        saves_us=None,
        evidence=context.list_evidence(beaten),
    )
