"""How a program that never ran is captured; see :mod:`tracekit.capturing`."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from tracekit.bounds import MAX_COUNT
from tracekit.capturing.options import FULL, SELECTIVE, CaptureOptions, is_training_file
from tracekit.capturing.torchtitan import DEGREES, read_training_file
from tracekit.errors import CaptureError, RequestError
from tracekit.messages import models as messages
from tracekit.messages import name_option
from tracekit.request.option import Option, Panel, Request, split_values
from tracekit.request.options import (
    EditOptions,
    ExportRequest,
    LayoutOptions,
    PredictRequest,
    RunOptions,
    SweepRequest,
    TargetOptions,
)
from tracekit.request.options.layout import MICRO_BATCHES, ScheduleOptions
from tracekit.request.options.serving import DEFAULT_ENGINE

if TYPE_CHECKING:
    from tracekit.capturing.timed_trace import CaptureSetting
    from tracekit.capturing.variants import Value
    from tracekit.trace import Trace

LONGEST = "max"
"""Value of ``seq`` for the longest sequence that fits."""
Asked = TypeVar("Asked", bound=Request)
AskedOfRun = TypeVar("AskedOfRun", bound=RunOptions)


@dataclass(frozen=True, kw_only=True)
class ProgramOptions(Request):
    """How a program is captured."""

    panel = Panel.PROGRAM

    train: Annotated[
        bool, Option("Of a program: a training step, forward, backward and the optimizer.", "Program: training step")
    ] = False
    optimizer: Annotated[
        str | None,
        Option(
            "Of a program: adamw, adam or sgd, fused-adamw and so on, adamw-8bit (bitsandbytes), muon (with adamw for "
            "what is no matrix), or none; default as --stack has it, else none.",
            "Program: optimizer",
        ),
    ] = None
    micro_batches: Annotated[int | None, replace(MICRO_BATCHES, panel=Panel.LAYOUT)] = None
    recompute: Annotated[
        str | None,
        Option(
            "Of a program: layers run again in the backward pass instead of keeping what they make: full, selective "
            "(but for attention and every second product, as torchtitan does), or none (default).",
            "Program: recomputation",
            "KIND",
        ),
    ] = None
    lora: Annotated[
        int | None,
        Option(
            "Of a program: train adapters of this rank (LoRA) beside the linear layers of its repeated layers, which "
            "are frozen, as is all else.",
            "Program: rank of LoRA's adapters",
            "RANK",
            minimum=1,
            maximum=MAX_COUNT,
        ),
    ] = None
    autocast: Annotated[
        str | None, Option("Of a program: mixed precision, bf16 or fp16.", "Program: mixed precision", "TYPE")
    ] = None
    tf32: Annotated[bool, Option("Of a program: products of fp32 run in TF32.", "Program: TF32")] = False
    compile: Annotated[
        bool, Option("Of a program: torch.compile fuses its kernels, by rules.", "Program: torch.compile")
    ] = False
    channels_last: Annotated[
        bool,
        Option(
            "Of a program: images and weights lie pixel after pixel (NHWC), as torch.channels_last has them.",
            "Program: channels last",
        ),
    ] = False
    cuda_graph: Annotated[bool, Option("Of a program: one CUDA graph launches all kernels.", "Program: CUDA graph")] = (
        False
    )
    seq: Annotated[
        int | str | None,
        Option(
            "Of a config: tokens of each sequence, default 2048, or max for the most (a multiple of 64) that fit.",
            "Config: tokens of a sequence",
            "N",
            minimum=1,
            maximum=MAX_COUNT,
        ),
    ] = None
    dtype: Annotated[
        str | None,
        Option(
            "Of a config: type of its parameters, bf16 (default), fp16 or fp32 (a DLRM's default, and timm's).",
            "Config: type of parameters",
            "TYPE",
        ),
    ] = None

    attention: Annotated[
        str | None,
        Option(
            "Of a program: attention by plain products (eager), PyTorch's fused kernel (sdpa) or FlashAttention "
            "(flash); default as the config or the code says.",
            "Program: attention",
            "KIND",
        ),
    ] = None
    table: Annotated[
        str | Sequence[str],
        Option(
            "Embedding tables of a DLRM's config, [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]], such as 26*1000000x128:20; "
            "of a trace the rows, pooling and skew of those of that width.",
            "Embedding tables",
            "TABLE",
        ),
    ] = ()
    bottom_mlp: Annotated[
        str | None,
        Option("Of a DLRM's config: widths of its bottom MLP, such as 512,256,128.", "DLRM: bottom MLP", "WIDTHS"),
    ] = None
    top_mlp: Annotated[
        str | None,
        Option("Of a DLRM's config: widths of its top MLP, such as 1024,512,1.", "DLRM: top MLP", "WIDTHS"),
    ] = None
    measured: Annotated[
        str | None,
        Option(
            "Of a program: a recorded trace of it, on any GPU and at any batch, that corrects its times.",
            "Trace of the program",
            "TRACE",
        ),
    ] = None

    decode: Annotated[
        bool,
        Option(
            "Of a config: a step in which a serving engine (--framework, default vllm) decodes --batch sequences with "
            "--context tokens each.",
            "Config: a serving engine's decode step",
            panel=Panel.ENGINE,
        ),
    ] = False
    prefill: Annotated[
        bool,
        Option(
            "Of a config: a step in which a serving engine reads --batch prompts of --seq tokens.",
            "Config: a serving engine's prefill",
            panel=Panel.ENGINE,
        ),
    ] = False
    precision: Annotated[
        str | None,
        Option(
            "Of a program: format of its linear layers' products, forward and backward: bf16, fp16, tf32, fp8, "
            "fp8_rowwise, fp8_delayed, fp8_block, mxfp8 or nvfp4. Of a serving engine's step: bf16, fp16, fp8, "
            "fp8_block, nvfp4, int4 or mxfp4; default as the config says.",
            "Program: precision of products",
            "TYPE",
        ),
    ] = None
    stack: Annotated[
        str | None,
        Option(
            "Of a program that trains: what runs it, torchtitan, megatron, hf (Hugging Face's Trainer) or plain (the "
            "model's code as it stands); default unknown, which widens a config's interval.",
            "Program: stack",
        ),
    ] = None
    cache_type: Annotated[
        str | None,
        Option(
            "Of a serving engine's step: format of keys and values in the cache, bf16 (default), fp16, fp8, fp8_block, "
            "nvfp4 or int4.",
            "Engine: precision of the cache",
            "TYPE",
            panel=Panel.ENGINE,
        ),
    ] = None
    all2all_backend: Annotated[
        str | None,
        Option(
            "Of a serving engine's step, with --ep larger than --tp: what exchanges the tokens of experts: "
            "allgather_reducescatter (default), deepep (normal mode for prompts, low-latency mode to decode), "
            "deepep_high_throughput or deepep_low_latency.",
            "Engine: exchange of experts' tokens",
            "NAME",
            panel=Panel.ENGINE,
        ),
    ] = None

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.capture
        if self.decode and self.prefill:
            raise RequestError(messages.DECODE_AND_PREFILL())
        if self.cache_type and not self.is_engine_step:
            raise RequestError(messages.CACHE_TYPE_WITHOUT_ENGINE())
        if self.all2all_backend and not self.is_engine_step:
            raise RequestError(messages.BACKEND_WITHOUT_ENGINE())

    @property
    def tokens(self) -> int | None:
        """The tokens of each sequence; None for the default, and where the longest sequence is asked for.

        Raises:
            RequestError: They are no number of tokens.
        """
        text = str(self.seq).strip()
        if self.seq is None or text == LONGEST:
            return None
        if not (text.isascii() and text.isdigit() and 1 <= int(text[:12]) <= MAX_COUNT):
            raise RequestError(messages.SEQ_MALFORMED(seq=text[:40], most=MAX_COUNT))
        return int(text)

    @property
    def is_longest(self) -> bool:
        """Whether the longest sequence that fits is asked for."""
        return str(self.seq).strip() == LONGEST

    @property
    def is_engine_step(self) -> bool:
        """Whether a serving engine's step is asked for."""
        return self.decode or self.prefill

    @property
    def capture(self) -> CaptureOptions:
        """The same without what front ends need."""
        given = {field.name: getattr(self, field.name) for field in fields(CaptureOptions)}
        own = {"table": split_values(self.table), "micro_batches": self.micro_batches or 1, "seq": self.tokens}
        if self.is_engine_step:
            own["precision"] = None  # an engine's formats are others
        return CaptureOptions(**(given | own)).follow_stack()

    def capture_trace(self, name: str, request: AskedOfRun) -> "tuple[Trace, AskedOfRun]":
        """Capture a program, at the batch that is asked for where it can be chosen.

        Args:
            name: ``FILE.py:FUNCTION``, ``timm:MODEL`` or ``config.json``.
            request: What is asked of it.

        Returns:
            Its trace, and what is left to ask of it.

        Raises:
            TracekitError: It can't be captured.
            PredictorError: Its GPU is unknown.
        """
        if is_training_file(name):
            program, asked = self.join_job(name, request)
            return program._capture_named(name, asked)
        return self._capture_named(name, request)

    def capture_recomputed(self, name: str, request: SweepRequest) -> "Iterator[Trace]":
        """Capture a program of a sweep with each kind of recomputation that isn't asked for, where that is left open.

        Args:
            name: As for :meth:`capture_trace`.
            request: What is asked of it.

        Yields:
            Traces; none where the program doesn't train, or has no layers that repeat.
        """
        is_open = request.leaves_layout_open and self.train and self.capture.recompute is None
        if not is_open or is_training_file(name):
            return
        for how in (SELECTIVE, FULL):
            with suppress(CaptureError):
                yield replace(self, recompute=how).capture_trace(name, request)[0]

    def join_job(self, name: str, request: AskedOfRun) -> tuple[Self, AskedOfRun]:
        """Return the options and the request with those of a torchtitan job's file where none is given.

        Raises:
            RequestError: The file asks for what isn't known.
        """
        program, asked = self.join_training_file(name), _join_layout(name, request)
        rounds = asked.micro_batches if isinstance(asked, LayoutOptions) else None
        return replace(program, micro_batches=program.micro_batches or rounds), asked

    def join_training_file(self, name: str) -> Self:
        """Return the options with those of a torchtitan job's file where none is given.

        Raises:
            RequestError: The file asks for what isn't known.
        """
        file = read_training_file(name)
        return _join_options(self, file.build_program_options(), file.path)

    def _capture_named(self, name: str, request: AskedOfRun) -> "tuple[Trace, AskedOfRun]":
        from tracekit.capturing.steps import capture_named
        from tracekit.capturing.timed_trace import CaptureSetting

        is_calibrated = isinstance(request, TargetOptions) and not request.no_calibration
        setting = CaptureSetting(request.index_pattern, is_calibrated)
        if self.is_engine_step:
            return self._capture_engine_step(name, request, setting)
        stages = split_values(request.pp) if isinstance(request, LayoutOptions | SweepRequest) else ()
        # The passes of a pipeline are scheduled, not captured.
        options = (replace(self, micro_batches=None) if min(stages, default=1) > 1 else self).capture
        if isinstance(request, LayoutOptions) and (request.pp or 1) == 1:
            request = replace(request, micro_batches=None)
        batch = request.batch_factor if isinstance(request, LayoutOptions | SweepRequest) else None
        if self.is_longest:
            options = replace(options, seq=self._find_longest(name, options, request))
        if batch is None or batch == inf:
            return capture_named(name, options, None, request.source_gpu, setting)[0], request
        trace, left = capture_named(name, options, batch, request.source_gpu, setting)
        return trace, replace(request, batch=left) if isinstance(request, LayoutOptions | SweepRequest) else request

    def _find_longest(self, name: str, options: CaptureOptions, request: RunOptions) -> int:
        """Find the most tokens of a sequence that surely fit on a request's targets."""
        from tracekit.capturing.longest_sequence import find_longest_sequence
        from tracekit.capturing.steps import NamedProgram

        batch = request.batch_factor if isinstance(request, ExportRequest) else None
        if not isinstance(request, ExportRequest) or (batch is not None and (batch == inf or batch != int(batch))):
            raise RequestError(messages.SEQ_MAX_OF_CONFIG())
        return find_longest_sequence(NamedProgram(name, options), None if batch is None else int(batch), request)

    def _capture_engine_step(
        self, name: str, request: AskedOfRun, setting: "CaptureSetting"
    ) -> "tuple[Trace, AskedOfRun]":
        from predictors.kernel_identity import parse_framework
        from tracekit.capturing.steps import DEFAULT_TOKENS
        from tracekit.served.engine_step import EngineStep, capture_engine_step, read_served_model
        from tracekit.served.model import COLLECTIVES, ServingEngine
        from tracekit.served.precision import check_backend

        if self.train or self.autocast or self.compile or self.measured or self.tf32 or self.micro_batches:
            raise RequestError(messages.ENGINE_OPTIONS())
        model = read_served_model(name, self.precision, self.cache_type)
        layout = request if isinstance(request, LayoutOptions) else None
        batch, context = (layout.batch_factor or 1, layout.context) if layout else (1, None)
        if batch == inf or batch != int(batch):
            raise RequestError(messages.BATCH_MALFORMED(batch=str(batch)))
        if self.is_longest:
            raise RequestError(messages.SEQ_MAX_OF_CONFIG())
        tokens = self.tokens or DEFAULT_TOKENS
        step = EngineStep(int(batch), 1, context or tokens) if self.decode else EngineStep(int(batch), tokens, 0)
        framework, version = parse_framework(request.framework or DEFAULT_ENGINE)
        shared = (layout.tp or 1, layout.ep or 1, layout.pp or 1) if layout else ()
        check_backend(self.all2all_backend)
        engine = ServingEngine(framework, version, *shared, backend=self.all2all_backend or COLLECTIVES)
        trace = capture_engine_step(model, engine, step, request.source_gpu, setting)
        named = replace(request, framework=request.framework or DEFAULT_ENGINE)
        return trace, replace(named, batch=None, context=None, ep=None, pp=None) if layout else named

    def refuse_without_program(self, request: Request) -> None:
        """Refuse options of programs for a request about what is none.

        Raises:
            RequestError: One is given.
        """
        own = replace(self.capture, table=(), micro_batches=1)
        is_schedule = isinstance(request, ScheduleOptions)
        if own != CaptureOptions() or self.is_engine_step or (self.micro_batches and not is_schedule):
            raise RequestError(messages.OPTIONS_OF_PROGRAMS())

    def move_tables(self, request: Asked) -> Asked:
        """Return the request about a trace, whose tables an edit changes.

        Raises:
            RequestError: Tables are given, and the request takes no edits.
        """
        tables = split_values(self.table)
        if not tables:
            return request
        if not isinstance(request, EditOptions):
            raise RequestError(messages.TABLES_OF_PROGRAMS())
        edits = (*split_values(request.what_if), *(f"tables({table})" for table in tables))
        return replace(request, what_if=edits)


