"""Holds predictions from traces against traces of the same jobs on another GPU.

python -m tests.validation.studies.pairs FOLDER OTHER_FOLDER

Both folders hold traces of the same names, one folder for each GPU. Each trace is predicted for the GPU of the other
folder and compared with the trace there. tests/validation/notes/accuracy.md's jobs: AMD-AGI/TraceLens at 171dd747,
tests/traces/h100 and tests/traces/mi300.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import tracekit as tk
from tests.validation.tables import print_table
from tests.validation.words import given
from tracekit.prediction import Prediction, predict
from tracekit.run import MeasuredRun, prepare_run


@dataclass(frozen=True)
class Outcome:
    """A prediction beside what the other GPU's trace shows."""

    job: str
    way: str
    predicted: Prediction
    measured: MeasuredRun

    @property
    def step_error(self) -> float:
        """Of the step time, as a share."""
        return self.predicted.step.step_time_us / self.measured.measured_step.step_time_us - 1

    @property
    def busy_error(self) -> float:
        """Of the time in which the GPU is busy, as a share."""
        return self.predicted.step.kernel_time_us / self.measured.measured_step.kernel_time_us - 1

    @property
    def inside(self) -> bool:
        """Whether the interval holds the measured step."""
        return self.predicted.low_us <= self.measured.measured_step.step_time_us <= self.predicted.high_us


def main() -> None:
    """Prints a row for each prediction, and a summary."""
    if not (found := list(outcomes(*map(Path, given(__doc__, 2, 2))))):
        raise SystemExit("evaluate_pairs: name two folders that hold traces of the same names (*.json.gz)")
    print_table(
        "| job | from → to | step | predicted (90 % interval) | error | GPU busy | predicted | error |",
        map(line, found),
    )
    print_table("| | median | worst | inside |", summary(found))


def outcomes(one: Path, other: Path) -> Iterator[Outcome]:
    """Each job both ways."""
    for path in sorted(one.glob("*.json.gz")):
        if (other / path.name).exists():
            runs = [prepare_run(tk.load(folder / path.name)) for folder in (one, other)]
            for source, there in (runs, runs[::-1]):
                (prediction,) = predict(source, [slug(there)]).values()
                yield Outcome(path.name.split("__")[0], f"{slug(source)} → {slug(there)}", prediction, there)


def slug(run: MeasuredRun) -> str:
    """Of the GPU that was traced."""
    if run.gpu is None:
        raise SystemExit("a trace doesn't tell its GPU")
    return run.gpu.slug


def line(one: Outcome) -> str:
    """A row of the table."""
    step, busy = one.measured.measured_step.step_time_us / 1e3, one.measured.measured_step.kernel_time_us / 1e3
    found = one.predicted
    return (
        f"| {one.job} | {one.way} | {step:.4g} ms | {found.step.step_time_us / 1e3:.4g} ms "
        f"({found.low_us / 1e3:.4g}–{found.high_us / 1e3:.4g}) | {one.step_error:+.0%} | {busy:.4g} ms "
        f"| {found.step.kernel_time_us / 1e3:.4g} ms | {one.busy_error:+.0%} |"
    )


def summary(found: Sequence[Outcome]) -> Iterator[str]:
    """A row for steps, one for the GPU's part of them."""
    steps, busy = [abs(one.step_error) for one in found], [abs(one.busy_error) for one in found]
    yield f"| step | {median(steps):.0%} | {max(steps):.0%} | {sum(one.inside for one in found)} of {len(found)} |"
    yield f"| GPU busy | {median(busy):.0%} | {max(busy):.0%} | |"


if __name__ == "__main__":
    main()
