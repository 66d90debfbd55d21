"""What is predicted of a captured step."""

from dataclasses import dataclass

MIN_HOST_BOUND_SHARE = 0.2
"""Of the step, in which the GPU waits for the CPU, from which the CPU counts as what limits it."""


@dataclass(frozen=True)
class CapturedStep:
    """A captured step on one GPU; times in microseconds.

    Attributes:
        gpu: The GPU.
        step_us: Time of the step.
        low_us: Lower end of its 90 % interval.
        high_us: Upper end.
        kernels_us: Time of the kernels, one after the other.
        idle_us: Time in which the GPU waits for the CPU.
        unknown_pct: Percent of the kernels whose work isn't known, which count as no time.
        clock_pct: Clock that the step keeps, in percent of the boost clock.
        joules: Energy of the board.
        power_w: Its mean power.
        batch: Samples of the step, where they are known.
        tokens_per_s: Tokens a second, likewise.
        peak_bytes: The most memory that its tensors hold at once.
        has_room: Whether the GPU's memory holds the program's tensors; workspaces come on top.
        families: Time of the kernels by family, the longest first.
    """

    gpu: str
    step_us: float
    low_us: float
    high_us: float
    kernels_us: float
    idle_us: float
    unknown_pct: float
    clock_pct: float
    joules: float
    power_w: float
    batch: int | None
    tokens_per_s: float | None
    peak_bytes: int
    has_room: bool
    families: tuple[tuple[str, float], ...]

    @property
    def is_host_bound(self) -> bool:
        """Whether the CPU limits the step."""
        return self.idle_us >= MIN_HOST_BOUND_SHARE * self.step_us
