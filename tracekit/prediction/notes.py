"""What to know about a prediction."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from predictors import Gpu, Resolution, list_gpus, load_gpu
from predictors.machine import machine
from predictors.transfer import ordered
from tracekit.calibration import Calibration
from tracekit.comm import Cluster
from tracekit.comm.cluster import largest_node
from tracekit.prediction import published
from tracekit.prediction.copies import LIKELY_TAKEN, TAKEN
from tracekit.prediction.layout import Layout
from tracekit.prediction.memory import Memory
from tracekit.prediction.model import Shared, Target
from tracekit.prediction.pipeline import Pipeline
from tracekit.prediction.sends import HAND_OVER_US
from tracekit.prediction.shards import AHEAD
from tracekit.prediction.source import SourceCluster
from tracekit.prediction.spread import OTHER_HOST
from tracekit.replay.run import Run
from tracekit.units import duration, many
from tracekit.workload.names.stack import for_older_units
from tracekit.workload.shares import share

HOST_EDIT = "host-speed"

# Uneven stages are told from this ratio of the busiest to the mean one on.
UNEVEN = 1.1

OLDER_PCT = 5.0
"""Percent of the GPU's time from which on it is said that its units aren't used."""

# Percent of the collectives' time from which on what is guessed of it is said.
WORTH_SAYING_PCT = 0.5

KEEPS_BATCH = "each rank keeps its batch"
"""How a note on more replicas begins."""


def of(
    run: Run,
    target: Target,
    source: SourceCluster,
    times: pl.DataFrame,
    same_gpu: bool,
    shared: Shared | None = None,
    pipeline: Pipeline | None = None,
    same_host: bool = False,
) -> Iterator[str]:
    """What was assumed and what was left out.

    Args:
        run: The measured run.
        target: Where it is to run.
        source: Where it was recorded.
        times: The kernels with their predicted times.
        same_gpu: Whether the target's GPU is that of the trace.
        shared: The step with kernels that slow each other down, where enough of them overlap.
        pipeline: How the step runs through stages that the trace doesn't have.
        same_host: Whether the interval takes the trace's host to be that of the target too, or its width is said.
    """
    gpu = target.gpu
    if target.layout and target.layout.world_size > 1:
        yield f"layout: {target.layout}"
        if pipeline:
            yield from _pipeline(pipeline, target.layout)
        elif target.layout.dp > 1 and target.layout.dp != run.trace.world_size // (target.layout.tp * target.layout.pp):
            keeps = KEEPS_BATCH if target.layout.batch == 1 else "all ranks have the same batch"
            yield f"{keeps}: the job's batch is {target.layout.dp} times a rank's"
    if target.layout and target.layout.batch != 1:
        yield (
            f"{target.layout.batch:g} times the batch in each step: all but the parameters in each kernel's shapes "
            "grows; the CPU's work stays, a data loader's too; speedups shown are per sample"
        )
    yield from _meant(gpu)
    if target.stands_for_gpu:
        yield (
            f"{gpu.gpu.slug} was asked for by itself too and is predicted on {target.label} only; without --cluster it "
            "keeps collectives as measured"
        )
    if run.gpu is None:
        yield "the source GPU isn't known: kernels with shapes are predicted without their measurement, others kept"
    yield from _substitutions(gpu, times)
    yield from _older_attention(run, gpu.gpu, times)
    yield from published.note(run.gpu, gpu.gpu)
    yield from _collectives(run, target, source, times, same_gpu)
    if shared:
        yield (
            f"{shared.overlap:.0f} % of the kernels' time overlaps others': a step of {duration(shared.apart_us)}, as "
            f"shown, if each keeps its time; with contention, by a simple model, {duration(shared.step_time_us)}"
        )
    if run.edits:
        yield f"with {', '.join(run.edits)}"
    if not (same_gpu and same_host) and not host_is_given(run):
        yield f"the CPU's own work is assumed to take as long as measured; {OTHER_HOST}; --host-speed changes it"


def _meant(gpu: Resolution) -> Iterator[str]:
    """What the GPU's name leaves open."""
    if gpu.others:
        yield f"{gpu.query!r} was taken as {gpu.gpu.slug}; there is also {', '.join(gpu.others)}"
    if gpu.gpu.is_laptop:
        yield f"assumes a laptop that gives its GPU {gpu.gpu.tdp_w:.0f} W, the most there is: with less it is slower"


