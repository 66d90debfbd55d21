"""Check of the GPU's speed against other GPUs of its model."""

from tracekit.analysis.clock_speed import measure_clock_speed
from tracekit.doctor.model import Check, CheckContext, grade_cost_bound
from tracekit.messages import doctor_checks as told


def check_gpu_speed(context: CheckContext) -> Check | None:
    """Warn if kernels of all families take longer than usual on this GPU."""
    found = measure_clock_speed(context.kernels, context.run.gpu) if context.run.gpu else None
    if found is None:
        return None
    cost = context.work_pct * (1 - 1 / found.median_ratio) if found.is_slow else 0.0
    fastest, slowest = found.families
    return Check(
        "speed",
        "GPU speed",
        grade_cost_bound(cost),
        told.GPU_SPEED(kernels=found.kernel_count, ratio=found.median_ratio),
        told.GPU_SPEED_COST(
            min_ratio=found.min_ratio,
            fastest_family=fastest,
            max_ratio=found.max_ratio,
            slowest_family=slowest,
            step_pct=cost,
        ),
        cost,
        told.GPU_SPEED_FIX(),
    )
