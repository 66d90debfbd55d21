"""Whether the GPU ran as fast as its kind does."""

import polars as pl

from predictors import predict
from tracekit.doctor.model import Case, Check, at_most_warn

LONG_NS = 10_000
"""Shorter kernels are mostly launch, which says nothing of the clock."""
MANY = 10
KINDS = 3
SLOW = 1.3
"""A wrong law is off by as much for one kind of kernels; for all kinds at once it never was on a usual clock."""

KNOWN = ("gemm", "conv", "attention", "elementwise", "norm", "softmax", "reduction", "copy", "optimizer")


def usual(case: Case) -> Check | None:
    """Warns if kernels of every kind take longer than they usually do on this GPU."""
    gpu = case.run.gpu
    own_shapes = (pl.col("kind") == "kernel") & (pl.col("work_from") == "shapes") & pl.col("family").is_in(KNOWN)
    kernels = case.kernels.filter(own_shapes & (pl.col("dur_ns") > LONG_NS))
    if gpu is None or kernels.height < KINDS * MANY:
        return None
    ratios = kernels.select("family", ratio=pl.col("dur_ns") / 1e3 / predict(kernels, gpu)["time_us"])
    kinds = ratios.group_by("family").agg(pl.len(), pl.col("ratio").median()).filter(pl.col("len") >= MANY)
    kinds = kinds.sort("ratio", "family")
    if kinds.height < KINDS:
        return None
    typical = ratios.select(pl.median("ratio")).item()
    (fastest, _, least), (slowest, _, most) = kinds.row(0), kinds.row(-1)
    cost = case.of_step(case.run.measured.kernel_time_us) * (1 - 1 / typical) if least >= SLOW else 0.0
    return Check(
        "speed",
        "GPU speed",
        at_most_warn(cost),
        f"{kernels.height:,} kernels of known work take {typical:.1f} times what is usual on this GPU",
        f"all kinds do, from {fastest} ({least:.1f}) to {slowest} ({most:.1f}): its clock was low, or others used it; "
        f"{cost:.0f} % of the step may be due to that, and predictions carry it to other GPUs",
        cost,
        "warm up longer, and see what throttles it (nvidia-smi -q -d PERFORMANCE, rocm-smi)",
    )
