"""The recording: where figures come from, what became of the files' events, and what is doubtful about each rank."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from predictors import Gpu
from predictors.weights_file import shipped_sha256
from tracekit import schema, secret_scan
from tracekit.analysis.graph_replays import count_replayed_nodes
from tracekit.analysis.kernel_doubts import find_below_bound, measure_clock_speed
from tracekit.arrays import find_matches
from tracekit.format import replace_undecodable
from tracekit.ingest.cuda_graph_captures import is_whole_graph
from tracekit.ingest.ledger import count_events, describe_events
from tracekit.messages import Message
from tracekit.messages import reports as told
from tracekit.messages.models import CONFIG_WITHOUT_FIT
from tracekit.messages.traces import DEVICE_NOT_RECORDED
from tracekit.prediction import Prediction
from tracekit.run import MeasuredRun
from tracekit.secret_scan import HARMLESS_KEY_PATTERN
from tracekit.trace import RankTrace
from tracekit.version import __version__
from tracekit.workload.kernel_table import REPLACED_NAME, count_gpus_per_rank
from tracekit.workload.owners import count_lost_launches, lacks_graphs
from tracekit.workload.step_kinds import compute_time_share
from tracekit.workload.steps import count_optimizer_steps
from tracekit.workload.work_inference.model_layers import describe_misfit


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """Figures of a datasheet.

    Attributes:
        slug: Canonical name.
        name: Full name.
        facts: Name, value with unit, and source of each figure.
    """

    slug: str
    name: str
    facts: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Provenance:
    """Sources of the figures.

    Attributes:
        version: Version of tracekit.
        command: The command line; ``None`` if called from Python.
        trace: The trace that was read.
        sha256: Hash of the trace file; ``None`` if it isn't a file on this machine.
        weights_sha256: Hash of the fitted weights.
        recorded: Metadata of the recording, without hosts, users and other values that may be private.
        gpus: The datasheets.
    """

    version: str
    command: str | None
    trace: str
    sha256: str | None
    weights_sha256: str
    recorded: tuple[tuple[str, str], ...]
    gpus: tuple[GpuFacts, ...]


def build_provenance(run: MeasuredRun, targets: Sequence[Prediction], command: str | None) -> Provenance:
    """Build the sources of the figures."""
    path = Path(run.trace.source)
    gpus = {gpu.slug: gpu for gpu in (run.gpu, *(target.target.gpu.gpu for target in targets)) if gpu is not None}
    told = ((key, value) for key, value in run.trace.metadata.items() if re.fullmatch(HARMLESS_KEY_PATTERN, key))
    return Provenance(
        version=__version__,
        command=replace_undecodable(command) if command else None,
        trace=replace_undecodable(run.trace.source),
        sha256=_hash_file(path) if path.is_file() else None,
        weights_sha256=shipped_sha256(),
        recorded=tuple((key, str(value)) for key, value in told),
        gpus=tuple(_list_gpu_facts(gpu) for gpu in gpus.values()),
    )


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_gpu_facts(gpu: Gpu) -> GpuFacts:
    link = f"{gpu.link_gbps:g} GB/s, {gpu.link}" if gpu.link_gbps else "none"
    rows = (
        ("SMs or compute units", f"{gpu.sms}", "compute.sms"),
        ("boost clock", f"{gpu.boost_clock_mhz:g} MHz", "compute.boost_clock_mhz"),
        ("board power", f"{gpu.tdp_w:g} W", "compute.tdp_w"),
        ("memory", f"{gpu.memory_bytes / 2**30:g} GB {gpu.memory_kind}", "memory.size_gb"),
        ("memory bandwidth", f"{gpu.bandwidth_gbps:g} GB/s", "memory.bandwidth_gbps"),
        ("L2 cache", f"{gpu.l2_bytes / 2**20:g} MiB", "memory.l2_mib"),
        *(
            (f"{dtype} {units}", f"{peak:g} TFLOP/s", f"{units}_tflops.{dtype}")
            for units, peaks in (("vector", gpu.vector_tflops), ("tensor", gpu.tensor_tflops))
            for dtype, peak in peaks.items()
        ),
        ("links, one direction", link, "interconnect.link_gbps"),
    )
    return GpuFacts(gpu.slug, gpu.name, tuple((what, value, gpu.sources.get(key, "")) for what, value, key in rows))


@dataclass(frozen=True, slots=True)
class EventGroup:
    """Events of one category and phase that fared alike, of all ranks.

    Attributes:
        kind: Code of what became of them, as in the list of messages.
        effect: ``read``, ``dropped``, ``changed`` or ``guessed``; what is changed or guessed is among what is read.
        unit: What is counted: ``events``, or ``bytes``, ``keys`` and ``names``.
        category: Category; of events that are read, their table; empty without one.
        phase: Phase in Chrome's trace format; empty for several.
        count: How many.
        first_event: Number of the first in its file, from 0; ``None`` if unknown.
        first_byte: Where that is in the uncompressed file; ``None`` unless it is damaged.
        severity: ``note``, or ``warning`` if predictions may suffer.
    """

    kind: str
    effect: str
    unit: str
    category: str
    phase: str
    count: int
    first_event: int | None
    first_byte: int | None
    severity: str


@dataclass(frozen=True, slots=True)
class EventLedger:
    """The ledger of all files.

    Attributes:
        events: Number of events in them.
        read: How many of these were read.
        summary: What most of the others are.
        groups: The events by what became of them.
    """

    events: int
    read: int
    summary: Message
    groups: tuple[EventGroup, ...]


def build_event_ledger(run: MeasuredRun) -> EventLedger:
    """Build the ledger of a run's ranks; the first event is that of the first rank that has one."""
    keys = ("kind", "effect", "unit", "category", "phase", "severity")
    whole = (
        pl.concat([rank.ledger for rank in run.ranks])
        .group_by(keys, maintain_order=True)
        .agg(pl.col("count").sum(), pl.col("first_event", "first_byte").drop_nulls().first())
    )
    table = schema.LEDGER.conform(whole)
    events, read = count_events(table)
    groups = tuple(EventGroup(**row) for row in table.iter_rows(named=True))
    return EventLedger(events, read, describe_events(table), groups)


