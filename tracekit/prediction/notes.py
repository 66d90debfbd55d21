"""Write the notes of a prediction: its assumptions and limits."""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from predictors import Gpu, Resolution, list_gpus, load_gpu
from predictors.hardware import derive_hardware
from predictors.transfer import is_ordered_pair
from tracekit.calibration import Calibration
from tracekit.comm import Cluster
from tracekit.comm.cluster import find_largest_node_gpus
from tracekit.format import format_duration, format_quantity
from tracekit.parallelism.ddp import COLLECTIVE_SM_FRACTION, MAX_COLLECTIVE_SM_FRACTION
from tracekit.parallelism.fsdp import GATHER_AHEAD_LAYERS
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.pipeline_parallel import Pipeline
from tracekit.parallelism.pipeline_sends import SEND_LATENCY_US
from tracekit.parallelism.stragglers import HOST_INTERVAL_NOTE
from tracekit.prediction import track_record
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import StepWithContention, Target
from tracekit.prediction.source_cluster import SourceCluster
from tracekit.run import MeasuredRun
from tracekit.workload.names.attention_framework import is_ampere_attention
from tracekit.workload.time_share import compute_time_share

HOST_SPEED_EDIT = "host-speed"

# Least ratio of the busiest stage to the mean one for a note.
MIN_UNEVEN_STAGE_RATIO = 1.1

MIN_OLDER_ATTENTION_PCT = 5.0
"""Least percent of GPU time for a note on attention kernels that don't use the GPU's own matrix units."""

# Least percent of the collectives' time for a note on what was inferred.
MIN_NOTED_PCT = 0.5

KEEPS_BATCH_NOTE = "each rank keeps its batch"
"""First words of a note on more replicas."""


def write_notes(
    run: MeasuredRun,
    target: Target,
    source: SourceCluster,
    times: pl.DataFrame,
    same_gpu: bool,
    contention: StepWithContention | None = None,
    pipeline: Pipeline | None = None,
    is_host_covered: bool = False,
) -> Iterator[str]:
    """Write what was assumed and what was left out.

    Args:
        run: The measured run.
        target: Where it is to run.
        source: Where it was recorded.
        times: The kernels with their predicted times.
        same_gpu: Whether the target's GPU is that of the trace.
        contention: The step with contention, where enough kernels overlap.
        pipeline: The pipeline of stages that the trace doesn't have.
        is_host_covered: Whether the host is assumed to be that of the trace, or another note states the interval's
            allowance.
    """
    gpu = target.gpu
    if target.layout and target.layout.world_size > 1:
        yield f"layout: {target.layout}"
        if pipeline:
            yield from _note_pipeline(pipeline, target.layout)
        elif target.layout.dp > 1 and target.layout.dp != run.trace.world_size // (target.layout.tp * target.layout.pp):
            keeps = KEEPS_BATCH_NOTE if target.layout.batch == 1 else "all ranks have the same batch"
            yield f"{keeps}: the job's batch is {target.layout.dp} times a rank's"
    if target.layout and target.layout.batch != 1:
        yield (
            f"{target.layout.batch:g} times the batch in each step: all but the parameters in each kernel's shapes "
            "grows; the CPU's work stays, a data loader's too; speedups shown are per sample"
        )
    yield from _note_gpu_name(gpu)
    if target.is_gpu_requested:
        yield (
            f"{gpu.gpu.slug} was asked for by itself too and is predicted on {target.label} only; without --cluster it "
            "keeps collectives as measured"
        )
    if run.gpu is None:
        yield "the source GPU isn't known: kernels with shapes are predicted without their measurement, others kept"
    yield from _note_dtype_substitutions(gpu, times)
    yield from _note_older_attention(run, gpu.gpu, times)
    yield from track_record.note_track_record(run.gpu, gpu.gpu)
    yield from _note_collectives(run, target, source, times, same_gpu)
    if contention:
        yield (
            f"{contention.overlap:.0f} % of the kernels' time overlaps others': a step of "
            f"{format_duration(contention.apart_us)}, as "
            "shown, if each keeps its time; with contention, by a simple model, "
            f"{format_duration(contention.step_time_us)}"
        )
    if run.edits:
        yield f"with {', '.join(run.edits)}"
    if not (same_gpu and is_host_covered) and not has_host_speed_edit(run):
        yield (
            f"the CPU's own work is assumed to take as long as measured; {HOST_INTERVAL_NOTE}; --host-speed changes it"
        )


def _note_gpu_name(gpu: Resolution) -> Iterator[str]:
    """Note what the GPU's name leaves open."""
    if gpu.others:
        yield f"{gpu.query!r} was taken as {gpu.gpu.slug}; there is also {', '.join(gpu.others)}"
    if gpu.gpu.is_laptop:
        yield f"assumes a laptop that gives its GPU {gpu.gpu.tdp_w:.0f} W, the most there is: with less it is slower"


