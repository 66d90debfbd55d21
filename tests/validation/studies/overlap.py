"""Holds predictions of gradients reduced while the backward pass goes on against a published job.

python -m tests.validation.studies.overlap

GPT-2 XL in fp32 on two GPUs was measured with all gradients reduced at once after the backward pass, and in buckets
that overlap it. The first gives what computing and what the all-reduces take, to which a stand-in's kernels and the
link are scaled; the second is predicted. Source: damek/cs336-assignment2-systems, cs336_systems/outputs.
"""

from collections.abc import Iterator

import tracekit as tk
from sample_traces.synthetic.models import Shape
from tests.validation.published_jobs.scaled_transformer import as_long_as
from tests.validation.tables import print_table
from tracekit.prediction.model import Prediction
from tracekit.trace import Trace

GPU, ROUNDS = "a100-sxm-80gb", 4
"""The GPU isn't named; everything it gives is scaled."""

# Samples and tokens of each; seconds of a step at once, of its all-reduces, and of a step in buckets of 10 and 100 MB.
MEASURED = (
    (2, 128, 0.8251, 0.4273, 0.7290, 0.7092),
    (2, 256, 0.7995, 0.4080, 0.7335, 0.7191),
    (2, 512, 0.9150, 0.4227, 0.7857, 0.7713),
    (4, 128, 0.7978, 0.4065, 0.7367, 0.7197),
    (4, 256, 0.8768, 0.4132, 0.7683, 0.7603),
)


def main() -> None:
    """Prints a row for each batch."""
    print_table("| batch | at once | of it all-reduces | in buckets | predicted | error | 90 % interval |", rows())


def rows() -> Iterator[str]:
    """The table's lines."""
    for batch, tokens, whole, reducing, *buckets in MEASURED:
        shape = Shape(layers=48, width=1600, heads=25, vocabulary=10000, batch=batch, tokens=tokens)
        trace, _ = as_long_as((whole - reducing) * 1e6, shape, "stand-in", alone_us, ROUNDS)
        found = reduced_in(trace, reducing)
        step, low, high = (us / 1e6 for us in (found.step.step_time_us, found.low_us, found.high_us))
        errors = " and ".join(f"{100 * (step / bucket - 1):+z.0f}" for bucket in buckets)
        yield (
            f"| {batch} x {tokens} | {whole:.3f} s | {reducing:.3f} s | {buckets[0]:.3f} and {buckets[1]:.3f} s "
            f"| {step:.3f} s | {errors} % | {low:.2f}–{high:.2f} s |"
        )


def alone_us(trace: Trace) -> float:
    """A step on one GPU."""
    return tk.predict(trace, gpu=GPU, calibration=False)[GPU].step.step_time_us


def reduced_in(trace: Trace, seconds: float) -> Prediction:
    """Two copies of it, over a link on which their all-reduces take so long."""
    gbit = 40.0
    for _ in range(ROUNDS):
        cluster = f"2x1x{GPU}@eth{gbit:.3f}"
        predictions = tk.predict(trace, cluster=cluster, dp=2, calibration=False)
        found = predictions[cluster]
        gbit *= found.inserted_us["collective"] / predictions.run.chosen_steps.height / 1e6 / seconds
    return found


if __name__ == "__main__":
    main()
