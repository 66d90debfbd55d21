"""Check of the GPU's speed against other GPUs of its model."""

from tracekit.analysis.clock_speed import measure_clock_speed
from tracekit.doctor.model import Check, CheckContext, grade_cost_bound


def check_gpu_speed(context: CheckContext) -> Check | None:
    """Warn if kernels of all families take longer than usual on this GPU."""
    found = measure_clock_speed(context.kernels, context.run.gpu) if context.run.gpu else None
    if found is None:
        return None
    cost = context.work_pct * (1 - 1 / found.median_ratio) if found.is_slow else 0.0
    return Check(
        "speed",
        "GPU speed",
        grade_cost_bound(cost),
        f"{found.kernel_count:,} kernels of known work take {found.median_ratio:.1f} times what is usual on this GPU",
        f"all families do, {found}: its clock was low, or others used it; {cost:.0f} % of the step may be due to that, "
        "and predictions carry it to other GPUs",
        cost,
        "warm up longer, and see what throttles it (nvidia-smi -q -d PERFORMANCE, rocm-smi)",
    )
