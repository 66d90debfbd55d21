"""Capture what a name stands for: a function of a Python file, a model of a Hugging Face config, or a DLRM."""

from dataclasses import replace
from functools import cached_property
from pathlib import Path

from tracekit import ingest
from tracekit.capturing.foreign_code import move_prints_to_stderr
from tracekit.capturing.load import load_program, read_max_tokens, takes_batch
from tracekit.capturing.loaded_program import LoadedProgram
from tracekit.capturing.options import CaptureOptions
from tracekit.capturing.program import CapturedProgram, capture
from tracekit.capturing.program_names import CONFIG_SUFFIX
from tracekit.capturing.timed_trace import DEFAULT_SETTING, REFERENCE_GPU, CaptureSetting, TimeCorrection, load_captured
from tracekit.errors import RequestError
from tracekit.messages import models as messages
from tracekit.models.dlrm import DlrmConfig, DlrmEdits, read_dlrm_config
from tracekit.trace import Trace

DEFAULT_TOKENS, DEFAULT_DTYPE, DLRM_DTYPE = 2048, "bf16", "fp32"


class NamedProgram:
    """A program by its name, which can be captured at several batches.

    Args:
        name: ``FILE.py:FUNCTION``, a Hugging Face ``config.json``, or that of a DLRM.
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
        with move_prints_to_stderr():
            return self._is_config or takes_batch(self._name)

    @cached_property
    def dlrm(self) -> DlrmConfig | None:
        """Its configuration as a DLRM, with the changes that the options ask for; None if it is none.

        Raises:
            ModelConfigError: It has impossible values.
            RequestError: Options that only a DLRM has, or hasn't.
        """
        found, edits = read_dlrm_config(self._name) if self._is_config else None, self._options.dlrm_edits
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
        return read_max_tokens(Path(self._name)) if self._is_config and not self.dlrm else None

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
            with move_prints_to_stderr():
                self._captured[size] = self._capture(*size)
        return self._captured[size]

    def _capture(self, batch: int | None, tokens: int) -> CapturedProgram:
        options, dlrm = self._options, self.dlrm
        given = load_program(
            self._name,
            batch=batch,
            tokens=tokens,
            dtype=options.dtype or (DLRM_DTYPE if dlrm else DEFAULT_DTYPE),
            training=options.train,
            attention=options.attention,
            **({"dlrm": dlrm} if dlrm else {}),
        )
        found = capture(
            given.model,
            *given.inputs,
            training=options.train,
            optimizer=options.optimizer,
            autocast=options.autocast,
            tf32=options.tf32,
            compiled=options.compile,
            attention=_choose_kernel(given, options),
            name=given.name,
            keywords=given.keywords,
        )
        size = batch or (dlrm.batch_size if dlrm else int(self._is_config))
        tokens_known = self._is_config and not dlrm
        facts = replace(
            found.facts,
            batch=size,
            tokens=size * tokens if tokens_known else 0,
            tables=dlrm.tables if dlrm else (),
            attention=_name_attention(given, options, found),
            quantization=given.quantization,
        )
        return replace(found, facts=facts)


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
    name: str,
    options: CaptureOptions,
    batch: float | None,
    gpu: str | None = None,
    setting: CaptureSetting = DEFAULT_SETTING,
) -> tuple[Trace, float | None]:
    """Capture a program and return its trace, and the batch that is left to scale it by.

    Args:
        name: Its name.
        options: How it is captured.
        batch: Its batch, as a multiple of the program's own.
        gpu: The GPU whose times the trace holds; None for the reference.
        setting: What else its times depend on.

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
        setting=setting,
    )
    return trace, None if chosen else batch
