"""The options of a prediction, a sweep, a report and an export, each declared once.

A group holds options that several requests have. A request inherits from its groups; the last one's options come first.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Annotated

from tracekit.bounds import MAX_COUNT, MAX_ZIPF_ALPHA
from tracekit.errors import RequestError, StepError
from tracekit.messages import index_files as index_messages
from tracekit.messages import requests as messages
from tracekit.messages import sharding as sharding_messages
from tracekit.numbers import NUMBER_PATTERN
from tracekit.request.option import Option, Panel, Request, split_values

if TYPE_CHECKING:
    from tracekit.index_distribution import IndexPattern
    from tracekit.parallelism.layout import LayoutRequest
    from tracekit.prediction.cost import GivenPrices
    from tracekit.prediction.question import Question

MAX_CONTEXT = 2**27
"""Most keys of a sequence."""
MIN_BATCH_FACTOR, MAX_BATCH_FACTOR = 1e-3, 1e6
LARGEST_BATCH = "max"
MIN_SAMPLES, MAX_SAMPLES = 1e-6, 1e12

STEPS = re.compile(r"-?[0-9]{1,18}(:-?[0-9]{1,18})?")
TIME = re.compile(rf"({NUMBER_PATTERN}) ?(us|µs|ms|s)")
UNITS_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}


def parse_time_us(text: str) -> float:
    """Parse a time such as ``12.3ms``, in us.

    Raises:
        RequestError: It is none, or none at all.
    """
    found = TIME.fullmatch(text.strip())
    if found is None or not (time_us := float(found[1]) * UNITS_US[found[2]]):
        raise RequestError(messages.TIME_WITHOUT_UNIT(time=text))
    return time_us


class ExportFormat(StrEnum):
    """Format of an exported file; Chakra's are a folder with a file per rank."""

    PERFETTO = "perfetto"
    KINETO = "kineto"
    PARQUET = "parquet"
    CSV = "csv"
    CHAKRA = "chakra"


EXPORT_SUFFIXES: dict[ExportFormat, tuple[str, ...]] = {
    ExportFormat.PERFETTO: (".json", ".gz"),
    ExportFormat.KINETO: (".json", ".gz"),
    ExportFormat.PARQUET: (".parquet",),
    ExportFormat.CSV: (".csv",),
    ExportFormat.CHAKRA: (),
}


WORLD_SIZE = Option("Ranks of the job on the target.", "World size (GPUs in use)", "N", minimum=1, maximum=MAX_COUNT)
TENSOR_PARALLEL = Option(
    "Tensor-parallel ranks on the target; of a one-GPU trace too.",
    "Tensor parallel (TP)",
    "N",
    minimum=1,
    maximum=MAX_COUNT,
)
PIPELINE_PARALLEL = Option(
    "Pipeline-parallel stages on the target.", "Pipeline parallel (PP) stages", "N", minimum=1, maximum=MAX_COUNT
)
EXPERT_PARALLEL = Option(
    "Expert-parallel (MoE) ranks on the target.", "Expert parallel (EP)", "N", minimum=1, maximum=MAX_COUNT
)


def check_framework(name: str) -> None:
    """Raise :class:`~tracekit.errors.RequestError` if a name is no serving engine, or has no version after ``==``."""
    from predictors.errors import PredictorError
    from predictors.kernel_identity import parse_framework

    try:
        parse_framework(name)
    except PredictorError as error:
        raise RequestError(messages.FRAMEWORK_UNKNOWN(framework=name)) from error


@dataclass(frozen=True, kw_only=True)
class StepOptions(Request):
    """Which steps are measured."""

    steps: Annotated[
        int | str | None,
        Option(
            "Steps to measure (ProfilerStep numbers; without these from 0); default all but the first of several.",
            "Steps",
            "N[:M]",
        ),
    ] = None

    @property
    def step_range(self) -> str | None:
        """The steps as text, ``7`` or ``7:9``."""
        return None if self.steps is None else str(self.steps).strip()

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        if self.step_range is not None and not STEPS.fullmatch(self.step_range):
            raise StepError(messages.STEPS_NOT_A_RANGE(steps=self.step_range))