@dataclass(frozen=True, kw_only=True)
class SearchRequest(ProgramOptions, PredictRequest):
    """Predictions of many variants of a config."""

    vary: Annotated[
        str | Sequence[str] | Mapping[str, Sequence[int | float | str | bool]],
        Option(
            "A key of the config and the values that it is varied over, such as num_hidden_layers=12,24,48 or "
            "hidden_size=1024:4096:512 (first, last, step); several keys in all combinations.",
            "Varied keys",
            "KEY=VALUES",
            panel=Panel.PROGRAM,
            separator=";",
        ),
    ] = ()

    @property
    def axes(self) -> "dict[str, list[Value]]":
        """The keys that are varied, each with its values.

        Raises:
            RequestError: One is malformed.
        """
        from tracekit.capturing.variants import parse_axes

        if isinstance(self.vary, Mapping):
            return {key: [*values] for key, values in self.vary.items()}
        return parse_axes(split_values(self.vary))

    @property
    def shares_graphs(self) -> bool:
        """Whether variants that launch the same ops have a graph in common: on GPUs, in the layout of one of them."""
        plain = replace(self.layout, batch=None)
        is_whole = self.batch_factor is None or (
            self.batch_factor < inf and self.batch_factor == int(self.batch_factor)
        )
        asks = self.clusters or self.edits or self.measured or self.is_engine_step or self.is_longest
        return is_whole and not (asks or plain.has_changes)


def _join_options(asked: Asked, given: Mapping[str, Any], path: str) -> Asked:
    """Return the options with those of a file where they are the defaults.

    Raises:
        RequestError: The file has one that isn't known.
    """
    defaults = {field.name: field.default for field in fields(asked)}
    for name in given:
        if name not in defaults:
            raise RequestError(messages.TORCHTITAN_OPTION(path=path, option=name_option(name.replace("_", "-"))))
    return replace(asked, **{name: one for name, one in given.items() if getattr(asked, name) == defaults[name]})


def _join_layout(name: str, request: AskedOfRun) -> AskedOfRun:
    """Return the request with the layout of a torchtitan job's file; a sweep tries layouts of its own."""
    if not isinstance(request, LayoutOptions):
        return request
    from tracekit.comm import load_cluster

    clusters = split_values(request.cluster) if isinstance(request, TargetOptions) else ()
    gpus = request.world_size or (load_cluster(clusters[0], unlike_gpus=True).gpus if clusters else None)
    file = read_training_file(name)
    asked = {name: getattr(request, name) for name in DEGREES if getattr(request, name) is not None}
    return _join_options(request, file.build_layout(gpus, asked), file.path)
