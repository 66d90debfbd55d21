"""Whether the GPU ran as fast as its kind does."""

from tracekit.doctor.model import Case, Check, at_most_warn
from tracekit.prediction.pace import pace


def usual(case: Case) -> Check | None:
    """Warns if kernels of every kind take longer than they usually do on this GPU."""
    found = pace(case.kernels, case.run.gpu) if case.run.gpu else None
    if found is None:
        return None
    cost = case.work_share * (1 - 1 / found.typical) if found.is_slow else 0.0
    return Check(
        "speed",
        "GPU speed",
        at_most_warn(cost),
        f"{found.kernels:,} kernels of known work take {found.typical:.1f} times what is usual on this GPU",
        f"all families do, {found}: its clock was low, or others used it; {cost:.0f} % of the step may be due to that, "
        "and predictions carry it to other GPUs",
        cost,
        "warm up longer, and see what throttles it (nvidia-smi -q -d PERFORMANCE, rocm-smi)",
    )
