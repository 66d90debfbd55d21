"""Predict many layouts of a job on some clusters, and rank them by throughput."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from math import inf
from typing import TYPE_CHECKING

import polars as pl

from tracekit.comm.cluster import load_reference_nodes
from tracekit.errors import RequestError, TracekitError
from tracekit.format import format_quantity
from tracekit.messages import Message, layouts, requests
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest, apply_request
from tracekit.parallelism.missing_collectives import find_missing_collectives
from tracekit.parallelism.process_groups import infer_layout
from tracekit.parallelism.stragglers import predict_stragglers
from tracekit.prediction.batch import StepBatch, infer_rank_batch
from tracekit.prediction.critical_batch import note_critical_batch
from tracekit.prediction.job import WholeJob
from tracekit.prediction.largest_batch import TRIED_SPLITS, count_rank_samples, find_largest_batch, replace_batch
from tracekit.prediction.model import PredictedStep, Prediction, Target
from tracekit.prediction.notes import note_outsized_node
from tracekit.prediction.predictor import Predictor
from tracekit.prediction.settings import resolve_settings
from tracekit.prediction.source_cluster import fill_source_gpu
from tracekit.prediction.source_cluster import identify_source_cluster as source_of
from tracekit.prediction.targets import resolve_targets
from tracekit.prediction.unlike_gpus import predict_target
from tracekit.run import MeasuredRun

if TYPE_CHECKING:
    from tracekit.request.options import SweepRequest

SWEEP_COLUMNS = {
    "cluster": pl.String,
    "ranks": pl.Int64,
    "dp": pl.Int64,
    "tp": pl.Int64,
    "pp": pl.Int64,
    "ep": pl.Int64,
    "micro_batches": pl.Int64,
    "batch": pl.Float64,
    "bubble": pl.Float64,
    "step_time_us": pl.Float64,
    "low_us": pl.Float64,
    "high_us": pl.Float64,
    "exposed_comm_us": pl.Float64,
    "per_second": pl.Float64,
    "efficiency": pl.Float64,
    "fits_in_memory": pl.Boolean,
    "dollars_per_1000_steps": pl.Float64,
    "dollars_per_million": pl.Float64,
    "as_the_one_before": pl.Boolean,
    "fsdp": pl.Boolean,
    "sequence_parallel": pl.Boolean,
    "cp": pl.Int64,
    "recompute": pl.String,
}

KNEE_EFFICIENCY = 0.9
"""Least throughput per GPU of a layout up to the knee, relative to the smallest layout's."""

TIED_THROUGHPUT_FRACTION = 0.01
"""Relative difference of throughput below which layouts are tied; of tied layouts the cheapest comes first."""


@dataclass(frozen=True, slots=True)
class SweepEntry:
    """One layout on one cluster.

    Attributes:
        prediction: The step.
        efficiency: Throughput per GPU, relative to that of the smallest layout on the cluster.
        is_tied: Whether its throughput equals that of the entry before it, within ``TIED_THROUGHPUT_FRACTION``.
        recompute: What a program's layers run again in the backward pass; empty for nothing.
        work: How many times the least work its batch needs to a loss; 1 where that isn't asked.
    """

    prediction: PredictedStep
    efficiency: float
    is_tied: bool = False
    recompute: str = ""
    work: float = 1.0

    @property
    def per_second(self) -> float:
        """Throughput of all replicas, in the sweep's unit."""
        return _get_per_second(self.prediction)

    @property
    def progress_per_second(self) -> float:
        """Throughput, as far as it counts towards a loss."""
        return self.per_second / self.work

    @property
    def dollars_for_progress(self) -> float | None:
        """Dollars for as much progress as a million units of the smallest batch make; None without a price."""
        return None if self.dollars_per_million is None else self.dollars_per_million * self.work

    @property
    def may_fit(self) -> bool:
        """True if it fits into memory or may fit."""
        return self.prediction.memory.fits is not False

    @property
    def dollars_per_million(self) -> float | None:
        """Dollars for a million of the sweep's units on all GPUs in use; None without a price."""
        return self.prediction.dollars_per_million