# Percent of the GPU's time without recorded launches, from which on the report warns.
MIN_UNLAUNCHED_PCT = 50.0

# Fraction of launches without a kernel, from which on the report warns; public traces have fewer.
MIN_LOST_FRACTION = 0.02

# Percent of the GPU's time in attention with an unknown mask, from which on the report warns.
MIN_UNMASKED_PCT = 5.0

MAX_VARIANTS = 3
"""Warnings of one kind whose words differ by rank that are listed one by one; of more, the first is."""


@dataclass(frozen=True, slots=True)
class RankRecord:
    """The recording of one rank.

    Attributes:
        trace: Its trace, with corrected times.
        faults: What of its times was corrected.
        kernels: Its kernel table, as :class:`tracekit.program.StepTables` has it.
        is_whole_trace: Whether the whole trace counts as one step.
        gpu: Its GPU; None if it isn't known.
        model: What the model alone says of each kernel on the GPU, from
            :func:`tracekit.reporting.kernel_rows.predict_on_source`; None to ask it for the kernels that matter.
    """

    trace: RankTrace
    faults: tuple[Message, ...]
    kernels: pl.DataFrame
    is_whole_trace: bool
    gpu: Gpu | None
    model: pl.DataFrame | None = None


def list_rank_doubts(rank: RankRecord) -> tuple[Message, ...]:
    """List what is doubtful about a rank's recording."""
    return tuple(_iter_rank_doubts(rank))


def _iter_rank_doubts(rank: RankRecord) -> Iterator[Message]:
    if rank.trace.is_synthetic:
        yield told.TIMES_SYNTHETIC()
    for warning in (*rank.trace.warnings, *secret_scan.build_secret_warnings(rank.trace)):
        if warning.template is not DEVICE_NOT_RECORDED or rank.gpu is None:
            yield warning
    yield from rank.faults
    if below := find_below_bound(rank.kernels, rank.gpu, rank.model):
        yield below
    updates = count_optimizer_steps(rank.trace) if rank.is_whole_trace else 0
    if updates > 1:
        yield told.STEPS_UNMARKED(updates=updates)
    gpus = count_gpus_per_rank(rank.kernels)
    if gpus > 1:
        yield told.SEVERAL_GPUS_IN_PROCESS(gpus=gpus)
    yield from _doubt_launches(rank)
    yield from _doubt_names(rank)
    yield from _doubt_work(rank)
    yield from _doubt_clock(rank)


