"""The checks, in display order. To add one: a function of a ``CheckContext``, and a line here."""

from collections.abc import Callable

from tracekit.doctor import dependencies, host, idle, ranks, speed, steps, times, trace_format, work
from tracekit.doctor.model import Check, CheckContext

CHECKS: tuple[Callable[[CheckContext], Check | None], ...] = (
    trace_format.check_format,
    work.check_gpu,
    host.check_cpu_activity,
    work.check_shapes,
    work.check_known_ops,
    work.check_cuda_graphs,
    work.check_collective_sizes,
    idle.check_idle_time,
    idle.check_unrecorded_work,
    times.check_times,
    steps.check_step_marks,
    steps.check_step_spread,
    steps.check_warmup,
    speed.check_gpu_speed,
    host.check_kernels_without_launch,
    host.check_launches_without_kernel,
    host.check_graph_replays,
    host.check_overhead,
    dependencies.check_sync_events,
    dependencies.check_replay,
    ranks.check_all_ranks,
    ranks.check_lost_events,
)
"""Each check returns ``None`` if it doesn't apply."""
JOB_CHECKS = frozenset((ranks.check_all_ranks,))
"""Those of all ranks together; the others look at one rank."""
CAPTURE_CHECKS: tuple[Callable[[CheckContext], Check | None], ...] = (work.check_recording, work.check_known_ops)
"""Those of a program that was captured without a GPU."""