@dataclass(frozen=True, kw_only=True)
class RunOptions(StepOptions):
    """What is measured, and what is known of it."""

    source_gpu: Annotated[
        str | None, Option("The GPU of the trace, where it doesn't say or says it wrong.", "GPU of the trace")
    ] = None
    model_config: Annotated[
        str | None,
        Option(
            "The config.json of the model that an engine served: gives the sizes that CUDA graphs hide.",
            "Model configuration",
            "FILE",
        ),
    ] = None
    framework: Annotated[
        str | None,
        Option(
            "The engine that ran the trace, with its version: vllm, sglang or trtllm, such as vllm==0.19.0.",
            "Serving engine and version",
            "NAME[==VERSION]",
        ),
    ] = None
    zipf: Annotated[
        float | None,
        Option(
            "Exponent of Zipf's law by which rows of embedding tables are looked up, 0 for evenly; default 1.05, and "
            "intervals hold 0 to 1.2.",
            "Skew of look-ups",
            "ALPHA",
            minimum=0,
            maximum=MAX_ZIPF_ALPHA,
        ),
    ] = None
    indices: Annotated[
        str | None,
        Option(
            "Recorded indices into embedding tables, or how often rows are drawn: .npy, .npz, .pt, .csv, "
            "locality_stats.txt.",
            "Indices of look-ups",
            "FILE",
        ),
    ] = None
    without_rule: Annotated[
        str | Sequence[str],
        Option("Inference rule to switch off. `tracekit info -v` lists them.", "Inference rules to switch off"),
    ] = ()

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.inference_rules import select_rules
        from tracekit.prediction.targets import resolve_gpu_name

        super().check()
        if self.source_gpu is not None:
            resolve_gpu_name(self.source_gpu)
        if self.framework is not None:
            check_framework(self.framework)
        select_rules(split_values(self.without_rule))
        if self.zipf is not None and self.indices is not None:
            raise RequestError(index_messages.INDICES_GIVEN_TWICE())

    @property
    def index_pattern(self) -> "IndexPattern | None":
        """How rows of embedding tables are looked up; None if nobody tells.

        Raises:
            IndexFileError: The file can't be read, or has no look-ups.
        """
        from tracekit.capturing.index_files import read_index_pattern
        from tracekit.index_distribution import ZipfPattern

        if self.indices is not None:
            return read_index_pattern(self.indices)
        return None if self.zipf is None else ZipfPattern(self.zipf)


@dataclass(frozen=True, kw_only=True)
class EditOptions(Request):
    """What changes in the run before it is reported or predicted."""

    panel = Panel.WHAT_IF

    what_if: Annotated[
        str | Sequence[str],
        Option(
            "Replay with a change, such as 'scale(family=gemm, 0.5)' or 'no-sync(aten::item)'; several in order.",
            "What-if edits",
            "EDIT",
            separator="\n",
        ),
    ] = ()
    host_speed: Annotated[
        float | str | None,
        Option(
            "How many times as fast the CPU is, such as 1.3 or python=1.3,op=1.2; default unchanged.",
            "Host speed",
            "SPEED",
        ),
    ] = None
    unprofiled_step: Annotated[
        str | None,
        Option(
            "What a step takes without the profiler, such as 12.3ms: takes the profiler's overhead out.",
            "Step time without the profiler",
            "TIME",
        ),
    ] = None

    @property
    def edits(self) -> list[str]:
        """The what-if edits in order, the host's speed first."""
        from tracekit.whatif.parse import parse_edits

        speed = self.host_speed
        return parse_edits(split_values(self.what_if), f"{speed:.15g}" if isinstance(speed, int | float) else speed)

    @property
    def unprofiled_step_us(self) -> float | None:
        """Step time without the profiler."""
        if self.unprofiled_step is None:
            return None
        return parse_time_us(self.unprofiled_step)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.edits, self.unprofiled_step_us