@dataclass(frozen=True, slots=True)
class Sweep:
    """Layouts by throughput, tied ones by price; layouts that don't fit into memory come last.

    Attributes:
        run: The measured run.
        layout: Layout of the trace.
        unit: What is counted: samples, tokens, or the replicas' steps.
        entries: The layouts.
        best: By cluster, the layout with the highest throughput.
        knees: By cluster, the most ranks up to which each GPU keeps ``KNEE_EFFICIENCY`` of its throughput; 0 where none
            fits.
        refused: Layouts that can't be predicted, and why.
        straggler_note: What is assumed of the slowest rank of the largest layout; None without.
        assumptions: What is assumed of inserted collectives, and of nodes larger than any known one.
        price_doubts: What is odd about the given prices.
    """

    run: MeasuredRun
    layout: Layout
    unit: str
    entries: tuple[SweepEntry, ...]
    best: Mapping[str, Prediction]
    knees: Mapping[str, int]
    refused: tuple[Message, ...]
    straggler_note: Message | None = None
    assumptions: tuple[Message, ...] = ()
    price_doubts: tuple[Message, ...] = ()

    def __repr__(self) -> str:
        return f"Sweep({format_quantity(len(self.entries), 'layout')} on {', '.join(self.knees)}: see .table)"

    @property
    def table(self) -> pl.DataFrame:
        """One row per layout, times in microseconds."""
        return tabulate_entries(self.entries)


def sweep_variants(runs: Sequence[MeasuredRun], request: "SweepRequest") -> Sweep:
    """Predict the steps of a program that was captured with several kinds of recomputation, and rank them together.

    Args:
        runs: The measured runs, of one batch each.
        request: The targets and the layouts.

    Raises:
        TracekitError: As :func:`sweep`, of the first run.
    """
    first, *others = (sweep(run, request) for run in runs)
    if not others:
        return first
    sweeps = (first, *others)
    fitting = [one for one in sweeps if any(entry.may_fit for entry in one.entries)] or sweeps
    found = [(entry.prediction, entry.recompute) for one in fitting for entry in one.entries]
    refused = _join(one.refused for one in sweeps)
    ranked = _rank_layouts(first.run, first.layout, found, first.unit, refused, request.noise_scale)
    return replace(
        ranked,
        straggler_note=first.straggler_note,
        assumptions=_join(one.assumptions for one in fitting),
        price_doubts=first.price_doubts,
    )


def _join(messages: Iterable[Sequence[Message]]) -> tuple[Message, ...]:
    """Join messages, each once."""
    return tuple(dict.fromkeys(chain.from_iterable(messages)))