def _doubt_launches(rank: RankRecord) -> Iterator[Message]:
    """Doubt kernels without a launch, launches without a kernel, and replays of CUDA graphs that lack kernels."""
    lack_launches = rank.kernels["call"].null_count() > 0
    part = compute_time_share(rank.kernels, "dur_ns", pl.col("call").is_null()) if lack_launches else 0.0
    if part > MIN_UNLAUNCHED_PCT:
        missing = told.LAUNCHES_MISSING if rank.is_whole_trace else told.LAUNCHES_MISSING_IN_STEPS
        yield missing(time_pct=part)
    lost, launches = count_lost_launches(rank.trace)
    if lost > MIN_LOST_FRACTION * launches:
        said = told.GRAPHS_NOT_TRACED if lacks_graphs(rank.trace) else told.KERNELS_LOST
        yield said(lost=lost, launches=launches)
    graphs = rank.kernels.filter(is_whole_graph()).height
    if graphs:
        part = compute_time_share(rank.kernels, "dur_ns", is_whole_graph())
        yield told.GRAPHS_WHOLE(launches=graphs, time_pct=part)
    replays = count_replayed_nodes(rank.trace)
    if replays.missing:
        yield told.GRAPH_REPLAYS_INCOMPLETE(
            incomplete=replays.incomplete, replays=replays.replays, missing=replays.missing
        )


def _doubt_names(rank: RankRecord) -> Iterator[Message]:
    """Doubt kernels that are named after their op, as their own name contradicts it."""
    replaced = find_matches(rank.kernels["name"], REPLACED_NAME)
    if replaced.size:
        yield told.KERNEL_NAMES_CONTRADICTED(kernels=replaced.size, op=rank.kernels["op"][int(replaced[0])])


def _doubt_work(rank: RankRecord) -> Iterator[Message]:
    """Doubt attention whose masks weren't recorded, and a model's configuration that explains nothing."""
    if rank.trace.has_shapes and not rank.trace.ops["concrete_inputs"].count():
        part = compute_time_share(rank.kernels, "dur_ns", (pl.col("family") == "attention") & ~pl.col("causal"))
        if part > MIN_UNMASKED_PCT:
            yield told.ATTENTION_MASK_UNKNOWN(time_pct=part)
    model, work_from = rank.trace.model, rank.kernels["work_from"]
    if model is not None and work_from.null_count() and not (work_from == "model").any():
        yield CONFIG_WITHOUT_FIT(path=model.name, difference=describe_misfit(rank.kernels, rank.trace))


def _doubt_clock(rank: RankRecord) -> Iterator[Message]:
    """Doubt a GPU that was slower than GPUs of its model usually are."""
    model_us = None if rank.model is None else rank.model["model_us"]
    found = measure_clock_speed(rank.kernels, rank.gpu, model_us) if rank.gpu and not rank.gpu.is_cpu else None
    if found and found.is_slow:
        fastest, slowest = found.families
        yield told.CLOCK_LOW(
            min_ratio=found.min_ratio, max_ratio=found.max_ratio, fastest_family=fastest, slowest_family=slowest
        )


def merge_rank_doubts(doubts: Sequence[tuple[int, Sequence[Message]]]) -> Iterator[Message]:
    """Merge the doubts of all ranks: those that differ in numbers only are one, with its ranks if not all have it."""
    variants: dict[object, dict[str, list[tuple[int, Message]]]] = {}
    for rank, found in doubts:
        for one in found:
            words = re.sub(r"\d+", "", one.render())
            variants.setdefault(one.template, {}).setdefault(words, []).append((rank, one))
    for worded in variants.values():
        groups = list(worded.values())
        if len(groups) > MAX_VARIANTS and len(doubts) > 1:
            groups = [sorted((one for group in groups for one in group), key=lambda found: found[0])]
        for group in groups:
            yield _name_ranks(group, len(doubts))


def _name_ranks(found: Sequence[tuple[int, Message]], ranks: int) -> Message:
    (rank, first), *others = found
    having = {one for one, _ in found}
    if 1 < len(having) < ranks:
        return told.RANKS_WARNED(rank=rank, more=len(having) - 1, warning=first)
    said = told.WARNING_REPEATED(warning=first, more=len(others)) if others else first
    return said if len(having) == ranks else told.RANK_WARNED(rank=rank, warning=said)