def has_host_speed_edit(run: MeasuredRun) -> bool:
    """Return whether an edit sets the host's speed."""
    return any(edit.startswith(HOST_SPEED_EDIT) for edit in run.edits)


def _note_pipeline(pipeline: Pipeline, layout: Layout) -> Iterator[str]:
    """Note how a step runs through stages that the trace doesn't have."""
    yield (
        f"pipeline: {pipeline}; the bubble, in which a stage waits for others, is {100 * pipeline.bubble:.0f} % of the "
        "step; --micro-batches and --pp-schedule change it; kernels and timelines are shown of all stages on one GPU"
    )
    if pipeline.slowest > MIN_UNEVEN_STAGE_RATIO:
        yield (
            f"the slowest stage works {pipeline.slowest:.1f} times as long as the mean one: layers are split evenly, "
            "and what comes before the first and after the last layer stays on the end stages"
        )
    if pipeline.gather_us:
        yield (
            f"the mean stage waits {format_duration(pipeline.gather_us)} a step for its "
            "parameters, which it gathers once its "
            f"first input has come, up to {GATHER_AHEAD_LAYERS} layers ahead; the interval's low "
            "end has only the first stage wait"
        )
    batch = layout.dp * layout.batch * pipeline.micro_batch_ratio
    size = "as large as" if layout.batch == 1 else f"{layout.batch:g} times as large as"
    yield f"a micro-batch is {size} a traced pass: the job's batch is {batch:g} times a rank's in the trace"
    yield (
        f"stages send each other {pipeline.send_bytes / 2**20:,.1f} MiB a micro-batch, derived from the layers' GEMMs: "
        f"{format_duration(pipeline.send_us)}, {format_duration(SEND_LATENCY_US[0])} of it "
        "latency, as in published pipelines; "
        f"the interval goes from {format_duration(SEND_LATENCY_US[1])} to {format_duration(SEND_LATENCY_US[2])}"
    )


def describe_inserted_collectives(inserted_us: float, exposed_us: float, slower_us: float) -> str:
    """Describe the cost of inserted collectives.

    Args:
        inserted_us: Their time in a step.
        exposed_us: The part of it in which nothing else runs.
        slower_us: The time by which they slow kernels that overlap the rest.
    """
    whole = f"the inserted collectives take {format_duration(inserted_us)} a step"
    if format_duration(exposed_us) == format_duration(inserted_us):
        return f"{whole}, during which nothing else runs"
    alone = f"{whole}; for {format_duration(exposed_us)} of it nothing else runs"
    if slower_us < 1:
        return alone
    return (
        f"{alone}, and kernels that overlap the rest are assumed to lose "
        f"{100 * COLLECTIVE_SM_FRACTION:.0f} % of the GPU, {format_duration(slower_us)}, at most "
        f"{100 * MAX_COLLECTIVE_SM_FRACTION:.0f} %"
    )


def describe_memory_fit(memory: MemoryFit) -> str:
    """Describe whether the job fits into memory, and why."""
    judgement = {True: "fits into memory", False: "doesn't fit into memory", None: "may or may not fit into memory"}
    return f"{judgement[memory.fits]}: {memory.reason}"


def note_missing_price(prices: Mapping[str, float], gpu: Gpu) -> Iterator[str]:
    """Note that the target has no price where other GPUs have one.

    Args:
        prices: Dollars for an hour of one GPU, by its canonical name.
        gpu: The target.
    """
    if prices and gpu.slug not in prices:
        yield f"no price was given for it: --price {gpu.slug}=DOLLARS"


def note_calibrations(calibrations: Sequence[Calibration], gpu: Gpu, same_gpu: bool) -> Iterator[str]:
    """Note the calibrations that the prediction used.

    Args:
        calibrations: All stored calibrations.
        gpu: The target.
        same_gpu: Whether it is that of the trace, whose measurements are used unchanged.
    """
    for one in calibrations:
        if one.gpu == gpu.slug:
            if not same_gpu:
                yield f"calibrated with {one.label}: {', '.join(one.families)}; --no-calibration leaves it out"
        elif one.gpu in list_gpus() and is_ordered_pair(derive_hardware(load_gpu(one.gpu)), derive_hardware(gpu)):
            yield f"kept consistent with {one.gpu}, which is calibrated; --no-calibration leaves that out"