def sweep(run: MeasuredRun, request: "SweepRequest") -> Sweep:
    """Predict the step in many layouts.

    By default numbers of ranks are doubled from the trace's up to the whole cluster; tensor-parallel ranks, stages and
    expert-parallel ranks are the trace's; and each GPU that is no cluster's stands on its usual node. Of a program's
    training, splits of the whole cluster are tried, too, where none are asked for, with sequence parallelism beside
    tensor parallelism, several numbers of micro-batches, and context parallelism of long sequences; what can't fit is
    left out where anything may.

    Args:
        run: The measured run.
        request: The targets and the layouts.

    Raises:
        LayoutError: The trace's layout is unknown, or none of the requested layouts can be predicted.
        TracekitError: A cluster is unknown, or a GPU's name ambiguous.
    """
    batch, (chunks, zero_bubble) = request.batch_factor, request.schedule
    old = infer_layout(run.program)
    processed = (infer_rank_batch(run.program, request.samples) or StepBatch(1.0, "steps")).scale(old.dp)
    factor = None if batch is None or batch == inf else batch
    source = source_of(run, request.source_cluster)
    run = fill_source_gpu(run, source)
    nodes = [
        load_reference_nodes().get(target.gpu.gpu.slug, f"8x{target.gpu.gpu.slug}")
        for target in resolve_targets(request.gpus)
    ]
    refused: list[Message] = []
    plain = LayoutRequest(balance=request.balance or None)
    staged = replace(plain, micro_batches=request.micro_batches, chunks=chunks, zero_bubble=zero_bubble)
    sharing: Sequence[int | None] = request.expert_parallel or [None]
    changes = [
        replace(
            staged if pp > 1 else plain,
            dp=dp,
            tp=tp,
            pp=pp,
            ep=ep,
            **request.sharding,  # type: ignore[arg-type]
            **request.exchange,  # type: ignore[arg-type]
            batch=factor,
            sequence_parallel=(request.sequence_parallel and (tp or old.tp) > 1) or None,
            cp=cp,
            cp_ring=(request.cp_ring and (cp or old.cp) > 1) or None,
        )
        for dp in request.data_parallel or [None]
        for cp in request.context_parallel or [None]
        for tp in request.tensor_parallel or [old.tp]
        for pp in request.pipeline_parallel or [old.pp]
        for ep in sharing
    ]
    places = resolve_targets((), [*request.clusters, *nodes])
    asked = [*dict.fromkeys(_list_targets(old, places, request.world_sizes, changes, refused))]
    contexts = _list_context_splits(run)
    tried = [*list_splits(places, replace(staged, batch=factor), refused, contexts)] if _is_open(run, request) else []
    wanted = [*dict.fromkeys([*asked, *tried])]
    settings = resolve_settings(request, run, source, wanted)
    job = WholeJob(run, run.program, old, processed)
    predictor = settings.make_predictor(job, job)
    if batch == inf:
        samples = count_rank_samples(run.program, processed, old)
        wanted = [_enlarge_batch(predictor, target, samples) for target in wanted]
    if tried:
        wanted = [target for target in wanted if _may_fit(predictor, target)] or asked
    found = [*_predict_targets(predictor, wanted, refused)]
    if not found:
        raise LayoutError(layouts.NO_LAYOUT_PREDICTED(reason=refused[0]))
    facts = run.trace.capture_facts
    labelled = [(one, facts.recompute if facts else "") for one in found]
    critical = request.noise_scale
    if critical and processed.unit == "steps":
        raise RequestError(requests.CRITICAL_BATCH_WITHOUT_UNITS())
    ranked = _rank_layouts(run, old, labelled, processed.unit, _join([refused]), critical)
    largest = max((one.layout or old for one in found), key=lambda layout: layout.world_size)
    added = (find_missing_collectives(run.program, old, one.layout or old) for one in found)
    assumed = [note for adders in added if adders for note in job.insert_collectives(adders).assumptions]
    fleets = [(one.target.cluster, one.ranks) for one in found if one.target.cluster]
    assumed += [note for cluster, ranks in fleets for note in note_outsized_node(cluster, ranks)]
    assumed += [note_critical_batch(critical, processed.unit)] if critical else []
    return replace(
        ranked,
        straggler_note=predict_stragglers(run.program, job.spread, old, largest).note,
        assumptions=tuple(dict.fromkeys(assumed)),
        price_doubts=settings.prices.doubts,
    )


TRIED_MICRO_BATCHES = (2, 8)
"""Micro-batches for each stage that are tried where none are asked for."""


TRIED_CONTEXT_SPLITS, MIN_CONTEXT_TOKENS = (1, 2, 4, 8), 16_384
"""Context-parallel ranks that are tried of sequences from so many tokens on: of shorter ones attention is a small part
of the step, and tensor parallelism splits their activations, too. A judgement that saves time; ``--cp`` tries any."""


def _list_context_splits(run: MeasuredRun) -> tuple[int, ...]:
    """List the numbers of context-parallel ranks that are tried where none are asked for."""
    facts = run.trace.capture_facts
    tokens = facts.tokens // facts.batch if facts and facts.batch else 0
    return TRIED_CONTEXT_SPLITS if tokens >= MIN_CONTEXT_TOKENS else (1,)


def _is_open(run: MeasuredRun, request: "SweepRequest") -> bool:
    """Return whether the layout of a program's training is left open."""
    facts = run.trace.capture_facts
    return facts is not None and facts.trains and not facts.tables and request.leaves_layout_open