@dataclass(frozen=True, kw_only=True)
class TargetOptions(Request):
    """Where the step is predicted, and what that costs."""

    panel = Panel.TARGET

    gpu: Annotated[
        str | Sequence[str],
        Option("Target GPU, or datacenter, consumer, all. `tracekit gpus` lists them.", "GPUs", "NAME", short="-g"),
    ] = ()
    cluster: Annotated[
        str | Sequence[str],
        Option(
            "Target cluster, such as 4x8xh100-sxm@ndr400, or a TOML. `tracekit clusters` lists them.",
            "Clusters",
        ),
    ] = ()
    source_cluster: Annotated[
        str | None, Option("The cluster of the trace, where its GPU doesn't tell.", "Cluster of the trace")
    ] = None
    price: Annotated[
        Mapping[str, float] | str | Sequence[str],
        Option(
            "Dollars for an hour of one GPU of trace or target, such as h100-sxm=2.49; of a whole instance, p5=55; of "
            "the only target 2.49.",
            "Prices of GPUs",
            "[GPU=]DOLLARS",
        ),
    ] = ()
    prices: Annotated[
        str | None,
        Option(
            "A file of such prices: TOML with date = 2026-11-01 and the table [dollars_an_hour].",
            "File of prices",
            "FILE",
        ),
    ] = None
    samples: Annotated[
        float | None,
        Option(
            "Samples per rank in a traced step, where the trace doesn't tell.",
            "Samples per rank and step",
            "N",
            minimum=MIN_SAMPLES,
            maximum=MAX_SAMPLES,
        ),
    ] = None
    host: Annotated[
        float | str,
        Option(
            "The target's CPU: same (default), typical beside that GPU, one of `tracekit hosts`, or a speed of `info`.",
            "Host (CPU) of the target",
            "HOST",
        ),
    ] = "same"
    host_from: Annotated[
        str | None,
        Option("A trace of any job on the target's machine: predicts for its CPU.", "Trace of that host", "TRACE"),
    ] = None
    power_cap: Annotated[
        float | str | None, Option("Power limit of each target GPU, such as 500W.", "Power limit of a GPU", "WATTS")
    ] = None
    clock: Annotated[
        float | str | None,
        Option("Clock that each target GPU is held at, such as 1200MHz.", "Clock of a GPU", "MHZ"),
    ] = None
    source_clock: Annotated[
        float | str | None,
        Option("Mean clock of the trace's GPU meanwhile, such as 1350MHz.", "Clock of the trace's GPU", "MHZ"),
    ] = None
    no_calibration: Annotated[
        bool, Option("Leave out what `tracekit calibrate` keeps on this machine.", "Leave out calibrations")
    ] = False
    no_scoreboard: Annotated[
        bool,
        Option("Leave out the outcomes that `tracekit compare --keep` keeps on this machine.", "Leave out outcomes"),
    ] = False

    @property
    def gpus(self) -> tuple[str, ...]:
        """The target GPUs."""
        return split_values(self.gpu)

    @property
    def clusters(self) -> tuple[str, ...]:
        """The target clusters."""
        return split_values(self.cluster)

    @property
    def given_prices(self) -> "GivenPrices":
        """The prices, of the option and of the file.

        Raises:
            RequestError: One can't be read.
        """
        from tracekit.prediction.cost import GivenPrices, parse_prices
        from tracekit.prediction.price_file import read_price_file

        file = None if self.prices is None else read_price_file(self.prices)
        if isinstance(self.price, Mapping):
            return GivenPrices(self.price, file=file)
        return parse_prices(split_values(self.price), file)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.comm import load_cluster
        from tracekit.prediction.fixed_clock import parse_clock, parse_source_clock, resolve_clock
        from tracekit.prediction.power_cap import parse_power_cap, resolve_power_cap
        from tracekit.prediction.target_host import SAME, parse_host
        from tracekit.prediction.targets import resolve_targets

        super().check()
        cap_w, clock_mhz = parse_power_cap(self.power_cap), parse_clock(self.clock)
        parse_source_clock(self.source_clock, None)
        for target in resolve_targets(self.gpus, self.clusters):
            resolve_power_cap(cap_w, target.gpu.gpu)
            resolve_clock(clock_mhz, target.gpu.gpu)
        if self.source_cluster is not None:
            load_cluster(self.source_cluster)
        if parse_host(self.host) != SAME and self.host_from is not None:
            raise RequestError(messages.HOST_GIVEN_TWICE())
        self.given_prices.check()

    def require_target(self) -> None:
        """Refuse a request without a target.

        Raises:
            RequestError: There is none.
        """
        if not self.gpus and not self.clusters:
            raise RequestError(messages.NO_TARGET())


