"""Energy and mean power of whole steps, predicted from traces, against what two GPUs drew.

The jobs of sample_traces/recorded, each repeated for some seconds without the profiler; predicted from the trace on the
same GPU and on the other one, with the time that a step took on the trace's GPU without the profiler
(`--unprofiled-step`) where that is shorter than recorded. The power law was fitted to single kernels on both GPUs, not
to steps.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import polars as pl

import tracekit as tk
from sample_traces.record import RECORDED
from tests.validation.study import MEASURED, Result, format_results, format_table
from tracekit.prediction.energy import StepEnergy
from tracekit.trace import Trace

INPUTS = ()
HEADINGS = (
    "step", "from → to", "power", "predicted (90 % interval)", "error", "energy", "predicted (90 % interval)", "error",
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """A step's energy as predicted beside what it was.

    Attributes:
        step: Name of the workload.
        direction: GPUs from and to which it was predicted.
        energy: The prediction.
        power_w: Measured mean power.
        joules: Measured energy.
    """

    step: str
    direction: str
    energy: StepEnergy
    power_w: float
    joules: float

    @property
    def power(self) -> Result:
        """Return the error of the power."""
        inside = self.energy.low_w <= self.power_w <= self.energy.high_w
        return Result("power", 100 * (self.energy.power_w / self.power_w - 1), inside)

    @property
    def work(self) -> Result:
        """Return the error of the energy."""
        inside = self.energy.low_joules <= self.joules <= self.energy.high_joules
        return Result("energy", 100 * (self.energy.joules / self.joules - 1), inside)

    @property
    def cells(self) -> tuple[str, ...]:
        """Return a row of the table."""
        one = self.energy
        return (
            *(self.step, self.direction, f"{self.power_w:.0f} W"),
            f"{one.power_w:.0f} W ({one.low_w:.0f}–{one.high_w:.0f})",
            *(f"{self.power.error_pct:+.0f} %", f"{self.joules:.3g} J"),
            f"{one.joules:.3g} J ({one.low_joules:.3g}–{one.high_joules:.3g})",
            f"{self.work.error_pct:+.0f} %",
        )


def run() -> str:
    """Return a table of steps, and one that sums them up."""
    outcomes = [*predict_steps()]
    results = [result for one in outcomes for result in (one.power, one.work)]
    return "\n".join(
        (
            "# Energy of whole steps\n",
            format_table(HEADINGS, (one.cells for one in outcomes)),
            format_results(results),
        )
    )


def predict_steps() -> Iterator[Outcome]:
    """Yield each step of the recorded jobs on each GPU, predicted from a trace on each."""
    folders = sorted(MEASURED.iterdir())
    for source, target in product(folders, repeat=2):
        there = read_steps(target)
        for step, here in read_steps(source).items():
            trace = RECORDED / f"{source.name}_{step}.json.gz"
            if step in there and trace.exists():
                energy = predict_energy(tk.load(trace), target.name, f"{here['first_ms']}ms")
                direction = f"{source.name} → {target.name}"
                yield Outcome(step, direction, energy, there[step]["power_w"], there[step]["joules"])


def predict_energy(trace: Trace, gpu: str, unprofiled_step: str) -> StepEnergy:
    """Predict the energy of a step with the profiler's overhead taken out, where there is any."""
    try:
        return tk.predict(trace, gpu=gpu, unprofiled_step=unprofiled_step)[gpu].energy
    except tk.TracekitError:
        return tk.predict(trace, gpu=gpu)[gpu].energy


def read_steps(folder: Path) -> dict[str, dict[str, float]]:
    """Read the times, the power and the energy of each workload's step on a GPU."""
    return {str(row.pop("workload")): row for row in pl.read_csv(folder / "steps.csv").iter_rows(named=True)}
