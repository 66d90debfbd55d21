"""Split the time in which the GPU works among families of kernels."""

import numpy as np

from tracekit.analysis.gaps import find_step_windows
from tracekit.arrays import DistinctNames, Floats, Ints
from tracekit.program import Program
from tracekit.replay.engine import Timeline
from tracekit.replay.step_time import compute_work_start_ns


def measure_family_times_ns(program: Program, timeline: Timeline) -> dict[str, float]:
    """Measure how long each family works in the chosen steps; kernels that overlap split the time that they cover.

    Example: two kernels run for [0, 4] and [2, 6]. The first gets 2 + 1, the second 1 + 2.

    Args:
        program: The program.
        timeline: A timeline of its graph. Collectives don't work while they wait for other ranks.

    Returns:
        By family, longest first. The ranks' times are summed, and add up to the time in which anything works.
    """
    found = DistinctNames.from_column(program.kernels["family"])
    family, names = found.number, found.names
    start_ns, end_ns = compute_work_start_ns(timeline, program.kernels), timeline.activity_end_ns
    windows = find_step_windows(program, timeline)
    summed = np.zeros(len(names))
    for rank in np.unique(windows.lane):
        mine = windows.activity_lane == rank
        opens, closes = (windows.table[edge].to_numpy()[windows.lane == rank] for edge in ("begin_ns", "end_ns"))
        summed += _split_time_ns(family[mine], len(names), start_ns[mine], end_ns[mine], opens, closes)
    ordered = sorted(zip(summed.tolist(), names, strict=True), key=lambda part: (-part[0], part[1]))
    return {name: time for time, name in ordered if time > 0}


def _split_time_ns(family: Ints, families: int, start: Ints, end: Ints, opens: Ints, closes: Ints) -> Floats:
    """Split the time within the windows among the families: kernels that run at once have equal parts of it."""
    times = np.concatenate([start, end, opens, closes])
    order = np.argsort(times, kind="stable")
    length = np.diff(times[order])
    is_kernel = np.repeat([1, 1, 0, 0], [start.size, end.size, opens.size, closes.size])
    change = np.repeat([1, -1, 1, -1], [start.size, end.size, opens.size, closes.size])
    running, within = (np.cumsum((change * rows)[order])[:-1] for rows in (is_kernel, 1 - is_kernel))
    each = np.where((within > 0) & (running > 0), length / np.maximum(running, 1), 0.0)
    # What a kernel that ran from the first moment on would have had by each moment.
    passed = np.empty(times.size)
    passed[order] = np.append(0.0, np.cumsum(each))
    worked = passed[start.size : 2 * start.size] - passed[: start.size]
    return np.bincount(family, worked, minlength=families).astype(np.float64)