@dataclass(frozen=True, kw_only=True)
class DecisionOptions(Request):
    """What is to be decided between trace and targets."""

    rank_by: Annotated[
        str,
        Option(
            "What targets are ranked by, for equal work: time (default), dollars, tokens-per-dollar or energy.",
            "Rank by",
            "FIGURE",
        ),
    ] = "time"
    steps_to_run: Annotated[
        float | str | None,
        Option("Steps of the whole job, as traced, such as 300k: tells its hours and dollars.", "Steps to run", "N"),
    ] = None
    tokens_to_run: Annotated[
        float | str | None,
        Option("Tokens of the whole job, such as 2B: tells its hours and dollars.", "Tokens to run", "N"),
    ] = None
    samples_to_run: Annotated[
        float | str | None,
        Option("Samples of the whole job, such as 90M: tells its hours and dollars.", "Samples to run", "N"),
    ] = None

    @property
    def question(self) -> "Question":
        """What is to be decided.

        Raises:
            RequestError: A figure is unknown, or the length of the job none or given twice.
        """
        from tracekit.prediction.question import Question, RankBy, WholeRun, parse_amount

        if self.rank_by not in list(RankBy):
            raise RequestError(messages.RANK_BY_UNKNOWN(given=self.rank_by, known=[one.value for one in RankBy]))
        lengths = {"steps": self.steps_to_run, "tokens": self.tokens_to_run, "samples": self.samples_to_run}
        runs = []
        for unit, given in lengths.items():
            if given is None:
                continue
            amount = parse_amount(given if isinstance(given, str) else f"{given:.15g}")
            if amount is None:
                raise RequestError(messages.RUN_LENGTH_MALFORMED(option=f"{unit} to run", given=str(given)))
            runs.append(WholeRun(amount, unit))
        if len(runs) > 1:
            raise RequestError(messages.RUN_LENGTH_GIVEN_TWICE())
        return Question(RankBy(self.rank_by), *runs)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.question


@dataclass(frozen=True, kw_only=True)
class ScheduleOptions(Request):
    """How a job that gets replicas or stages runs."""

    panel = Panel.LAYOUT

    fsdp: Annotated[
        bool,
        Option(
            "FSDP: shard parameters, gradients and optimizer state of a one-GPU job over its data-parallel ranks.",
            "Fully sharded data parallel (FSDP)",
        ),
    ] = False
    micro_batches: Annotated[
        int | None,
        Option(
            "Micro-batches of a step; default the trace's, times {--pp}.",
            "Micro-batches",
            "N",
            minimum=1,
            maximum=MAX_COUNT,
        ),
    ] = None
    pp_schedule: Annotated[
        str | None,
        Option(
            "1f1b (default), zero-bubble (ZB-H1), interleaved (2 chunks of layers a stage), or interleaved:N.",
            "Pipeline schedule",
        ),
    ] = None

    @property
    def schedule(self) -> tuple[int | None, bool | None]:
        """Chunks of layers on each stage, and whether weight gradients are deferred; None for the default."""
        from tracekit.parallelism.layout import parse_schedule

        return parse_schedule(self.pp_schedule)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        super().check()
        _ = self.schedule


