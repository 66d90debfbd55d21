"""Answer what the command line asks of a program: load it, capture it at its batch, predict it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from predictors import Gpu, resolve_gpu
from tracekit.capturing.largest_batch import find_largest_batch
from tracekit.capturing.load import CONFIG_SUFFIX, load_program
from tracekit.capturing.predict import predict_captured
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.steps import CapturedStep
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import captures as messages

LARGEST = "max"


@dataclass(frozen=True, kw_only=True)
class CaptureRequest:
    """What to capture, and how.

    Attributes:
        program: ``FILE.py:FUNCTION``, or a model's ``config.json``.
        training: Whether the step has a backward pass.
        optimizer: The optimizer's step at its end.
        autocast: Mixed precision.
        tf32: Whether products of fp32 run in TF32.
        cuda_graph: Whether one CUDA graph launches all kernels.
        batch: Of a config: sequences, or 'max' for the most that a GPU's memory holds.
        tokens: Of a config: tokens of each.
        dtype: Of a config: type of its parameters.
    """

    program: str
    training: bool = False
    optimizer: str | None = None
    autocast: str | None = None
    tf32: bool = False
    cuda_graph: bool = False
    batch: str = "1"
    tokens: int = 2048
    dtype: str = "bf16"


@dataclass(frozen=True)
class CaptureAnswer:
    """A program and its step on each GPU.

    Attributes:
        program: The program, at the first GPU's batch.
        steps: One for each GPU.
    """

    program: CapturedProgram
    steps: tuple[CapturedStep, ...]


def answer_capture(request: CaptureRequest, gpus: Sequence[str]) -> CaptureAnswer:
    """Capture a program and predict it on GPUs.

    Raises:
        RequestError: An option is impossible, or no GPU is given.
        CaptureError: The program can't be captured, or fits on none of them at any batch.
        PredictorError: A GPU is unknown or its name ambiguous.
    """
    if not gpus:
        raise RequestError(messages.CAPTURE_TARGET_NEEDED())
    targets = [resolve_gpu(gpu).gpu for gpu in gpus]
    is_config = request.program.endswith(CONFIG_SUFFIX)
    if request.batch == LARGEST and not is_config:
        raise RequestError(messages.LARGEST_BATCH_NEEDS_CONFIG())
    batch = None if request.batch == LARGEST else _parse_batch(request.batch)

    @cache
    def capture_batch(size: int) -> CapturedProgram:
        found = _capture_loaded(request, size)
        return replace(found, batch=size, tokens=size * request.tokens) if is_config else found

    if batch is not None:
        program = capture_batch(batch)
        slugs = [gpu.slug for gpu in targets]
        return CaptureAnswer(program, predict_captured(program, slugs, cuda_graph=request.cuda_graph))
    largest = [_capture_largest(gpu, capture_batch) for gpu in targets]
    steps = (
        predict_captured(program, [gpu.slug], cuda_graph=request.cuda_graph)
        for gpu, program in zip(targets, largest, strict=True)
    )
    return CaptureAnswer(largest[0], tuple(step for (step,) in steps))


def _capture_largest(gpu: Gpu, capture_batch: Callable[[int], CapturedProgram]) -> CapturedProgram:
    """Capture the program at the largest batch that a GPU holds."""
    largest = find_largest_batch(capture_batch, gpu)
    if largest is None:
        raise CaptureError(messages.BATCH_FITS_NOWHERE(gpu=gpu.slug, least_bytes=capture_batch(1).peak_bytes))
    return capture_batch(largest)


def _parse_batch(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 1 << 31:
        raise RequestError(messages.BATCH_MALFORMED(batch=text))
    return int(text)


def _capture_loaded(request: CaptureRequest, batch: int) -> CapturedProgram:
    given = load_program(
        request.program, batch=batch, tokens=request.tokens, dtype=request.dtype, training=request.training
    )
    return capture(
        given.model,
        *given.inputs,
        training=request.training,
        optimizer=request.optimizer,
        autocast=request.autocast,
        tf32=request.tf32,
        name=given.name,
        keywords=given.keywords,
    )
