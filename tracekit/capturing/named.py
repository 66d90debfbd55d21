"""Capture what a name stands for: a function of a Python file, or a model of a Hugging Face config."""

from dataclasses import replace
from pathlib import Path

from tracekit import ingest
from tracekit.capturing.load import load_program, read_max_tokens, takes_batch
from tracekit.capturing.options import CaptureOptions
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.program_names import CONFIG_SUFFIX
from tracekit.capturing.timed_trace import REFERENCE_GPU, TimeCorrection, load_captured
from tracekit.trace import Trace

DEFAULT_TOKENS, DEFAULT_DTYPE = 2048, "bf16"


class NamedProgram:
    """A program by its name, which can be captured at several batches.

    Args:
        name: ``FILE.py:FUNCTION``, or a Hugging Face ``config.json``.
        options: How it is captured.
    """

    def __init__(self, name: str, options: CaptureOptions) -> None:
        self._name, self._options = name, options
        self._is_config = name.endswith(CONFIG_SUFFIX)
        self._captured: dict[tuple[int | None, int], CapturedProgram] = {}

    @property
    def takes_batch(self) -> bool:
        """Whether its batch can be chosen: that of a config, and of a function with an argument ``batch``.

        Raises:
            CaptureError: It can't be loaded.
        """
        return self._is_config or takes_batch(self._name)

    @property
    def max_tokens(self) -> int | None:
        """The most tokens of a sequence: of a config those that it has positions for; None for a function.

        Raises:
            CaptureError: The config can't be read.
        """
        return read_max_tokens(Path(self._name)) if self._is_config else None

    def capture_batch(self, batch: int | None, tokens: int | None = None) -> CapturedProgram:
        """Capture it at a batch; None for its own.

        Args:
            batch: Its samples.
            tokens: Of a config: tokens of each sequence; None for those of the options.

        Raises:
            CaptureError: It can't be loaded or captured.
        """
        size = batch, tokens or self._options.seq or DEFAULT_TOKENS
        if size not in self._captured:
            self._captured[size] = self._capture(*size)
        return self._captured[size]

    def _capture(self, batch: int | None, tokens: int) -> CapturedProgram:
        options = self._options
        given = load_program(
            self._name, batch=batch, tokens=tokens, dtype=options.dtype or DEFAULT_DTYPE, training=options.train
        )
        found = capture(
            given.model,
            *given.inputs,
            training=options.train,
            optimizer=options.optimizer,
            autocast=options.autocast,
            tf32=options.tf32,
            compiled=options.compile,
            name=given.name,
            keywords=given.keywords,
        )
        size = batch or int(self._is_config)
        facts = replace(found.facts, batch=size, tokens=size * tokens if self._is_config else 0)
        return replace(found, facts=facts)


def load_measured(options: CaptureOptions) -> TimeCorrection | None:
    """Load the trace that corrects a program's times, if one is given.

    Raises:
        TracekitError: It can't be read, or doesn't tell what its ops took.
    """
    if options.measured is None:
        return None
    from tracekit.capturing.sharpen import measure_ops  # imports torch

    return measure_ops(ingest.load(options.measured))


def capture_named(
    name: str, options: CaptureOptions, batch: float | None, gpu: str | None = None
) -> tuple[Trace, float | None]:
    """Capture a program and return its trace, and the batch that is left to scale it by.

    Args:
        name: Its name.
        options: How it is captured.
        batch: Its batch, as a multiple of the program's own.
        gpu: The GPU whose times the trace holds; None for the reference.

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
        measured=load_measured(options),
    )
    return trace, None if chosen else batch