@dataclass(frozen=True, kw_only=True)
class LayoutOptions(Request):
    """The job's layout on the target."""

    panel = Panel.LAYOUT

    world_size: Annotated[int | None, WORLD_SIZE] = None
    dp: Annotated[
        int | None,
        Option("Data-parallel ranks on the target.", "Data parallel (DP)", "N", minimum=1, maximum=MAX_COUNT),
    ] = None
    tp: Annotated[int | None, TENSOR_PARALLEL] = None
    pp: Annotated[int | None, PIPELINE_PARALLEL] = None
    ep: Annotated[int | None, EXPERT_PARALLEL] = None
    batch: Annotated[
        float | None,
        Option(
            "Each rank's batch on the target, as a multiple of the trace's, such as 2 or 0.5.",
            "Batch, times the trace's",
            "FACTOR",
            minimum=MIN_BATCH_FACTOR,
            maximum=MAX_BATCH_FACTOR,
        ),
    ] = None
    context: Annotated[
        int | None,
        Option(
            "Keys that each sequence of a decode batch sees on the target.",
            "Context of a decode batch",
            "TOKENS",
            minimum=1,
            maximum=MAX_CONTEXT,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ReportRequest(RunOptions, EditOptions):
    """A report of the measured run."""


@dataclass(frozen=True, kw_only=True)
class ExportRequest(RunOptions, EditOptions, ScheduleOptions, LayoutOptions, TargetOptions):
    """The measured run, with predictions beside it if there are targets."""

    @property
    def layout(self) -> "LayoutRequest":
        """The requested layout."""
        from tracekit.parallelism.layout import LayoutRequest

        chunks, zero_bubble = self.schedule
        return LayoutRequest(
            world_size=self.world_size,
            dp=self.dp,
            tp=self.tp,
            pp=self.pp,
            ep=self.ep,
            micro_batches=self.micro_batches,
            chunks=chunks,
            batch=self.batch,
            fsdp=self.fsdp or None,
            zero_bubble=zero_bubble,
            context=self.context,
        )


@dataclass(frozen=True, kw_only=True)
class PredictRequest(ExportRequest, DecisionOptions):
    """Predictions on some targets."""

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        self.require_target()
        super().check()


@dataclass(frozen=True, kw_only=True)
class SweepRequest(RunOptions, ScheduleOptions, TargetOptions):
    """Predictions of many layouts on some targets."""

    panel = Panel.LAYOUT

    world_size: Annotated[int | Sequence[int], WORLD_SIZE] = ()
    tp: Annotated[int | Sequence[int], TENSOR_PARALLEL] = ()
    pp: Annotated[int | Sequence[int], PIPELINE_PARALLEL] = ()
    ep: Annotated[int | Sequence[int], EXPERT_PARALLEL] = ()
    batch: Annotated[
        float | str | None,
        Option(
            "Each rank's batch, as a multiple of the trace's, or max for the largest whole one that surely fits.",
            "Batch, times the trace's",
            "FACTOR",
        ),
    ] = None

    @property
    def batch_factor(self) -> float | None:
        """The multiple of the batch; infinite for the largest that fits."""
        if self.batch is None:
            return None
        text = str(self.batch).strip()
        if text == LARGEST_BATCH:
            return inf
        factor = float(text) if re.fullmatch(NUMBER_PATTERN, text) else 0.0
        if not MIN_BATCH_FACTOR <= factor <= MAX_BATCH_FACTOR:
            raise RequestError(
                messages.BATCH_FACTOR_MALFORMED(batch=text, least=MIN_BATCH_FACTOR, most=MAX_BATCH_FACTOR)
            )
        return factor

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        self.require_target()
        super().check()
        _ = self.batch_factor


@dataclass(frozen=True, kw_only=True)
class ShardRequest(RunOptions):
    """A plan of how embedding tables are sharded over clusters."""

    cluster: Annotated[
        str | Sequence[str],
        Option(
            "Cluster, such as 8xh100-sxm, or a TOML. `tracekit clusters` lists them.",
            "Clusters",
            short="-c",
            panel=Panel.TARGET,
        ),
    ] = ()
    table: Annotated[
        str | Sequence[str],
        Option(
            "Tables, in place of those of a file or trace: [COUNT*]ROWSxWIDTH[:POOLING[:ALPHA]], such as "
            "26*1000000x128:20.",
            "Embedding tables",
            "TABLE",
        ),
    ] = ()
    batch: Annotated[
        int | None,
        Option(
            "Samples of a rank in a step; default the trace's or file's.",
            "Samples",
            "N",
            minimum=1,
            maximum=MAX_COUNT,
        ),
    ] = None
    optimizer: Annotated[
        str | None,
        Option(
            "What updates the tables: sgd, adagrad, rowwise_adagrad, adam, ...; default the trace's or the file's, "
            "else rowwise_adagrad.",
            "Optimizer of the tables",
        ),
    ] = None
    data_type: Annotated[
        str | None,
        Option("Type of the weights: fp32 (default), fp16, bf16, int8 or fp8.", "Type of the weights", "TYPE"),
    ] = None
    dense_memory: Annotated[
        float,
        Option("GiB of a GPU that the rest of the model takes.", "GiB of other layers", "GIB", minimum=0, maximum=1e6),
    ] = 0.0
    dense_time: Annotated[
        str | None,
        Option(
            "Forward pass of the other layers, such as 3ms: hides the exchange of the next batch's indices.",
            "Time of other layers",
            "TIME",
        ),
    ] = None

    @property
    def clusters(self) -> tuple[str, ...]:
        """The clusters."""
        return split_values(self.cluster)

    def count_tables(self) -> int:
        """Count the tables that are given here."""
        from tracekit.embedding_table_spec import parse_table_spec

        return sum(parse_table_spec(text).count for text in split_values(self.table))

    @property
    def dense_time_us(self) -> float:
        """The forward pass of the other layers."""
        return 0.0 if self.dense_time is None else parse_time_us(self.dense_time)

    def check(self) -> None:
        """Check all options; see :meth:`Request.check`."""
        from tracekit.comm import load_cluster
        from tracekit.embedding_table_spec import parse_table_spec
        from tracekit.sharding.tables import WEIGHT_BYTES
        from tracekit.workload.ops.table_lookups import OPTIMIZER_STATE

        super().check()
        if not self.clusters:
            raise RequestError(sharding_messages.SHARDING_CLUSTER_MISSING())
        for name in self.clusters:
            load_cluster(name)
        for text in split_values(self.table):
            parse_table_spec(text)
        for name, value, known in (
            ("optimizer", self.optimizer, list(OPTIMIZER_STATE)),
            ("data type", self.data_type, list(WEIGHT_BYTES)),
        ):
            if value is not None and value not in known:
                raise RequestError(messages.OPTION_VALUE(option=name, given=repr(value), expected=" or ".join(known)))
        _ = self.dense_time_us
