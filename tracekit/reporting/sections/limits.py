"""What limits the step: causes of idle time, the critical path, and what a faster GPU or host would gain."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import inf, isinf
from typing import Annotated

from tracekit.analysis.critical_path import CriticalPath, compute_measured_path, compute_slack_ns, summarize_by_op
from tracekit.analysis.idle import STREAM_KEYS, IdleBreakdown, attribute_idle_time
from tracekit.analysis.idle_causes import CAUSE_MEANINGS, IdleCause
from tracekit.analysis.over_time import measure_queues
from tracekit.analysis.sensitivity import (
    SpeedReplays,
    compute_sensitivity,
    find_limit_speeds,
)
from tracekit.format import format_number, name_place
from tracekit.messages import Message
from tracekit.reporting.columns import Column
from tracekit.run import MeasuredRun


@dataclass(frozen=True, slots=True)
class IdleTime:
    """Idle time of the measured GPU for one cause; all of them add up to the step's idle and waiting time."""

    cause: Annotated[str, Column("The reason's name.")]
    meaning: Annotated[Message, Column("What it means.", "why")]
    time_us: Annotated[float, Column("Time in the median step.", "time")]
    share: Annotated[float, Column("Of the step, percent.", "of the step")]
    op: Annotated[str | None, Column("The op whose launches ended most of it; blank if the step's end did.", "before")]
    line: Annotated[str | None, Column("The Python function that launched most of what ended it.", "launched in")]


def analyze_idle_time(run: MeasuredRun) -> IdleBreakdown:
    """Attribute the measured GPU's idle time to causes."""
    return attribute_idle_time(run.program, run.measured_timeline)


def build_idle_times(run: MeasuredRun, idle: IdleBreakdown) -> tuple[IdleTime, ...]:
    """Build the causes, longest first."""
    return tuple(_iter_idle_times(run, idle))


def _iter_idle_times(run: MeasuredRun, idle: IdleBreakdown) -> Iterator[IdleTime]:
    ops, lines = (idle.find_longest(run.kernels, column) for column in ("op", "python_line"))
    for cause, time_us, _ in idle.sum_by_cause().iter_rows():
        share = 100 * time_us / run.measured_step.step_time_us
        yield IdleTime(cause, CAUSE_MEANINGS[IdleCause(cause)], time_us, share, ops.get(cause), lines.get(cause))


@dataclass(frozen=True, slots=True)
class StreamTime:
    """One stream in a mean step; its causes add up to its idle time, and idle and busy time to the step.

    Attributes:
        causes: Names of the causes and their times, longest first.
    """

    rank: Annotated[int | None, Column("The rank; blank in a run of one.")]
    device: Annotated[int | None, Column("The GPU in its process.")]
    stream: Annotated[int | None, Column("The stream.", "stream")]
    busy_us: Annotated[float, Column("Time in a mean step in which something of it worked.", "works")]
    idle_us: Annotated[float, Column("The rest of the step; the reasons add up to it.", "idle")]
    queued: Annotated[
        float, Column("How many of its activities were launched and hadn't begun, on average.", "queued", format_number)
    ]
    most_queued: Annotated[int, Column("The most of them at a time.", "at most")]
    causes: tuple[tuple[str, float], ...]


def build_stream_times(run: MeasuredRun, idle: IdleBreakdown) -> tuple[StreamTime, ...]:
    """Build the streams, sorted by rank, device and number."""
    table = idle.sum_by_stream().join(measure_queues(run.program), on=list(STREAM_KEYS), how="left", nulls_equal=True)
    steps = max(run.chosen_steps["step"].n_unique(), 1)
    built: dict[tuple[int | None, ...], StreamTime] = {}
    for row in table.iter_rows(named=True):
        key = tuple(row[name] for name in STREAM_KEYS)
        before = built[key].causes if key in built else ()
        step_us = row["busy_us"] + row["idle_us"]
        built[key] = StreamTime(
            rank=row["rank"] if len(run.ranks) > 1 else None,  # one rank isn't named
            device=row["device"],
            stream=row["stream"],
            busy_us=row["busy_us"],
            idle_us=row["idle_us"],
            queued=(row["waited_us"] or 0.0) / (step_us * steps) if step_us else 0.0,
            most_queued=row["most_queued"] or 0,
            causes=(*before, (row["cause"], row["time_us"])) if row["cause"] else before,
        )
    return tuple(built.values())


MARK_NAME = "mark"
MAX_OPS = 20
MAX_NEAR_FRACTION = 0.02
"""Slack, as a fraction of the steps, up to which an op counts as near the critical path."""
MAX_NEAR_OPS = 5
"""Maximum number of listed ops near the critical path."""


@dataclass(frozen=True, slots=True)
class CriticalOp:
    """One op's time on the critical path."""

    on: Annotated[
        str, Column("Where the time is spent: gpu, communication, host, latency or unexplained.", "on", name_place)
    ]
    op: Annotated[str, Column("The op that ran, was launched or was waited for.", "op")]
    time_us: Annotated[float, Column("Time on the path in a mean step.", "time")]
    share: Annotated[float, Column("Of the path, percent.", "of the path")]