def host_is_given(run: Run) -> bool:
    """Whether an edit says how fast the host is."""
    return any(edit.startswith(HOST_EDIT) for edit in run.edits)


def _pipeline(pipeline: Pipeline, layout: Layout) -> Iterator[str]:
    """How a step runs through stages that the trace doesn't have."""
    yield (
        f"pipeline: {pipeline}; the bubble, in which a stage waits for others, is {100 * pipeline.bubble:.0f} % of the "
        "step; --micro-batches and --pp-schedule change it; kernels and timelines are shown of all stages on one GPU"
    )
    if pipeline.slowest > UNEVEN:
        yield (
            f"the slowest stage works {pipeline.slowest:.1f} times as long as the mean one: layers are split evenly, "
            "and what comes before the first and after the last layer stays on the end stages"
        )
    if pipeline.gather_us:
        yield (
            f"the mean stage waits {duration(pipeline.gather_us)} a step for its parameters, which it gathers once its "
            f"first input has come, up to {AHEAD} layers ahead; the interval's low end has only the first stage wait"
        )
    batch = layout.dp * layout.batch * pipeline.growth
    size = "as large as" if layout.batch == 1 else f"{layout.batch:g} times as large as"
    yield f"a micro-batch is {size} a traced pass: the job's batch is {batch:g} times a rank's in the trace"
    yield (
        f"stages send each other {pipeline.send_bytes / 2**20:,.1f} MiB a micro-batch, derived from the layers' GEMMs: "
        f"{duration(pipeline.send_us)}, {duration(HAND_OVER_US[0])} of it latency, as in published pipelines; "
        f"the interval goes from {duration(HAND_OVER_US[1])} to {duration(HAND_OVER_US[2])}"
    )


def of_added(put_in_us: float, exposed_us: float, slower_us: float) -> str:
    """What collectives that were put into a run cost it.

    Args:
        put_in_us: How long they take in a step.
        exposed_us: While nothing else runs.
        slower_us: What they take from the kernels beside the rest.
    """
    whole = f"the inserted collectives take {duration(put_in_us)} a step"
    if duration(exposed_us) == duration(put_in_us):
        return f"{whole}, during which nothing else runs"
    alone = f"{whole}; for {duration(exposed_us)} of it nothing else runs"
    if slower_us < 1:
        return alone
    return (
        f"{alone}, and kernels that overlap the rest are assumed to lose "
        f"{100 * LIKELY_TAKEN:.0f} % of the GPU, {duration(slower_us)}, at most {100 * TAKEN:.0f} %"
    )


def of_memory(memory: Memory) -> str:
    """Whether it fits, and why."""
    judgement = {True: "fits into memory", False: "doesn't fit into memory", None: "may or may not fit into memory"}
    return f"{judgement[memory.fits]}: {memory.reason}"


def of_prices(prices: Mapping[str, float], gpu: Gpu) -> Iterator[str]:
    """That the target isn't among the GPUs that were given a price.

    Args:
        prices: Dollars for an hour of one GPU, by its canonical name.
        gpu: The target.
    """
    if prices and gpu.slug not in prices:
        yield f"no price was given for it: --price {gpu.slug}=DOLLARS"


def of_calibrations(calibrations: Sequence[Calibration], gpu: Gpu, same_gpu: bool) -> Iterator[str]:
    """Which calibrations the prediction used.

    Args:
        calibrations: All that are kept.
        gpu: The target.
        same_gpu: Whether it is that of the trace, whose measurements stand as they are.
    """
    for one in calibrations:
        if one.gpu == gpu.slug:
            if not same_gpu:
                yield f"calibrated with {one.label}: {', '.join(one.families)}; --no-calibration leaves it out"
        elif one.gpu in list_gpus() and ordered(machine(load_gpu(one.gpu)), machine(gpu)):
            yield f"kept consistent with {one.gpu}, which is calibrated; --no-calibration leaves that out"


