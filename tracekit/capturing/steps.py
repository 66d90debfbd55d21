"""The steps of a captured program on GPUs, each at the batch that was asked for."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import polars as pl

from predictors import Gpu, resolve_gpu
from tracekit import ingest
from tracekit.capturing.load import load_program, move_prints_to_stderr, read_max_tokens, takes_batch
from tracekit.capturing.loaded_program import LoadedProgram
from tracekit.capturing.options import (
    AUTOCAST_DTYPES,
    CONFIG_SUFFIX,
    TF32,
    CaptureOptions,
    is_timm_name,
    is_training_file,
)
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.timed_trace import DEFAULT_SETTING, REFERENCE_GPU, CaptureSetting, TimeCorrection, load_captured
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import models
from tracekit.messages import models as messages
from tracekit.models.dlrm import DlrmConfig, DlrmEdits, read_dlrm_config
from tracekit.models.stacks import PLAIN, STACKS, UNKNOWN_STACK
from tracekit.prediction import Prediction
from tracekit.prediction.predict_run import predict_on_gpus
from tracekit.run import prepare_run
from tracekit.trace import Trace

MAX_BATCH = 1 << 20


def find_largest_batch(measure_bytes: Callable[[int], int], gpu: Gpu, most: int = MAX_BATCH) -> int | None:
    """Find the largest batch whose tensors fit into a GPU's memory; ``None`` if not even one sample does.

    What the tensors hold grows about in proportion to the batch, so two batches tell where memory ends. From there it
    goes on in growing strides, and halves what is left of the range::

        batch 1: 5 GiB, batch 2: 6 GiB, 22 GiB usable   ->   18

    ``measure_bytes`` returns what the tensors of a batch hold at most, which grows with the batch; ``most`` is the
    largest batch that is tried.
    """
    usable = USABLE_MEMORY_FRACTION * gpu.memory_bytes
    one = measure_bytes(1)
    if one > usable:
        return None
    if most == 1 or (two := measure_bytes(2)) > usable:
        return 1
    fits, fails, stride = 2, most + 1, 1
    guess = min(1 + int((usable - one) / (two - one)), most) if two > one else most
    while fails - fits > 1:
        if not fits < guess < fails:
            guess = (fits + fails) // 2
        if measure_bytes(guess) <= usable:
            fits, guess = guess, guess + stride
        else:
            fails, guess = guess, guess - stride
        stride *= 2
    return fits


DEFAULT_TOKENS, DEFAULT_DTYPE, SINGLE_DTYPE = 2048, "bf16", "fp32"


class NamedProgram:
    """A program by its name, which can be captured at several batches.

    Args:
        name: ``FILE.py:FUNCTION``, ``timm:MODEL``, a Hugging Face ``config.json``, or that of a DLRM.
    """

    def __init__(self, name: str, options: CaptureOptions) -> None:
        self._name, self._options = name, options
        self._is_timm = is_timm_name(name)
        self._is_training_file = is_training_file(name)
        self._is_config = name.endswith(CONFIG_SUFFIX) or self._is_training_file
        self._captured: dict[tuple[int | None, int], CapturedProgram] = {}

    @property
    def takes_batch(self) -> bool:
        """Whether its batch can be chosen: of a config, of timm's models, and of a function that takes ``batch``.

        Raises:
            CaptureError: It can't be loaded.
        """
        with move_prints_to_stderr():
            return self._is_config or self._is_timm or takes_batch(self._name)

    @cached_property
    def dlrm(self) -> DlrmConfig | None:
        """Its configuration as a DLRM, with the changes that the options ask for; None if it is none.

        Raises:
            ModelConfigError: It has impossible values.
            RequestError: Options that only a DLRM has, or hasn't.
        """
        reads, edits = self._is_config and not self._is_training_file, self._options.dlrm_edits
        found = read_dlrm_config(self._name) if reads else None
        if found is None and edits != DlrmEdits():
            raise RequestError(messages.DLRM_OPTIONS(program=self._name))
        if found is not None and self._options.seq is not None:
            raise RequestError(messages.DLRM_WITHOUT_TOKENS())
        return None if found is None else edits.apply(found)

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a sequence: of a config those that it has positions for; None where there are none.

        Raises:
            CaptureError: The config can't be read.
        """
        reads = self._is_config and not self._is_training_file and not self.dlrm
        return read_max_tokens(Path(self._name)) if reads else None

    def capture_batch(self, batch: int | None, tokens: int | None = None) -> CapturedProgram:
        """Capture it at a batch; None for its own.

        ``tokens`` are those of each sequence, of a config; None for those of the options.

        Raises:
            CaptureError: It can't be loaded or captured.
        """
        size = batch, tokens or self._options.seq or DEFAULT_TOKENS
        if size not in self._captured:
            with move_prints_to_stderr():
                self._captured[size] = self._capture(*size)
        return self._captured[size]

    def _capture(self, batch: int | None, tokens: int) -> CapturedProgram:
        options, dlrm = self._options, self.dlrm
        is_language = self._is_config and not dlrm
        # A language model of 16 bits needs no autocast.
        is_whole = is_language and options.precision in AUTOCAST_DTYPES and options.dtype != SINGLE_DTYPE
        given = load_program(
            self._name,
            batch=batch,
            tokens=tokens,
            dtype=options.dtype or (_choose_dtype(options) if is_language else SINGLE_DTYPE),
            training=options.train,
            attention=options.attention,
            **({"dlrm": dlrm} if dlrm else {}),
        )
        if is_language and STACKS[options.stack or PLAIN].fuses and options.attention is None:
            given = _fuse_attention(given)
        found = capture(
            given.model,
            *given.inputs,
            training=options.train,
            optimizer=options.optimizer,
            autocast=options.autocast,
            tf32=options.tf32,
            compiled=options.compile,
            channels_last=options.channels_last,
            attention=_choose_kernel(given, options),
            precision=None if is_whole else options.precision,
            micro_batches=options.micro_batches,
            recompute=options.recompute,
            lora=options.lora,
            name=given.name,
            keywords=given.keywords,
        )
        size = options.micro_batches * (batch or (dlrm.batch_size if dlrm else int(self._is_config or self._is_timm)))
        facts = replace(
            found.facts,
            batch=size,
            tokens=size * given.tokens,
            tables=dlrm.tables if dlrm else (),
            attention=_name_attention(given, options, found),
            is_longest=options.is_longest,
            quantization=given.quantization,
            left_out=given.left_out,
        ).on_stack(options.stack or (UNKNOWN_STACK if is_language and options.train else ""))
        return replace(found, facts=facts)


