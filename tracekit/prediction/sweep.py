"""Many layouts of a job on some clusters, ranked by what they get done."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import polars as pl

from tracekit import calibration
from tracekit.comm.cluster import platforms
from tracekit.errors import TracekitError
from tracekit.prediction.batch import Batch, batch_of_rank
from tracekit.prediction.lacking import lacking
from tracekit.prediction.layout import Change, Layout, LayoutError, recognise, resized
from tracekit.prediction.model import Prediction, Target
from tracekit.prediction.notes import outsized
from tracekit.prediction.source import recognise as source_of
from tracekit.prediction.source import with_gpu
from tracekit.prediction.spread import straggling
from tracekit.prediction.step import NO_PRICES, Predictor, by_gpu
from tracekit.prediction.target import targets
from tracekit.replay.run import Run
from tracekit.units import many

COLUMNS = {
    "cluster": pl.String,
    "ranks": pl.Int64,
    "dp": pl.Int64,
    "tp": pl.Int64,
    "pp": pl.Int64,
    "ep": pl.Int64,
    "micro_batches": pl.Int64,
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
}

KEPT = 0.9
"""Part of the smallest layout's throughput of each GPU that a layout before the knee keeps."""


ALIKE = 0.01
"""Part of the throughput by which layouts may differ and are alike: cheaper ones come first then."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One layout on one cluster.

    Attributes:
        prediction: The step.
        efficiency: Of each GPU, over that of the smallest layout on the cluster.
        as_before: Whether it gets as much done as the one before it, within ``ALIKE``.
    """

    prediction: Prediction
    efficiency: float
    as_before: bool = False

    @property
    def per_second(self) -> float:
        """What all replicas get done, in the sweep's unit."""
        return _per_second(self.prediction)

    @property
    def fits(self) -> bool:
        """Whether its memory isn't known to lack room for it."""
        return self.prediction.memory.fits is not False

    @property
    def dollars(self) -> float | None:
        """What a million in the sweep's unit costs on all GPUs in use; None without a price."""
        return self.prediction.dollars_per_million


@dataclass(frozen=True, slots=True)
class Sweep:
    """Layouts, the one that gets most done first, of those that are alike the cheapest; last those that don't fit.

    Attributes:
        run: The measured run.
        layout: Of the trace.
        unit: What is counted: samples, tokens, or the replicas' steps.
        entries: The layouts.
        knees: On each cluster, the most ranks up to which each GPU keeps ``KEPT`` of its throughput; 0 where none fits.
        refused: Layouts that can't be worked out, and why.
        straggling: What is assumed of the slowest rank of the largest layout; None where nothing is.
        assumed: Of collectives that the trace doesn't have, and of nodes larger than any known, one clause each.
    """

    run: Run
    layout: Layout
    unit: str
    entries: tuple[Entry, ...]
    knees: Mapping[str, int]
    refused: tuple[str, ...]
    straggling: str | None = None
    assumed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Sweep({many(len(self.entries), 'layout')} on {', '.join(self.knees)}: see .table)"

    @property
    def table(self) -> pl.DataFrame:
        """A row for each layout, times in microseconds."""
        return pl.DataFrame([_row(entry) for entry in self.entries], schema=COLUMNS, orient="row")


def sweep(
    run: Run,
    gpus: Sequence[str],
    clusters: Sequence[str],
    *,
    source_cluster: str | None = None,
    world_sizes: Sequence[int] = (),
    tensor_parallel: Sequence[int] = (),
    pipeline_parallel: Sequence[int] = (),
    expert_parallel: Sequence[int] = (),
    micro_batches: int | None = None,
    chunks: int | None = None,
    zero_bubble: bool | None = None,
    sharded: bool = False,
    prices: Mapping[str, float] = NO_PRICES,
    samples: float | None = None,
    calibrated: bool = True,
) -> Sweep:
    """Predict the step in many layouts.

    Args:
        run: The measured run.
        gpus: GPUs, each on the usual node around it.
        clusters: Names of clusters.
        source_cluster: Where the trace was recorded; None for the usual nodes around its GPU.
        world_sizes: Numbers of ranks; by default doubled from the trace's up to the whole cluster.
        tensor_parallel: Ranks of each layer; by default the trace's.
        pipeline_parallel: Stages; by default the trace's.
        expert_parallel: Ranks that share the experts; by default as in the trace.
        micro_batches: Passes of a step through the stages of those layouts that have some.
        chunks: Of layers on each of their stages.
        zero_bubble: Whether these put off weights' gradients until they would wait.
        sharded: Whether the replicas of a job without data parallelism share out their parameters.
        prices: Dollars for an hour of one GPU, by the GPU's name.
        samples: What a rank works through in a step; None for what the trace tells.
        calibrated: Use the calibrations that are kept on this machine.

    Raises:
        LayoutError: The trace's layout can't be told, or none of those asked for can be worked out.
        TracekitError: A cluster is unknown, a GPU's name ambiguous, or ``samples`` no number of them.
    """
    old = recognise(run)
    batch = (batch_of_rank(run, samples) or Batch(1.0, "steps")).times(old.dp)
    source = source_of(run, source_cluster)
    run = with_gpu(run, source)
    nodes = [platforms().get(target.gpu.gpu.slug, f"8x{target.gpu.gpu.slug}") for target in targets(gpus)]
    refused: list[str] = []
    staged = Change(micro_batches=micro_batches, chunks=chunks, zero_bubble=zero_bubble)
    sharing: Sequence[int | None] = expert_parallel or [None]
    changes = [
        replace(staged if pp > 1 else Change(), tp=tp, pp=pp, ep=ep, sharded=sharded or None)
        for tp in tensor_parallel or [old.tp]
        for pp in pipeline_parallel or [old.pp]
        for ep in sharing
    ]
    wanted = [*dict.fromkeys(_wanted(old, targets((), [*clusters, *nodes]), world_sizes, changes, refused))]
    predictor = Predictor(run, source, old, batch, by_gpu(prices), calibration.stored() if calibrated else ())
    found = [*_predicted(predictor, wanted, refused)]
    if not found:
        raise LayoutError(f"none of the layouts can be predicted: {refused[0]}")
    ranked = _ranked(run, old, found, batch.unit, tuple(dict.fromkeys(refused)))
    largest = max((one.layout or old for one in found), key=lambda layout: layout.world_size)
    added = (lacking(run, old, one.layout or old) for one in found)
    assumed = [note for adders in added if adders for note in predictor.grown(adders).assumed]
    assumed += [note for one in found if one.cluster for note in outsized(one.cluster, one.ranks)]
    return replace(
        ranked,
        straggling=straggling(run, predictor.spread, old, largest).note,
        assumed=tuple(dict.fromkeys(assumed)),
    )


