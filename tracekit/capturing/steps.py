"""The steps of a captured program on GPUs, each at the batch that was asked for."""

from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from predictors import Gpu, resolve_gpu
from tracekit.capturing.largest_batch import find_largest_batch
from tracekit.capturing.named import NamedProgram
from tracekit.capturing.program import CapturedProgram
from tracekit.capturing.timed_trace import TimeCorrection, load_captured
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import captures as messages
from tracekit.prediction import Prediction, predict
from tracekit.run import prepare_run

LARGEST = "max"
MAX_BATCH_DIGITS = 9
MIN_HOST_BOUND_SHARE = 0.2
"""Of the step, in which the GPU waits for the CPU, from which the CPU counts as what limits it."""


@dataclass(frozen=True)
class CapturedStep:
    """A captured step on one GPU.

    Attributes:
        program: The program, at its batch there.
        prediction: Its step.
    """

    program: CapturedProgram
    prediction: Prediction

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens a second, where the tokens of a step are known."""
        tokens = self.program.facts.tokens
        return 1e6 * tokens / self.prediction.step.step_time_us if tokens else None

    @property
    def is_host_bound(self) -> bool:
        """Whether the CPU limits the step."""
        step = self.prediction.step
        return step.idle_us >= MIN_HOST_BOUND_SHARE * step.step_time_us

    @property
    def unknown_pct(self) -> float:
        """Percent of its kernels whose work isn't known."""
        methods = self.prediction.kernels["method"]
        return 100 * float((methods == "kept").sum()) / methods.len()

    def list_families(self) -> list[tuple[str, float]]:
        """List families of kernels and their time in microseconds, the longest first."""
        times = self.prediction.kernels.select("time_us", family=self.prediction.program.kernels["family"])
        return list(times.group_by("family").agg(pl.col("time_us").sum()).sort("time_us", descending=True).iter_rows())


def predict_steps(
    program: NamedProgram,
    gpus: Sequence[str],
    batch: str | None,
    *,
    cuda_graph: bool,
    measured: TimeCorrection | None = None,
) -> tuple[CapturedStep, ...]:
    """Predict a program's step on GPUs.

    Args:
        program: The program.
        gpus: Names, in any spelling.
        batch: Its batch, 'max' for the most that each GPU's memory holds, or None for its own.
        cuda_graph: Whether one CUDA graph launches all kernels.
        measured: What a trace of the program tells of its times.

    Raises:
        RequestError: No GPU is given, or the batch is none or can't be chosen.
        CaptureError: The program can't be captured, or fits on a GPU at no batch.
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    if not gpus:
        raise RequestError(messages.CAPTURE_TARGET_NEEDED())
    if batch is not None and not program.takes_batch:
        raise RequestError(messages.BATCH_OF_FUNCTION())
    targets = [resolve_gpu(gpu).gpu for gpu in gpus]
    if batch == LARGEST:
        return tuple(
            step
            for gpu in targets
            for step in predict_program(_capture_largest(program, gpu), [gpu], cuda_graph=cuda_graph, measured=measured)
        )
    size = None if batch is None else parse_batch(batch)
    return predict_program(program.capture_batch(size), targets, cuda_graph=cuda_graph, measured=measured)


def predict_program(
    program: CapturedProgram, gpus: Sequence[Gpu], *, cuda_graph: bool = False, measured: TimeCorrection | None = None
) -> tuple[CapturedStep, ...]:
    """Predict a captured program's step on GPUs.

    Args:
        program: The program.
        gpus: The GPUs.
        cuda_graph: Whether one CUDA graph launches all kernels.
        measured: What a trace of the program tells of its times.
    """
    slugs = [gpu.slug for gpu in gpus]
    predicted = predict(prepare_run(load_captured(program, slugs[0], cuda_graph=cuda_graph, measured=measured)), slugs)
    return tuple(CapturedStep(program, one) for one in predicted.targets)


def _capture_largest(program: NamedProgram, gpu: Gpu) -> CapturedProgram:
    """Capture the program at the largest batch that a GPU holds."""
    largest = find_largest_batch(lambda batch: program.capture_batch(batch).facts.peak_bytes, gpu)
    if largest is None:
        least = program.capture_batch(1).facts.peak_bytes
        raise CaptureError(messages.BATCH_FITS_NOWHERE(gpu=gpu.slug, least_bytes=least))
    return program.capture_batch(largest)


def parse_batch(text: str) -> int:
    """Parse a number of samples.

    Raises:
        RequestError: It is none.
    """
    if not text.isascii() or not text.isdigit() or len(text) > MAX_BATCH_DIGITS or not int(text):
        raise RequestError(messages.BATCH_MALFORMED(batch=text))
    return int(text)
