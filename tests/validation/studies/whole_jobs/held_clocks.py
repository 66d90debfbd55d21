"""Clocks that whole steps keep under the board's power limit, predicted from their traces, against what they were.

The jobs of sample_traces/recorded, each repeated for some seconds without the profiler. Neither the power law nor the
kernels' laws were fitted to steps or to clocks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean

import tracekit as tk
from sample_traces.record import RECORDED
from tests.validation.studies.whole_jobs.step_energy import read_steps
from tests.validation.study import MEASURED, format_table
from tracekit.prediction.job import WholeJob
from tracekit.prediction.predictor import SourceClock
from tracekit.run import prepare_run
from tracekit.trace import Trace

INPUTS = ()
HEADINGS = ("step", "GPU", "power", "clock", "predicted from its trace", "from the other GPU's")
CLOCK_LOWERED = "clock-lowered"


@dataclass(frozen=True)
class HeldClock:
    """A step's clock as it was, and as predicted, as parts of the GPU's highest.

    Attributes:
        step: Name of the workload.
        gpu: The GPU.
        power_w: Its mean power.
        clock: Its clock.
        from_own: Predicted from a trace recorded on that GPU.
        from_other: Predicted from one recorded on the other.
    """

    step: str
    gpu: str
    power_w: float
    clock: float
    from_own: float
    from_other: float

    @property
    def cells(self) -> tuple[str, ...]:
        """Return a row of the table."""
        clocks = (f"{clock:.2f}" for clock in (self.clock, self.from_own, self.from_other))
        return self.step, self.gpu, f"{self.power_w:.0f} W", *clocks


def run() -> str:
    """Return the clocks, as parts of the highest one seen on that GPU."""
    folders = sorted(MEASURED.iterdir())
    clocks = [one for gpu, other in product(folders, repeat=2) if gpu != other for one in list_steps(gpu, other)]
    own, other = ([abs(getattr(one, name) - one.clock) for one in clocks] for name in ("from_own", "from_other"))
    return "\n".join(
        (
            "# Clocks of whole steps\n",
            format_table(HEADINGS, (one.cells for one in clocks)),
            f"Off by {100 * mean(own):.1f} points in the mean and {100 * max(own):.0f} at most from its own trace, "
            f"{100 * mean(other):.1f} and {100 * max(other):.0f} from the other one's.\n",
        )
    )


def list_steps(gpu: Path, other: Path) -> Iterator[HeldClock]:
    """Yield the clock of each job that has a trace on both GPUs."""
    steps = read_steps(gpu)
    highest = max(step["sm_mhz"] for step in steps.values())
    for name, step in steps.items():
        here, there = (RECORDED / f"{folder.name}_{name}.json.gz" for folder in (gpu, other))
        if here.exists() and there.exists():
            run = prepare_run(tk.load(here))
            own = 1 / max(SourceClock(WholeJob(run, run.program, None, None)).slowdown)
            carried = predict_clock(tk.load(there), gpu.name)
            yield HeldClock(name, gpu.name, step["power_w"], step["sm_mhz"] / highest, own, carried)


def predict_clock(trace: Trace, gpu: str) -> float:
    """Predict the clock on another GPU than the trace's, as a part of the boost clock."""
    noted = (one.values["clock_pct"] for one in tk.predict(trace, gpu=gpu)[gpu].notes if one.code == CLOCK_LOWERED)
    return float(str(next(noted, 100.0))) / 100
