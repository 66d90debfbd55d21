"""Holds predictions of sharded jobs (FSDP) against published throughputs of one job on several numbers of GPUs.

python -m tests.validation.studies.scaling [NAME...]

No trace of these jobs is public, so a transformer of their size stands in: its ops are PyTorch's own, its kernels'
times those of a roofline, all scaled so that the smallest number of GPUs gives the published throughput. What is tested
is what tracekit adds for more GPUs.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import tracekit as tk
from sample_traces.synthetic.models import Shape
from tests.validation.published_jobs.scaled_transformer import as_long_as
from tests.validation.tables import print_table
from tracekit.prediction.model import Prediction
from tracekit.trace import Trace

MOSAIC = "mosaicml/llm-foundry, scripts/train/benchmarking"
TITAN = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
ROUNDS = 2
"""Of scaling the stand-in's kernels; a collective that is partly hidden makes it other than proportional."""


@dataclass(frozen=True)
class Case:
    """A job and its published throughput.

    Attributes:
        name: Of the job.
        shape: Of the model and of a rank's micro-batch.
        gpu: That it ran on.
        node: Its nodes of eight, as tracekit names clusters.
        tokens_per_s: Of one GPU, by number of GPUs.
        source: Where that stands.
    """

    name: str
    shape: Shape
    gpu: str
    node: str
    tokens_per_s: dict[int, int]
    source: str

    @property
    def tokens(self) -> int:
        """Of a rank's step."""
        return self.shape.batch * self.shape.tokens


A100 = ("a100-sxm-40gb", "8xa100-sxm-40gb@roce200")
H100 = ("h100-sxm", "8xh100-sxm@roce400")
"""400 Gbit/s for each GPU is the network of Llama's H100s; that of MPT's isn't told."""


def mosaic(
    name: str,
    layers: int,
    width: int,
    heads: int,
    batch: int,
    tokens_per_s: dict[int, int],
    on: tuple[str, str] = A100,
) -> Case:
    """A case of one micro-batch a step, by default on A100s with 1600 Gbit/s of RoCE a node."""
    return Case(name, Shape(layers, width, heads, 50368, batch, tokens=2048), *on, tokens_per_s, MOSAIC)


CASES = (
    mosaic("MPT 125M", 12, 768, 12, 26, {16: 130535, 32: 127122, 64: 125234, 128: 123936}),
    mosaic("MPT 350M", 24, 1024, 16, 18, {16: 55413, 32: 53811, 64: 52689, 128: 51934}),
    mosaic("MPT 760M", 24, 1536, 12, 12, {16: 29607, 32: 29648, 64: 29344, 128: 28940}),
    mosaic("MPT 1B", 24, 2048, 16, 10, {64: 19001, 128: 18647}),
    mosaic("MPT 3B", 32, 2560, 20, 6, {32: 9914, 64: 9736, 128: 9538}),
    mosaic("MPT 7B", 32, 4096, 32, 18, {32: 3725, 64: 3665, 128: 3623}),
    mosaic("MPT 13B", 40, 5120, 40, 16, {64: 1976, 128: 1972}),
    Case("Llama 3.1 8B", Shape(32, 4096, 32, 128256, batch=2, tokens=8192), *H100, {8: 5762, 128: 5605}, TITAN),
    mosaic("MPT 7B, H100", 32, 4096, 32, 6, {128: 10475, 256: 10119, 512: 9670}, H100),
    mosaic("MPT 13B, H100", 40, 5120, 40, 16, {128: 5080, 256: 4989, 512: 4952}, H100),
    mosaic("MPT 30B, H100", 48, 7168, 56, 8, {128: 2199, 256: 2148, 512: 2115}, H100),
    mosaic("MPT 70B, H100", 80, 8192, 64, 8, {128: 1058, 256: 1035, 512: 1007}, H100),
)


def main() -> None:
    """Prints a row for each case and number of GPUs."""
    wanted = sys.argv[1:] or [case.name for case in CASES]
    heading = "| job | GPUs | tokens/s a GPU | predicted | error | lost, measured | predicted | in interval |"
    print_table(heading, (row for case in CASES if case.name in wanted for row in rows(case)))


def rows(case: Case) -> Iterator[str]:
    """A line for each number of GPUs but the first, for which the stand-in's kernels are scaled."""
    first, *others = case.tokens_per_s

    def fewest_us(trace: Trace) -> float:
        return predicted(trace, case, first).step.step_time_us

    trace, _ = as_long_as(1e6 * case.tokens / case.tokens_per_s[first], case.shape, case.name, fewest_us, ROUNDS)
    base = 1e6 * case.tokens / fewest_us(trace)
    for gpus in others:
        found = predicted(trace, case, gpus)
        measured = case.tokens_per_s[gpus]
        rate, most, least = (
            case.tokens / time * 1e6 for time in (found.step.step_time_us, found.low_us, found.high_us)
        )
        lost = 100 * (1 - measured / case.tokens_per_s[first]), 100 * (1 - rate / base)
        yield (
            f"| {case.name} | {first} → {gpus} | {measured:,} | {rate:,.0f} | {100 * (rate / measured - 1):+.1f} % "
            f"| {lost[0]:.1f} % | {lost[1]:.1f} % | {'yes' if least <= measured <= most else 'no'} |"
        )


def predicted(trace: Trace, case: Case, gpus: int) -> Prediction:
    """The stand-in on so many GPUs."""
    cluster = f"{gpus // 8}x{case.node}" if gpus > 8 else case.node
    return tk.predict(trace, cluster=cluster, source_gpu=case.gpu, dp=gpus, fsdp=True, calibration=False)[cluster]


if __name__ == "__main__":
    main()