def _fuse_attention(given: LoadedProgram) -> LoadedProgram:
    """Return a language model with attention by one kernel, where transformers has it by plain products alone."""
    from tracekit.capturing.fused_attention import fuse_attention

    return replace(given, attention="sdpa") if given.attention == "eager" and fuse_attention(given.model) else given


def _choose_dtype(options: CaptureOptions) -> str:
    """Return the type of a language model's parameters where none is asked for."""
    if options.precision in AUTOCAST_DTYPES:
        return str(options.precision)
    return SINGLE_DTYPE if options.precision == TF32 else DEFAULT_DTYPE


def _choose_kernel(given: LoadedProgram, options: CaptureOptions) -> str | None:
    """Return how attention's function runs; None where PyTorch chooses, or a model of transformers doesn't call it."""
    if given.attention:
        return "flash" if given.attention == "flash" else None
    return options.attention


def _name_attention(given: LoadedProgram, options: CaptureOptions, found: CapturedProgram) -> str:
    """Return how attention is computed; empty where the program's code says so, or has none."""
    kind = given.attention or options.attention or ""
    sign = "softmax" if kind == "eager" else "scaled_dot_product"
    return kind if any(sign in call.op for call in found.calls) else ""


def load_measured(options: CaptureOptions, gpu: str | None = None) -> TimeCorrection | None:
    """Load the trace that corrects a program's times, if one is given.

    ``gpu`` is where it was recorded; it has to be named where that is a CPU.

    Raises:
        TracekitError: It can't be read, or doesn't tell what its ops took.
    """
    if options.measured is None:
        return None
    if gpu is not None and (cpu := resolve_gpu(gpu).gpu).is_cpu:
        from tracekit.capturing.recordings import load_recording, measure_recording  # imports this module's program

        return measure_recording(load_recording(options.measured), cpu)[1]
    from tracekit.capturing.sharpen import measure_ops  # imports torch

    return measure_ops(ingest.load(options.measured))


def capture_named(
    name: str,
    options: CaptureOptions,
    batch: float | None,
    gpu: str | None = None,
    setting: CaptureSetting = DEFAULT_SETTING,
) -> tuple[Trace, float | None]:
    """Capture a program and return its trace, and the batch that is left to scale it by.

    ``batch`` is a multiple of the program's own; the trace holds the times of ``gpu``, by default of the reference.

    Raises:
        CaptureError: It can't be captured.
        PredictorError: The GPU is unknown or its name ambiguous.
    """
    program = NamedProgram(name, options)
    is_whole = batch is not None and batch >= 1 and batch == int(batch)
    chosen = int(batch) if batch is not None and is_whole and program.takes_batch else None
    trace = load_captured(
        program.capture_batch(chosen),
        gpu or REFERENCE_GPU,
        cuda_graph=options.cuda_graph,
        measured=load_measured(options, gpu),
        setting=setting,
    )
    return trace, None if chosen else batch


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
        return list(
            times.group_by("family")
            .agg(pl.col("time_us").sum())
            .sort("time_us", "family", descending=[True, False])
            .iter_rows()
        )


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

    ``measured`` is what a trace of the program tells of its times; a ``cuda_graph`` launches all kernels.
    """
    trace = load_captured(program, cuda_graph=cuda_graph, measured=measured)
    predicted = predict_on_gpus(prepare_run(trace), [gpu.slug for gpu in gpus])
    return tuple(CapturedStep(program, one) for one in predicted)


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