def list_splits(
    places: Sequence[Target], staged: LayoutRequest, refused: list[Message], contexts: Sequence[int] = (1,)
) -> Iterator[Target]:
    """List layouts of whole clusters: tensor parallelism in a node, stages, with FSDP and without, and schedules.

    Tensor-parallel ranks split the tokens between blocks, too, which takes as many bytes and less memory.

    Args:
        places: The clusters.
        staged: The batch, and the schedule of layouts with stages.
        refused: Impossible layouts are added to it.
        contexts: Numbers of context-parallel ranks.
    """
    for place in places:
        if place.cluster is None:
            continue
        gpus, node = place.cluster.gpus, place.cluster.gpus_per_node
        changes = [
            replace(one, tp=tp, pp=pp, cp=cp, fsdp=fsdp, sequence_parallel=tp > 1 or None)
            for tp, pp, fsdp, cp in product(TRIED_SPLITS, TRIED_SPLITS, (None, True), contexts)
            if tp * cp <= node and gpus % (tp * pp * cp) == 0 and (fsdp or cp == 1)
            for one in _list_schedules(staged, pp)
        ]
        yield from _list_targets(Layout(), [place], (gpus,), changes, refused)


def _list_schedules(staged: LayoutRequest, stages: int) -> list[LayoutRequest]:
    """List the schedules of so many stages, with the asked number of micro-batches, or with some."""
    if stages == 1:
        return [LayoutRequest(batch=staged.batch, balance=staged.balance)]
    counts = [staged.micro_batches] if staged.micro_batches else [each * stages for each in TRIED_MICRO_BATCHES]
    return [replace(staged, micro_batches=count) for count in counts]


def _list_targets(
    old: Layout,
    places: Sequence[Target],
    world_sizes: Sequence[int],
    changes: Sequence[LayoutRequest],
    refused: list[Message],
) -> Iterator[Target]:
    """List every layout on every cluster; impossible ones are added to ``refused``."""
    for place in places:
        gpus = place.cluster.gpus if place.cluster else 1
        for change in changes:
            sizes: Sequence[int | None] = world_sizes
            if not sizes:
                sizes = [None] if change.dp else _list_world_sizes(old, change, gpus)
            if place.cluster and place.cluster.kinds:
                sizes = [size for size in sizes if size == gpus]
            if not sizes:
                too_large = layouts.REPLICA_TOO_LARGE(gpus=gpus, ranks=_count_replica_ranks(old, change))
                refused.append(layouts.TARGET_REFUSED(target=place.label, reason=too_large))
            for world_size in sizes:
                try:
                    yield replace(place, layout=apply_request(old, replace(change, world_size=world_size)))
                except LayoutError as error:
                    refused.append(_refuse(place, error))


