"""The decision that a prediction is asked for: how fast, at what cost, and whether it pays."""

from dataclasses import dataclass
from typing import Annotated

from tracekit.messages import Message
from tracekit.reporting.columns import Column
from tracekit.reporting.figure import Figure


@dataclass(frozen=True, slots=True)
class TargetDecision:
    """What the traced work takes and costs on one target.

    Attributes:
        name: The same as people say it: ``8 × NVIDIA H100 SXM5 80 GB``.
        setting: What else differs from the trace: the layout, the batch, what-if edits.
        step_us: Step time.
        mean_us: Time for the work of one traced step, the mean one.
        same_host_speedup: The same with a CPU like the trace's; null where `speedup` has it or the CPU hardly matters.
        hourly: Dollars for an hour of all rented GPUs.
        gpu_hours: Hours of all rented GPUs together for ``amount`` units, by the mean step.
    """

    label: Annotated[str, Column("The GPU or cluster.", name="target")]
    name: str
    gpus: Annotated[int, Column("GPUs in use.")]
    rented: Annotated[int, Column("GPUs that dollars count: whole instances of a cloud.")]
    setting: tuple[Message, ...]
    step_us: Figure
    mean_us: Figure
    speedup: Annotated[Figure | None, Column("Throughput relative to the trace; blank of a program that never ran.")]
    same_host_speedup: Figure | None
    price: Annotated[float | None, Column("Dollars for an hour of one GPU.")]
    hourly: float | None
    dollars: Annotated[Figure | None, Column("Dollars for a million tokens or samples, or 1,000 steps.")]
    break_even: Annotated[
        Figure | None, Column("Dollars for an hour of one GPU below which the work is cheaper there.")
    ]
    gpu_hours: Figure
    run_hours: Annotated[Figure | None, Column("Hours for the whole job.")]
    run_dollars: Annotated[Figure | None, Column("Dollars for the whole job.")]
    joules: Annotated[Figure | None, Column("Joules for one token, sample or step on all GPUs in use.")]
    rank: Annotated[int, Column("One more than the number of targets that are surely better.")]
    fits: Annotated[bool | None, Column("Whether a rank fits into memory; blank if unknown.", name="fits_in_memory")]
    sentence: Annotated[Message, Column("The same in words.", name="answer")]


@dataclass(frozen=True, slots=True)
class TraceCosts:
    """What the work takes and costs where it was traced.

    Attributes:
        name: Number and name of the GPUs.
        gpus: Number of GPUs.
        rented: GPUs that have to be rented for that, and that dollars count.
        price: Dollars for an hour of one GPU; null if it wasn't given.
        hourly: Dollars for an hour of all rented GPUs.
        gpu_hours: Hours of all rented GPUs together for ``amount`` units, by the mean step.
        dollars: Dollars for ``amount`` units.
        run_hours: Hours for the whole run.
        run_dollars: Dollars for the whole run.
        mean_us: Mean step time.
        is_captured: Whether nothing ran there, as of a captured program: then there are no dollars and no hours.
    """

    name: str
    gpus: int
    rented: int
    price: float | None
    hourly: float | None
    gpu_hours: float
    dollars: float | None
    run_hours: float | None
    run_dollars: float | None
    mean_us: float
    is_captured: bool


@dataclass(frozen=True, slots=True)
class Decision:
    """The targets, compared with the trace for equal work.

    Attributes:
        unit: What work is counted in: ``tokens``, ``samples``, or ``steps`` as traced.
        amount: Number of units that ``dollars`` are for.
        ranked_by: What the targets are ranked by: ``time``, ``dollars``, ``tokens-per-dollar`` or ``energy``.
        run_amount: Number of units of the whole run; null if it wasn't given.
        run_unit: Its unit.
        prices_date: Day of the file that prices are from.
        here: What the work costs where it was traced.
        sentence: The answer.
        targets: The targets in order of rank, then of the likely figure.
    """

    unit: str
    amount: int
    ranked_by: str
    run_amount: float | None
    run_unit: str | None
    prices_date: str | None
    here: TraceCosts
    sentence: Message
    targets: tuple[TargetDecision, ...]