@dataclass(frozen=True, slots=True)
class NearCriticalOp:
    """An op near the critical path, which nothing waits for yet.

    Attributes:
        op: The op.
        time_us: Time of its kernels in a mean step.
        slack_us: Time by which one of its kernels may become longer before the step does.
    """

    op: str
    time_us: float
    slack_us: float


@dataclass(frozen=True, slots=True)
class CriticalPathSection:
    """The critical path of the measured steps.

    Attributes:
        places: Percent of the path by where its time is spent, largest first.
        ops: The ops with most time on the path, longest first.
        omitted: Number of further ops.
        edges: Percent of the path by kind of edge, longest first.
        families: Percent of the path by family of the kernel that ran, was launched or was waited for.
        modules: Percent of the path by module that launched the kernel; empty if stacks weren't read.
        near: Ops that would be on the path if they took slightly longer, least slack first.
    """

    places: tuple[tuple[str, float], ...]
    ops: tuple[CriticalOp, ...]
    omitted: int
    edges: tuple[tuple[str, float], ...]
    families: tuple[tuple[str, float], ...]
    modules: tuple[tuple[str, float], ...]
    near: tuple[NearCriticalOp, ...]


def build_critical_path(run: MeasuredRun) -> CriticalPathSection:
    """Build the critical path of the measured run."""
    path = compute_measured_path(run.program)
    places, edges, families, modules = (_sum_shares(path, column) for column in ("on", "edge", "family", "module"))
    ops = path.sum_by("on", "op")
    steps = run.chosen_steps["step"].n_unique()
    rows = tuple(
        CriticalOp(on, "end of the step" if op == MARK_NAME else op or "–", time_us / steps, 100 * part)
        for on, op, time_us, part, _ in ops.head(MAX_OPS).iter_rows()
    )
    return CriticalPathSection(
        places, rows, max(ops.height - MAX_OPS, 0), edges, families, modules, tuple(_find_near_critical_ops(run))
    )


def _sum_shares(path: CriticalPath, column: str) -> tuple[tuple[str, float], ...]:
    return tuple((name, 100 * part) for name, _, part, _ in path.sum_by(column).iter_rows() if name is not None)


def _find_near_critical_ops(run: MeasuredRun) -> Iterator[NearCriticalOp]:
    """Find the ops without a kernel on the path whose slack is small."""
    rows = summarize_by_op(run.program, compute_slack_ns(run.program)).iter_rows()
    most_us = MAX_NEAR_FRACTION * run.self_replay.span_us
    near = (NearCriticalOp(*row) for row in rows)
    yield from islice((one for one in near if 0 < one.slack_us < most_us and one.time_us > 0), MAX_NEAR_OPS)


GPU_SPEEDS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
HOST_SPEEDS = (1.0, 1.5, inf)


@dataclass(frozen=True, slots=True)
class SpeedSensitivity:
    """Step times at other speeds of GPU and host.

    Attributes:
        points: Speeds of GPU and host as multiples of the measured ones, and step time in microseconds; ``None`` for
            a host whose own work takes no time.
        gpu_floor_us: Step time if all kernels took zero time: what host and latencies leave.
        host_floor_us: Step time if the host's own work took zero time: what the GPU leaves.
        kept_us: Step time if both took zero time: latencies, and waits and gaps that the trace doesn't explain.
        network: Speed of the network as a multiple of the measured one (``None``: infinite), and step time; empty
            without collectives.
        host_limits_from: Speed of the GPU from which on the host is the limit and a faster GPU hardly helps; ``None``
            if there is no such speed.
        gpu_limits_from: Speed of the host from which on the GPU is the limit; ``None`` if there is no such speed.
    """

    points: tuple[tuple[float, float | None, float], ...]
    gpu_floor_us: float
    host_floor_us: float
    kept_us: float
    network: tuple[tuple[float | None, float], ...]
    host_limits_from: float | None
    gpu_limits_from: float | None


def build_speed_sensitivity(replays: SpeedReplays) -> SpeedSensitivity:
    """Replay the measured run at other speeds, on the scale of the measured step."""
    found = compute_sensitivity(replays, GPU_SPEEDS, HOST_SPEEDS)
    limits = find_limit_speeds(replays)
    rows = found.table.select("gpu_speed", "host_speed", "step_time_us")
    return SpeedSensitivity(
        points=tuple((gpu, _replace_infinity(host), step_us) for gpu, host, step_us in rows.iter_rows()),
        gpu_floor_us=found.gpu_floor_us,
        host_floor_us=found.host_floor_us,
        kept_us=found.kept_us,
        network=tuple((_replace_infinity(speed), step_us) for speed, step_us in found.network.iter_rows()),
        host_limits_from=limits.gpu,
        gpu_limits_from=limits.host,
    )


def _replace_infinity(speed: float) -> float | None:
    return None if isinf(speed) else speed