def _wanted(
    old: Layout, places: Sequence[Target], world_sizes: Sequence[int], changes: Sequence[Change], refused: list[str]
) -> Iterator[Target]:
    """Every layout on every cluster, those that are impossible noted in ``refused``."""
    for place in places:
        gpus = place.cluster.gpus if place.cluster else 1
        for change in changes:
            sizes = world_sizes or _doubled(old, change, gpus)
            if not sizes:
                refused.append(
                    f"{place.label}: {many(gpus, 'GPU')} can't hold {_replica(old, change)} ranks, one replica"
                )
            for world_size in sizes:
                try:
                    yield replace(place, layout=resized(old, replace(change, world_size=world_size)))
                except LayoutError as error:
                    refused.append(f"{place.label}: {error}")


def _doubled(old: Layout, change: Change, gpus: int) -> list[int]:
    """World sizes from the trace's replicas upward, each twice the last, and all of the cluster.

    Where replicas are to share experts, there are at least as many of them.
    """
    replica = _replica(old, change)
    sizes = [replica * old.dp * 2**power for power in range(20) if replica * old.dp * 2**power <= gpus]
    return sorted({*sizes, gpus // replica * replica} - {0})


def _replica(old: Layout, change: Change) -> int:
    """Ranks that hold the model once, and the experts that replicas are to share."""
    sharing = (change.ep or 1) if old.ep == 1 and (change.tp or old.tp) == 1 else 1
    return (change.tp or old.tp) * (change.pp or old.pp) * sharing


def _predicted(predictor: Predictor, wanted: Sequence[Target], refused: list[str]) -> Iterator[Prediction]:
    """The targets that can be predicted; of the others, why not is noted in ``refused``."""
    for target in wanted:
        try:
            yield predictor.on(target)
        except TracekitError as error:
            refused.append(f"{target.label}: {error}")


def _ranked(run: Run, old: Layout, found: Sequence[Prediction], unit: str, refused: tuple[str, ...]) -> Sweep:
    smallest: dict[str, float] = {}
    for one in sorted(found, key=lambda one: one.ranks):
        smallest.setdefault(one.label, _per_second(one) / one.ranks)
    entries = [Entry(one, _per_second(one) / one.ranks / smallest[one.label]) for one in found]
    return Sweep(
        run=run,
        layout=old,
        unit=unit,
        entries=tuple(_in_order(entries)),
        knees={label: _knee([entry for entry in entries if entry.prediction.label == label]) for label in smallest},
        refused=refused,
    )


def _in_order(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Those that get most done first; last what can't be run, as it doesn't fit into memory."""
    for fits in (True, False):
        yield from _by_work_and_price([one for one in entries if one.fits == fits])


def _by_work_and_price(entries: Sequence[Entry]) -> Iterator[Entry]:
    """Those that get most done first, and of those that are as good as the best of the rest the cheapest."""
    left = sorted(entries, key=lambda entry: -entry.per_second)
    while left:
        alike = [entry for entry in left if entry.per_second >= (1 - ALIKE) * left[0].per_second]
        left = left[len(alike) :]
        alike.sort(key=lambda entry: inf if entry.dollars is None else entry.dollars)
        yield from (replace(entry, as_before=at > 0) for at, entry in enumerate(alike))


def _per_second(prediction: Prediction) -> float:
    assert prediction.per_second is not None  # a sweep counts steps where the trace doesn't tell its batch
    return prediction.per_second


def replicas(prediction: Prediction) -> int:
    """Data-parallel replicas of a prediction's job."""
    return prediction.layout.dp if prediction.layout else 1


def _knee(entries: Sequence[Entry]) -> int:
    """The most ranks of which some layout that fits keeps enough of its GPUs' throughput; 0 where none fits."""
    keep = (entry for entry in entries if entry.efficiency >= KEPT and entry.fits)
    return max((entry.prediction.ranks for entry in keep), default=0)


def _row(entry: Entry) -> tuple[object, ...]:
    one = entry.prediction
    layout = one.layout or Layout()
    times = (one.step.step_time_us, one.low_us, one.high_us, one.step.exposed_comm_us)
    done = (entry.per_second, entry.efficiency)
    staged = (one.pipeline.micro_batches, one.pipeline.bubble) if one.pipeline else (None, None)
    sizes = (one.label, one.ranks, layout.dp, layout.tp, layout.pp, layout.ep, *staged)
    return (*sizes, *times, *done, one.memory.fits, one.dollars, entry.dollars, entry.as_before)