def _list_world_sizes(old: Layout, change: LayoutRequest, gpus: int) -> list[int]:
    """List world sizes: from the trace's replicas upward, each twice the last, and all of the cluster.

    With new expert parallelism there are at least as many replicas as ranks that split the experts.
    """
    replica = _count_replica_ranks(old, change)
    sizes = [replica * old.dp * 2**power for power in range(20) if replica * old.dp * 2**power <= gpus]
    return sorted({*sizes, gpus // replica * replica} - {0})


def _count_replica_ranks(old: Layout, change: LayoutRequest) -> int:
    """Count the ranks that hold the model once, including the replicas that are to split its experts."""
    sharing = max((change.ep or 1) // (change.tp or old.tp), 1) if old.ep == 1 else 1
    return (change.tp or old.tp) * (change.pp or old.pp) * (change.cp or old.cp) * sharing


def _may_fit(predictor: Predictor, target: Target) -> bool:
    """Return whether memory may hold a layout; one of which that can't be told is refused with its reason later."""
    try:
        return predictor.may_fit(target)
    except LayoutError:
        return True


def _enlarge_batch(predictor: Predictor, target: Target, samples: int) -> Target:
    """Return a target with the largest batch of whole samples that surely fits; the traced one if none does.

    ``samples`` are those of the traced batch.
    """
    try:
        largest = find_largest_batch(predictor, target, samples)
    except TracekitError:
        return target  # which its prediction refuses, too
    return replace_batch(target, (largest or samples) / samples)


def _predict_targets(predictor: Predictor, wanted: Sequence[Target], refused: list[Message]) -> Iterator[Prediction]:
    """Predict the targets; errors are added to ``refused``."""
    for target in wanted:
        try:
            step = predict_target(predictor, target)
            assert isinstance(step, Prediction)
            yield step
        except TracekitError as error:
            refused.append(_refuse(target, error))


def _refuse(target: Target, error: TracekitError) -> Message:
    return layouts.TARGET_REFUSED(target=target.label, reason=error.catalogue_message)


def _rank_layouts(
    run: MeasuredRun,
    old: Layout,
    found: Sequence[tuple[PredictedStep, str]],
    unit: str,
    refused: tuple[Message, ...],
    critical: float | None,
) -> Sweep:
    """Rank predictions, each with what its layers recompute, by the gradient noise scale where that is asked for."""
    smallest: dict[str, float] = {}
    for one, _ in sorted(found, key=lambda one: one[0].ranks):
        smallest.setdefault(one.label, _get_per_second(one) / one.ranks)
    entries = [
        SweepEntry(
            one,
            _get_per_second(one) / one.ranks / smallest[one.label],
            recompute=recompute,
            work=1 + one.batch.size / critical if critical and one.batch else 1.0,
        )
        for one, recompute in found
    ]
    ranked = tuple(_order_entries(entries))
    best: dict[str, Prediction] = {}
    for entry in ranked:
        if isinstance(entry.prediction, Prediction):
            best.setdefault(entry.prediction.label, entry.prediction)
    return Sweep(
        run=run,
        layout=old,
        unit=unit,
        entries=ranked,
        best=best,
        knees={
            label: _find_knee([entry for entry in entries if entry.prediction.label == label]) for label in smallest
        },
        refused=refused,
    )


def _order_entries(entries: Sequence[SweepEntry]) -> Iterator[SweepEntry]:
    """Order entries by throughput; those that don't fit into memory come last."""
    for fits in (True, False):
        yield from _order_by_throughput_and_price([one for one in entries if one.may_fit == fits])


def _order_by_throughput_and_price(entries: Sequence[SweepEntry]) -> Iterator[SweepEntry]:
    """Order entries by throughput, and tied ones by price."""
    left = sorted(entries, key=lambda entry: -entry.progress_per_second)
    while left:
        least = (1 - TIED_THROUGHPUT_FRACTION) * left[0].progress_per_second
        alike = [entry for entry in left if entry.progress_per_second >= least]
        left = left[len(alike) :]
        alike.sort(key=lambda entry: inf if entry.dollars_for_progress is None else entry.dollars_for_progress)
        yield from (replace(entry, is_tied=at > 0) for at, entry in enumerate(alike))


def _get_per_second(prediction: PredictedStep) -> float:
    assert prediction.per_second is not None  # a sweep counts steps where the batch is unknown
    return prediction.per_second


def count_replicas(prediction: PredictedStep) -> int:
    """Count the data-parallel replicas of a prediction's job."""
    return prediction.layout.dp if prediction.layout else 1


def _find_knee(entries: Sequence[SweepEntry]) -> int:
    """Find the most ranks of a layout that fits and keeps enough of its GPUs' throughput; 0 where none fits."""
    keep = (entry for entry in entries if entry.efficiency >= KNEE_EFFICIENCY and entry.may_fit)
    return max((entry.prediction.ranks for entry in keep), default=0)


def tabulate_entries(entries: Sequence[SweepEntry]) -> pl.DataFrame:
    """Tabulate layouts, one row each, times in microseconds."""
    return pl.DataFrame([_build_row(entry) for entry in entries], schema=SWEEP_COLUMNS, orient="row")


def _build_row(entry: SweepEntry) -> tuple[object, ...]:
    one = entry.prediction
    layout = one.layout or Layout()
    times = (one.step.step_time_us, one.low_us, one.high_us, one.step.exposed_comm_us)
    done = (entry.per_second, entry.efficiency)
    passes, bubble = (one.pipeline.micro_batches, one.pipeline.bubble) if one.pipeline else (None, None)
    sizes = (one.label, one.ranks, layout.dp, layout.tp, layout.pp, layout.ep, passes, layout.batch, bubble)
    return (
        *sizes,
        *times,
        *done,
        one.memory.fits,
        one.dollars_per_1000_steps,
        entry.dollars_per_million,
        entry.is_tied,
        layout.sharded,
        layout.sequence_parallel,
        layout.cp,
        entry.recompute or None,
    )