def _note_collectives(
    run: MeasuredRun, target: Target, source: SourceCluster, times: pl.DataFrame, same_gpu: bool
) -> Iterator[str]:
    ranks = target.layout.world_size if target.layout else run.trace.world_size
    if target.cluster is not None and target.cluster.gpus > ranks:
        used = "1 is" if ranks == 1 else f"{ranks:,} are"
        yield f"of the cluster's {target.cluster.gpus:,} GPUs {used} used; --world-size changes it"
    if target.cluster is not None:
        yield from note_outsized_node(target.cluster, ranks)
    part = compute_time_share(times, "time_us", pl.col("family") == "collective")
    if not part:
        return
    if target.cluster is None:
        if not same_gpu:
            yield f"collectives ({part:.0f} % of GPU time) are kept as measured: --cluster names the links"
        return
    if source.cluster is None:
        yield (
            f"the source cluster isn't known ({source.origin}): collectives take the model's "
            "time, not the measured one "
            "times the model's ratio; --source-cluster names it"
        )
    elif source.origin != "given":
        yield f"the source cluster was {source.origin}, {source.cluster.slug}; --source-cluster corrects it"
    yield from _note_links(target.cluster, ranks)
    if "transfer_us" in times.columns:
        yield from _note_uncertain_collectives(run, times)


def _note_links(cluster: Cluster, ranks: int) -> Iterator[str]:
    if told := len(cluster.measured):
        yield f"collectives on {cluster.slug} keep to {format_quantity(told, 'measurement')} in its file"
    if cluster.fabric == "pcie" and not cluster.peer_access and ranks > 1:
        yield (
            f"{cluster.gpu.name}s have no peer-to-peer access: what they exchange is assumed to go through "
            "host memory at a fifth of PCI Express's rate, on good servers half; peer_access = true in a cluster's "
            "file says otherwise"
        )


def note_outsized_node(cluster: Cluster, ranks: int) -> Iterator[str]:
    """Note a node with more ranks than any known node of its GPU has: several nodes may be meant.

    Args:
        cluster: The target.
        ranks: Ranks of the job there.
    """
    known = find_largest_node_gpus(cluster.gpu)
    if known and min(ranks, cluster.gpus_per_node) > known:
        nodes = -(-cluster.gpus // known)
        yield (
            f"{cluster.slug} has {cluster.gpus_per_node} GPUs on the fast links of one node, and known nodes of "
            f"{cluster.gpu.slug} have {known} at most: {nodes} of these are {nodes}x{known}x{cluster.gpu.slug}@ndr400, "
            "or whatever their network is"
        )


def _note_uncertain_collectives(run: MeasuredRun, times: pl.DataFrame) -> Iterator[str]:
    """Note collective time beyond the model's transfer, and messages with inferred sizes."""
    told = times.select("method", "transfer_us")
    rows = run.kernels.hstack(told).filter(pl.col("family") == "collective")
    beyond_us = rows.select((pl.col("dur_ns") / 1e3 - pl.col("transfer_us")).sum()).item() / run.steps.height
    if beyond_us > 1:
        yield (
            f"collectives took {format_duration(beyond_us)} a step more than the trace's links "
            "explain: that is kept as "
            "measured, whether it was waiting for other ranks or contention with other kernels"
        )
    unsized = compute_time_share(rows, "dur_ns", pl.col("bytes").is_null())
    if unsized >= MIN_NOTED_PCT:
        yield f"{unsized:.0f} % of the collectives' time has no message size: inferred from launches and durations"
    kept = compute_time_share(rows, "dur_ns", pl.col("method") == "kept")
    if kept >= MIN_NOTED_PCT:
        yield f"{kept:.0f} % of the collectives' time can't be predicted and is kept as measured"


def _note_older_attention(run: MeasuredRun, gpu: Gpu, times: pl.DataFrame) -> Iterator[str]:
    """Note attention kernels that can't use the target's own matrix units."""
    rows = run.kernels.select("name", "family", "paged", "q_len", "kv_len").hstack(times.select("time_us"))
    part = compute_time_share(rows, "time_us", is_ampere_attention())
    rate = derive_hardware(gpu).mma_rate_fraction
    if part >= MIN_OLDER_ATTENTION_PCT and rate < 1:
        yield (
            f"FlashAttention 2 ({part:.0f} % of GPU time there) is written for an A100 and reaches at most "
            f"{100 * rate:.0f} % of what {gpu.slug}'s tensor cores can do: cuDNN's attention, or FlashAttention 3 "
            "(Hopper) or 4 (Blackwell), would shorten these kernels"
        )


def _note_dtype_substitutions(target: Resolution, times: pl.DataFrame) -> Iterator[str]:
    """Note precisions that the target lacks, and the ones that the estimate uses instead."""
    substituted = times.drop_nulls("runs_as").select("dtype", "runs_as").unique().sort("dtype", "runs_as")
    for dtype, runs_as in substituted.iter_rows():
        if dtype.endswith("tf32") or target.gpu.supports(dtype):  # a GPU without TF32 runs the same program in fp32
            continue
        part = compute_time_share(times, "time_us", (pl.col("dtype") == dtype) & (pl.col("runs_as") == runs_as))
        yield f"{target.gpu.name} has no {dtype}: not runnable as is; {part:.0f} % of GPU time estimated in {runs_as}"
