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
from tracekit.messages import models
from tracekit.messages import models as messages
from tracekit.prediction import Prediction, predict
from tracekit.run import prepare_run

LARGEST = "max"
TOKENS_STEP = 64
"""The longest sequence is a multiple of so many tokens."""
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
    def sequence_tokens(self) -> int | None:
        """Tokens of each sequence, where they are known."""
        facts = self.program.facts
        return facts.tokens // facts.batch if facts.tokens and facts.batch else None

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
    longest: bool = False,
    measured: TimeCorrection | None = None,
) -> tuple[CapturedStep, ...]:
    """Predict a program's step on GPUs.

    Args:
        program: The program.
        gpus: Names, in any spelling.
        batch: Its batch, 'max' for the most that each GPU's memory holds, or None for its own.
        longest: Whether its sequences are as long as each GPU's memory holds, and the config allows.
        cuda_graph: Whether one CUDA graph launches all kernels.
        measured: What a trace of the program tells of its times.

    Raises:
        RequestError: No GPU is given, the batch is none or can't be chosen, or so are the sequences.
        CaptureError: The program can't be captured, or fits on a GPU at no batch or length.
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    if not gpus:
        raise RequestError(messages.CAPTURE_TARGET_NEEDED())
    if batch is not None and not program.takes_batch:
        raise RequestError(messages.BATCH_OF_FUNCTION())
    if longest and program.dlrm:
        raise RequestError(models.DLRM_LONGEST())
    if longest and (program.max_tokens is None or batch == LARGEST):
        raise RequestError(messages.LONGEST_OF_CONFIG())
    targets = [resolve_gpu(gpu).gpu for gpu in gpus]
    size = None if batch in (None, LARGEST) else parse_batch(str(batch))
    if batch != LARGEST and not longest:
        return predict_program(program.capture_batch(size), targets, cuda_graph=cuda_graph, measured=measured)
    fitted = ((_capture_longest(program, size, gpu) if longest else _capture_largest(program, gpu)) for gpu in targets)
    return tuple(
        step
        for gpu, found in zip(targets, fitted, strict=True)
        for step in predict_program(found, [gpu], cuda_graph=cuda_graph, measured=measured)
    )


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
    trace = load_captured(program, cuda_graph=cuda_graph, measured=measured)
    predicted = predict(prepare_run(trace), [gpu.slug for gpu in gpus])
    return tuple(CapturedStep(program, one) for one in predicted.targets)


def _capture_largest(program: NamedProgram, gpu: Gpu) -> CapturedProgram:
    """Capture the program at the largest batch that a GPU holds."""
    largest = find_largest_batch(lambda batch: program.capture_batch(batch).facts.peak_bytes, gpu)
    if largest is None:
        least = program.capture_batch(1).facts.peak_bytes
        raise CaptureError(messages.BATCH_FITS_NOWHERE(gpu=gpu.slug, least_bytes=least))
    return program.capture_batch(largest)


def _capture_longest(program: NamedProgram, batch: int | None, gpu: Gpu) -> CapturedProgram:
    """Capture the program with the longest sequences that a GPU holds and its config allows."""

    def capture(steps: int) -> CapturedProgram:
        return program.capture_batch(batch, TOKENS_STEP * steps)

    most = max((program.max_tokens or 0) // TOKENS_STEP, 1)
    longest = find_largest_batch(lambda steps: capture(steps).facts.peak_bytes, gpu, most)
    if longest is None:
        raise CaptureError(messages.SEQUENCE_FITS_NOWHERE(gpu=gpu.slug, least_bytes=capture(1).facts.peak_bytes))
    return capture(longest)


def parse_batch(text: str) -> int:
    """Parse a number of samples.

    Raises:
        RequestError: It is none.
    """
    if not text.isascii() or not text.isdigit() or len(text) > MAX_BATCH_DIGITS or not int(text):
        raise RequestError(messages.BATCH_MALFORMED(batch=text))
    return int(text)