def _collectives(run: Run, target: Target, source: SourceCluster, times: pl.DataFrame, same_gpu: bool) -> Iterator[str]:
    ranks = target.layout.world_size if target.layout else run.trace.world_size
    if target.cluster is not None and target.cluster.gpus > ranks:
        used = "1 is" if ranks == 1 else f"{ranks:,} are"
        yield f"of the cluster's {target.cluster.gpus:,} GPUs {used} used; --world-size changes it"
    if target.cluster is not None:
        yield from outsized(target.cluster, ranks)
    part = share(times, "time_us", pl.col("family") == "collective")
    if not part:
        return
    if target.cluster is None:
        if not same_gpu:
            yield f"collectives ({part:.0f} % of GPU time) are kept as measured: --cluster names the links"
        return
    if source.cluster is None:
        yield (
            f"the source cluster isn't known ({source.how}): collectives take the model's time, not the measured one "
            "times the model's ratio; --source-cluster names it"
        )
    elif source.how != "given":
        yield f"the source cluster was {source.how}, {source.cluster.slug}; --source-cluster corrects it"
    yield from _links(target.cluster, ranks)
    if "transfer_us" in times.columns:
        yield from _unsure(run, times)


def _links(cluster: Cluster, ranks: int) -> Iterator[str]:
    if told := len(cluster.measured):
        yield f"collectives on {cluster.slug} keep to {many(told, 'measurement')} in its file"
    if cluster.fabric == "pcie" and not cluster.peer_access and ranks > 1:
        yield (
            f"{cluster.gpu.name}s have no peer-to-peer access: what they exchange is assumed to go through "
            "host memory at a fifth of PCI Express's rate, on good servers half; peer_access = true in a cluster's "
            "file says otherwise"
        )


def outsized(cluster: Cluster, ranks: int) -> Iterator[str]:
    """A node that holds more ranks than any known one has GPUs: several nodes may be meant.

    Args:
        cluster: The target.
        ranks: Of the job there.
    """
    known = largest_node(cluster.gpu)
    if known and min(ranks, cluster.gpus_per_node) > known:
        nodes = -(-cluster.gpus // known)
        yield (
            f"{cluster.slug} has {cluster.gpus_per_node} GPUs on the fast links of one node, and known nodes of "
            f"{cluster.gpu.slug} have {known} at most: {nodes} of these are {nodes}x{known}x{cluster.gpu.slug}@ndr400, "
            "or whatever their network is"
        )


def _unsure(run: Run, times: pl.DataFrame) -> Iterator[str]:
    """Waiting, and messages of which something had to be guessed."""
    told = times.select("method", "transfer_us")
    rows = run.kernels.hstack(told).filter(pl.col("family") == "collective")
    beyond_us = rows.select((pl.col("dur_ns") / 1e3 - pl.col("transfer_us")).sum()).item() / run.steps.height
    if beyond_us > 1:
        yield (
            f"collectives took {duration(beyond_us)} a step more than the trace's links explain: that is kept as "
            "measured, whether it was waiting for other ranks or contention with other kernels"
        )
    unsized = share(rows, "dur_ns", pl.col("bytes").is_null())
    if unsized >= WORTH_SAYING_PCT:
        yield f"{unsized:.0f} % of the collectives' time has no message size: inferred from launches and durations"
    kept = share(rows, "dur_ns", pl.col("method") == "kept")
    if kept >= WORTH_SAYING_PCT:
        yield f"{kept:.0f} % of the collectives' time can't be predicted and is kept as measured"


def _older_attention(run: Run, gpu: Gpu, times: pl.DataFrame) -> Iterator[str]:
    """Attention that can't use the target's own matrix units, as it is predicted."""
    rows = run.kernels.select("name", "family", "paged", "q_len", "kv_len").hstack(times.select("time_us"))
    part = share(rows, "time_us", for_older_units())
    rate = machine(gpu).rate_on_mma
    if part >= OLDER_PCT and rate < 1:
        yield (
            f"FlashAttention 2 ({part:.0f} % of GPU time there) is written for an A100 and reaches at most "
            f"{100 * rate:.0f} % of what {gpu.slug}'s tensor cores can do: cuDNN's attention, or FlashAttention 3 "
            "(Hopper) or 4 (Blackwell), would shorten these kernels"
        )


def _substitutions(target: Resolution, times: pl.DataFrame) -> Iterator[str]:
    """Precisions that the target lacks, and what the estimate uses in their place."""
    substituted = times.drop_nulls("runs_as").select("dtype", "runs_as").unique().sort("dtype", "runs_as")
    for dtype, runs_as in substituted.iter_rows():
        if dtype.endswith("tf32") or target.gpu.supports(dtype):  # a GPU without TF32 runs the same program in fp32
            continue
        part = share(times, "time_us", (pl.col("dtype") == dtype) & (pl.col("runs_as") == runs_as))
        yield f"{target.gpu.name} has no {dtype}: not runnable as is; {part:.0f} % of GPU time estimated in {runs_as}"
