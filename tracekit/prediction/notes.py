"""Write the notes of a prediction: its assumptions and limits."""

from collections.abc import Iterable, Iterator, Sequence
from math import exp

import polars as pl

from predictors import Gpu, Resolution, list_gpus, load_gpu
from predictors.gpu_order import MAX_KNOWN_RATIO, list_unlike_figures
from predictors.hardware import derive_hardware
from predictors.transfer import compare_gpus
from tracekit.calibration import Calibration
from tracekit.comm import Cluster
from tracekit.comm.cluster import find_largest_node_gpus
from tracekit.format import format_duration
from tracekit.hosts import HostSpeed, find_usual_host
from tracekit.messages import Message
from tracekit.messages import predictions as told
from tracekit.models.stacks import UNKNOWN_STACK, find_stack
from tracekit.parallelism.ddp import COLLECTIVE_SM_FRACTION, MAX_COLLECTIVE_SM_FRACTION
from tracekit.parallelism.fsdp import GATHER_AHEAD_LAYERS
from tracekit.parallelism.layout import Layout
from tracekit.parallelism.pipeline_parallel import SEND_LATENCY_US, Pipeline
from tracekit.parallelism.process_groups import EP_GROUP
from tracekit.parallelism.stragglers import HOST_SPEED_PCT
from tracekit.prediction import track_record
from tracekit.prediction.changed_step import ChangedStep, is_worth_note
from tracekit.prediction.clock import get_highest_mhz
from tracekit.prediction.cost import Prices
from tracekit.prediction.intervals import KEPT_COLLECTIVE_FACTOR
from tracekit.prediction.job import Job
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import StepOnHost, StepWithContention, Target
from tracekit.prediction.part import OLDER_ATTENTION
from tracekit.prediction.rounds import TimeSums
from tracekit.prediction.source_cluster import SourceCluster
from tracekit.prediction.target_host import MEASURED_HOST, STACKS, TRACED_HOSTS, UNKNOWN, HostTimes, changes_stack
from tracekit.program import Program
from tracekit.replay.step_time import StepTime
from tracekit.workload.ops.recurrent import STATE_AND_DIRECTION_POSITIONS as RECURRENT_OPS
from tracekit.workload.step_kinds import compute_time_share

HOST_SPEED_EDIT = "host-speed"
ATTENTION_KERNELS = {
    "eager": "plain products and a softmax (eager)",
    "sdpa": "PyTorch's fused kernel (sdpa)",
    "flash": "FlashAttention 2 (flash)",
}
"""How attention is computed, in words."""

MIN_NOTED_LONGER_PCT = 0.5
"""Least percent by which the board's power limit lengthens the kernels for that to be noted."""

# Least ratio of the busiest stage to the mean one for a note.
MIN_UNEVEN_STAGE_RATIO = 1.1

MIN_OLDER_ATTENTION_PCT = 5.0
"""Least percent of GPU time for a note on attention kernels that don't use the GPU's own matrix units."""

# Least percent of the collectives' time for a note on what was inferred.
MIN_NOTED_PCT = 0.5


def write_notes(
    job: Job,
    target: Target,
    source: SourceCluster,
    collectives: pl.DataFrame | None,
    sums: Sequence[TimeSums],
    changed: ChangedStep,
    step: StepTime,
    contention: StepWithContention | None = None,
    pipeline: Pipeline | None = None,
) -> Iterator[Message]:
    """Write what was assumed and what was left out.

    Args:
        job: The job.
        target: Where it is to run.
        source: Where it was recorded.
        collectives: Its collectives there; None where no links are known.
        sums: What each part's kernels sum up to there.
        changed: The predicted step with changes.
        step: The predicted step.
        contention: The step with contention, where enough kernels overlap.
        pipeline: The pipeline of stages that the trace doesn't have.
    """
    run = job.run
    gpu = target.gpu
    if target.layout and target.layout.world_size > 1:
        yield told.JOB_LAYOUT(layout=str(target.layout))
        if pipeline:
            yield from _note_pipeline(pipeline, target.layout)
        elif target.layout.dp > 1 and target.layout.dp != run.trace.world_size // (target.layout.tp * target.layout.pp):
            note = told.BATCH_PER_RANK_KEPT if target.layout.batch == 1 else told.BATCH_PER_RANK_EQUAL
            yield note(replicas=target.layout.dp)
    if target.layout:
        yield from _note_batch(target.layout)
    yield from note_gpus(run.gpu, target)
    yield from _note_dtype_substitutions(gpu, sums)
    yield from _note_older_attention(gpu.gpu, sums, changed)
    if not run.is_captured:
        yield from track_record.note_track_record(run.gpu, gpu.gpu, changed)
    yield from _note_collectives(job, target, source, collectives, sums, step.exposed_comm_us)
    if contention and changed.is_changed_by(changed.step_us + contention.step_time_us - contention.apart_us):
        yield told.KERNELS_CONTEND(
            overlap_pct=contention.overlap, apart_us=contention.apart_us, contended_us=contention.step_time_us
        )
    if job.program.edits:
        yield told.EDITS_APPLIED(edits=job.program.edits)


def note_gpus(source: Gpu | None, target: Target) -> Iterator[Message]:
    """Note what the names and figures of the GPUs leave open.

    Args:
        source: The trace's GPU; None where it is unknown.
        target: Where the job is to run.
    """
    gpu = target.gpu
    yield from _note_gpu_name(gpu)
    yield from _note_unlike_gpus(*(one for one in (source, gpu.gpu) if one is not None))
    if target.is_gpu_requested:
        yield told.GPU_ALSO_REQUESTED(gpu=gpu.gpu.slug, target=target.label)
    if source is None:
        yield told.SOURCE_GPU_UNKNOWN()


def _note_gpu_name(gpu: Resolution) -> Iterator[Message]:
    """Note what the GPU's name leaves open."""
    if gpu.others:
        yield told.GPU_NAME_AMBIGUOUS(name=gpu.query, gpu=gpu.gpu.slug, others=gpu.others)
    if gpu.gpu.is_laptop:
        yield told.GPU_IN_LAPTOP(power_w=gpu.gpu.tdp_w)


def _note_unlike_gpus(*gpus: Gpu) -> Iterator[Message]:
    """Note which figures of the GPUs of trace and target are unlike those of all known GPUs."""
    for gpu in dict.fromkeys(gpus):
        if not gpu.is_cpu and (figures := list_unlike_figures(gpu)):
            yield told.GPU_UNLIKE_KNOWN(gpu=gpu.slug, figures=figures, ratio=MAX_KNOWN_RATIO)


def note_power_cap(cap_w: float | None, gpu: Gpu, sums: Sequence[TimeSums]) -> Iterator[Message]:
    """Note what a power limit changes; None is the GPU's own."""
    if cap_w is None:
        return
    if cap_w >= gpu.tdp_w:
        yield told.POWER_CAP_WITHOUT_EFFECT(power=cap_w, gpu=gpu.slug, limit=gpu.tdp_w)
        return
    slowdown = _compute_mean_slowdown(one.limited_us[0] for one in sums)
    yield told.POWER_CAPPED(power=cap_w, limit=gpu.tdp_w, slowdown_pct=100 * (slowdown - 1))


def note_fixed_clock(clock_mhz: float | None, gpu: Gpu, sums: Sequence[TimeSums]) -> Iterator[Message]:
    """Note what a lower clock changes; None is the GPU's own."""
    if clock_mhz is None:
        return
    highest = get_highest_mhz(gpu)
    if clock_mhz >= highest:
        yield told.CLOCK_FIXED_WITHOUT_EFFECT(clock=clock_mhz, gpu=gpu.slug, highest=highest)
        return
    slowdown = _compute_mean_slowdown(one.limited_us[1] for one in sums)
    yield told.CLOCK_FIXED(clock=clock_mhz, highest=highest, slowdown_pct=100 * (slowdown - 1))


def _compute_mean_slowdown(parts: Iterable[tuple[float, float]]) -> float:
    """Return how many times as long the kernels of all parts take together as without the factor on each."""
    limited_us, free_us = (sum(one) for one in zip(*parts, strict=True))
    return limited_us / free_us if free_us > 0 else 1.0


def note_sustained_clock(slowdown: float, longer_pct: float, demand_w: float | None, gpu: Gpu) -> Iterator[Message]:
    """Note that the step's power lowers the clock.

    Args:
        slowdown: How many times as long the matrix units take as at the boost clock.
        longer_pct: By how many percent all kernels take longer.
        demand_w: What the step demands at the boost clock; None where nothing is known of it.
        gpu: The GPU.
    """
    if demand_w is not None and longer_pct >= MIN_NOTED_LONGER_PCT:
        yield told.CLOCK_LOWERED(
            gpu=gpu.slug, demand=demand_w, limit=gpu.tdp_w, clock_pct=100 / slowdown, longer_pct=longer_pct
        )


def note_host(
    host: str | float,
    times: HostTimes,
    source: HostSpeed | None,
    same: StepOnHost | None,
    gpu: Gpu,
    changed: ChangedStep | None,
) -> Iterator[Message]:
    """Note the host that was predicted for, or what is open about it.

    Args:
        host: Host that was asked for.
        times: Factors on the time of its work.
        source: The trace's host.
        same: The step with a host like the trace's.
        gpu: GPU of the target.
        changed: The predicted step with changes; ``None`` where another note states the interval's allowance for the
            host.
    """
    if host in TRACED_HOSTS and not (same and source) and times != MEASURED_HOST and changed:
        yield from _note_host_allowance(host, times, changed)
    if source is None:
        return
    if same:
        usual = find_usual_host(gpu)
        yield told.HOST_OPEN(
            low_ratio=times.low,
            high_ratio=times.high,
            machines=usual.machines,
            speed_ratio=source.speed / usual.speed,
            ops=source.ops,
            same_low_us=same.low_us,
            same_high_us=same.high_us,
        )
    elif host not in TRACED_HOSTS:
        yield told.HOST_CHANGED(
            host=host if isinstance(host, str) else f"{host:.3g}",
            time_ratio=times.likely,
            low_ratio=times.low,
            high_ratio=times.high,
            ops=source.ops,
            speed=source.speed,
        )


def _note_host_allowance(host: str | float, times: HostTimes, changed: ChangedStep) -> Iterator[Message]:
    """Note what a host as slow as the interval allows for would change, if it is much."""
    slow_us = changed.compute_step_us(host_time=times.high)
    if not is_worth_note(changed.step_us, slow_us):
        return
    longer_us = abs(slow_us - changed.step_us)
    if host == UNKNOWN:
        yield told.HOST_NOT_GIVEN(low_ratio=times.low, high_ratio=times.high, longer_us=longer_us)
    else:
        yield told.HOST_TIME_KEPT(host_pct=HOST_SPEED_PCT, longer_us=longer_us)


def note_other_stack(source: Gpu | None, gpu: Gpu, times: HostTimes, changed: ChangedStep) -> Iterator[Message]:
    """Note that the host's work is carried to another software stack, where that may change the step much.

    Args:
        source: GPU of the trace.
        gpu: GPU of the target.
        times: Factors on the host's work.
        changed: The predicted step with changes.
    """
    if source is None or not changes_stack(source, gpu) or times == MEASURED_HOST:
        return
    slow_us = changed.compute_step_us(host_time=times.high)
    if is_worth_note(changed.step_us, slow_us):
        yield told.HOST_STACK_CHANGES(
            source=STACKS[source.vendor],
            target=STACKS[gpu.vendor],
            low_ratio=times.low / times.likely,
            high_ratio=times.high / times.likely,
            longer_us=abs(slow_us - changed.step_us),
        )


def note_unknown_time(changed: ChangedStep, least_us: float) -> Iterator[Message]:
    """Note that the trace doesn't say what part of the step was, if it is much.

    Args:
        changed: The predicted step with changes.
        least_us: The step without that time.
    """
    if is_worth_note(changed.step_us, least_us):
        yield told.UNKNOWN_TIME_VARIES(shorter_us=changed.step_us - least_us, least_us=least_us)


ThreeTimes = tuple[float, float, float]
"""Low, likely and high."""
SEEN_ENGINE_HOST_US = 30_000.0
"""The longest CPU time of an engine's step that was seen, of vLLM 0.11 on a B200 machine (ML.ENERGY's leaderboard)."""


def note_captured_program(program: Program) -> Iterator[Message]:
    """Note how the layers of a captured program run, where its config or an option says so."""
    facts = program.trace.capture_facts
    if facts and facts.is_longest and facts.batch:
        yield told.SEQUENCE_LONGEST(tokens=facts.tokens // facts.batch)
    if facts and facts.attention:
        yield told.ATTENTION_OF_CAPTURE(kernels=ATTENTION_KERNELS.get(facts.attention, facts.attention))
    if facts and facts.quantization:
        yield told.QUANTIZATION_OF_CAPTURE(method=facts.quantization)
    if facts and facts.cache:
        yield told.CACHE_OF_CAPTURE(cache=facts.cache)
    if facts and facts.precision:
        yield told.PRECISION_OF_CAPTURE(precision=facts.precision)
    if facts and program.kernels["op"].is_in(list(RECURRENT_OPS)).any():
        yield told.RECURRENCE_OF_CAPTURE()
    if facts and facts.left_out:
        yield told.LEFT_OUT_OF_CAPTURE(things=list(facts.left_out))
    if facts:
        yield from _note_stack(program, facts.stack)


def _note_stack(program: Program, name: str) -> Iterator[Message]:
    """Note what the framework that runs a captured program makes of it, and what that leaves open."""
    stack = find_stack(name)
    if name == UNKNOWN_STACK:
        yield told.STACK_UNKNOWN(low=exp(-stack.half_width), high=exp(stack.half_width))
    elif stack.time_ratio != 1.0:
        fusion = told.STACK_FUSED() if stack.fuses else told.STACK_UNFUSED()
        yield told.STACK_OF_CAPTURE(stack=name, fusion=fusion, ratio=stack.time_ratio)
    if stack.expert_half_width and (program.kernels["group_description"] == EP_GROUP).any():
        yield told.EXPERTS_OF_STACK(low=exp(-stack.expert_half_width), high=exp(stack.expert_half_width))


def note_engine_pace(program: Program, gpu_us: ThreeTimes) -> Iterator[Message]:
    """Note the CPU's time of a serving engine's step beside the GPU's, and which of them sets the pace.

    Args:
        program: The captured program.
        gpu_us: Time of the GPU's step: low, likely and high.
    """
    facts = program.trace.capture_facts
    if facts and facts.engine and facts.engine_host_us[-1]:
        low_us, likely_us, high_us = facts.engine_host_us
        yield told.ENGINE_OF_CAPTURE(
            engine=facts.engine,
            host_us=likely_us,
            host_ends_us=(low_us, high_us, likely_us),
            seen_us=SEEN_ENGINE_HOST_US,
            gpu_us=gpu_us[1],
            pace=describe_pace(gpu_us, facts.engine_host_us),
        )


def describe_pace(gpu_us: ThreeTimes, host_us: ThreeTimes) -> Message:
    """Describe whether GPU or CPU sets the pace of an engine's steps, by the intervals of their times."""
    is_cpu = host_us[1] > gpu_us[1]
    if host_us[0] > gpu_us[2] or gpu_us[0] > host_us[2]:
        return told.PACE_BY_CPU() if is_cpu else told.PACE_BY_GPU()
    return told.PACE_LIKELY_BY_CPU() if is_cpu else told.PACE_LIKELY_BY_GPU()


def note_captured_host(host: str | float, times: HostTimes) -> Iterator[Message]:
    """Note the host that a captured program was predicted for."""
    if times != MEASURED_HOST:
        named = "the usual one beside that GPU" if isinstance(host, str) else f"of speed {host:.3g}"
        yield told.HOST_OF_CAPTURE(host=named, low_ratio=times.low / times.likely, high_ratio=times.high / times.likely)


def note_cpu(cpu: Gpu, program: Program) -> Message:
    """Note how ops run on a CPU, and where their times are from."""
    say = told.CPU_BY_LAW if program.has_predicted_times or not program.is_captured else told.CPU_MEASURED
    return say(cpu=cpu.slug, cores=cpu.sms)


def has_host_speed_edit(program: Program) -> bool:
    """Return whether an edit sets the host's speed."""
    return any(edit.startswith(HOST_SPEED_EDIT) for edit in program.edits)


def _note_batch(layout: Layout) -> Iterator[Message]:
    """Note what a batch of another size, or of longer sequences, changes."""
    if layout.batch != 1:
        yield told.BATCH_SCALED(batch_ratio=layout.batch)
    if layout.context:
        yield told.CONTEXT_CHANGED(keys=layout.context)


def _note_pipeline(pipeline: Pipeline, layout: Layout) -> Iterator[Message]:
    """Note how a step runs through stages that the trace doesn't have."""
    yield told.PIPELINE_USED(pipeline=str(pipeline), bubble_pct=100 * pipeline.bubble)
    if pipeline.slowest > MIN_UNEVEN_STAGE_RATIO:
        yield told.STAGES_UNEVEN(work_ratio=pipeline.slowest)
    if pipeline.gather_us:
        yield told.STAGE_GATHERS_EXPOSED(gather_us=pipeline.gather_us, layers_ahead=GATHER_AHEAD_LAYERS)
    batch = layout.dp * layout.batch * pipeline.micro_batch_ratio
    yield told.MICRO_BATCH_SCALED(size_ratio=layout.batch, batch_ratio=batch)
    latency_us, *ends_us = SEND_LATENCY_US
    yield told.STAGE_SENDS(
        message_bytes=pipeline.send_bytes, send_us=pipeline.send_us, latency_us=latency_us, latency_ends_us=ends_us
    )


def note_inserted_collectives(inserted_us: float, exposed_us: float, slower_us: float) -> Message:
    """Note the cost of inserted collectives.

    Args:
        inserted_us: Their time in a step.
        exposed_us: The part of it in which nothing else runs.
        slower_us: The time by which they slow kernels that overlap the rest.
    """
    if format_duration(exposed_us) == format_duration(inserted_us):
        return told.INSERTED_EXPOSED(inserted_us=inserted_us)
    if slower_us < 1:
        return told.INSERTED_OVERLAPPED(inserted_us=inserted_us, exposed_us=exposed_us)
    return told.INSERTED_SLOW_KERNELS(
        inserted_us=inserted_us,
        exposed_us=exposed_us,
        slower_us=slower_us,
        lost_pct=100 * COLLECTIVE_SM_FRACTION,
        max_lost_pct=100 * MAX_COLLECTIVE_SM_FRACTION,
    )


def note_memory_fit(memory: MemoryFit) -> Message:
    """Note whether the job fits into memory, and why."""
    if memory.fits is None:
        return told.MEMORY_UNCERTAIN(reason=memory.reason)
    return (told.MEMORY_FITS if memory.fits else told.MEMORY_TOO_SMALL)(reason=memory.reason)


def note_missing_price(prices: Prices, price: float | None) -> Iterator[Message]:
    """Note that the target has no price where other GPUs have one.

    Args:
        prices: All prices.
        price: That of the target.
    """
    if prices.dollars and price is None:
        yield told.PRICE_MISSING()


def note_calibrations(calibrations: Sequence[Calibration], gpu: Gpu, same_gpu: bool) -> Iterator[Message]:
    """Note the calibrations that the prediction used.

    Args:
        calibrations: All stored calibrations.
        gpu: The target.
        same_gpu: Whether its times were measured there, and are used unchanged.
    """
    for one in calibrations:
        if one.gpu == gpu.slug:
            if not same_gpu:
                yield told.CALIBRATION_USED(label=one.label, families=[*one.families])
        elif one.gpu in list_gpus() and any(compare_gpus(derive_hardware(load_gpu(one.gpu)), derive_hardware(gpu))):
            yield told.CALIBRATION_OF_OTHER_GPU(gpu=one.gpu)


def _note_collectives(
    job: Job,
    target: Target,
    source: SourceCluster,
    collectives: pl.DataFrame | None,
    sums: Sequence[TimeSums],
    alone_us: float,
) -> Iterator[Message]:
    run, program = job.run, job.program
    communicates = any(one.communicates for one in sums)
    if target.cluster is not None:
        ranks = target.layout.world_size if target.layout else run.trace.world_size
        yield from note_cluster(target.cluster, ranks, source if communicates else None)
    if not communicates:
        return
    if target.cluster is None and not (run.gpu and run.gpu.slug == target.gpu.gpu.slug):
        chosen = program.kernels.filter(program.is_in_chosen_steps)
        spent_ns = int(chosen.filter(family="collective")["dur_ns"].sum())
        total_ns = sum(sum(one.methods_ns[0]) for one in sums)
        if target.links is None or (collectives is not None and collectives["method"].is_not_null().any()):
            yield from note_links(target, source, 100 * spent_ns / total_ns if total_ns else 0.0, alone_us)
    if collectives is not None:
        yield from _note_uncertain_collectives(program, collectives)


def note_links(target: Target, source: SourceCluster, time_pct: float, alone_us: float) -> Iterator[Message]:
    """Note what happens to collectives where only a GPU was named.

    Args:
        target: The target.
        source: Where the job was recorded.
        time_pct: Their part of the measured kernel time, in percent.
        alone_us: Time of a step in which nothing else runs.
    """
    if target.links is None:
        yield told.COLLECTIVES_KEPT(time_pct=time_pct, alone_us=alone_us, factor=KEPT_COLLECTIVE_FACTOR)
        return
    yield told.LINKS_ASSUMED(time_pct=time_pct, cluster=target.links.slug)
    if source.note:
        yield source.note
    yield from _note_links(target.links, target.links.gpus)


def note_cluster(cluster: Cluster, ranks: int, source: SourceCluster | None) -> Iterator[Message]:
    """Note what is assumed of a cluster.

    Args:
        cluster: The target.
        ranks: Ranks of the job there.
        source: Where the job was recorded; None if its ranks don't communicate.
    """
    if cluster.gpus > ranks:
        yield told.CLUSTER_PARTLY_USED(ranks=ranks, gpus=cluster.gpus)
    yield from note_outsized_node(cluster, ranks)
    if source is None:
        return
    if source.note:
        yield source.note
    yield from _note_links(cluster, ranks)


def _note_links(cluster: Cluster, ranks: int) -> Iterator[Message]:
    if cluster.measured:
        yield told.CLUSTER_MEASURED(cluster=cluster.slug, measurements=len(cluster.measured))
    if cluster.fabric == "pcie" and not cluster.peer_access and ranks > 1:
        yield told.PEER_ACCESS_MISSING(gpu=cluster.gpu.name)


def note_outsized_node(cluster: Cluster, ranks: int) -> Iterator[Message]:
    """Note a node with more ranks than any known node of its GPU has: several nodes may be meant.

    Args:
        cluster: The target.
        ranks: Ranks of the job there.
    """
    known = find_largest_node_gpus(cluster.gpu)
    if known and min(ranks, cluster.gpus_per_node) > known:
        nodes = -(-cluster.gpus // known)
        yield told.NODE_TOO_LARGE(
            cluster=cluster.slug,
            gpus=cluster.gpus_per_node,
            gpu=cluster.gpu.slug,
            known_gpus=known,
            nodes=nodes,
            suggestion=f"{nodes}x{known}x{cluster.gpu.slug}@ndr400",
        )


def _note_uncertain_collectives(program: Program, collectives: pl.DataFrame) -> Iterator[Message]:
    """Note collective time beyond the model's transfer, and messages with inferred sizes."""
    told_of = collectives.select(pl.col("row").cast(pl.UInt32), "method", "transfer_us")
    rows = (
        program.kernels.with_row_index("row")
        .filter(program.is_in_chosen_steps & (pl.col("family") == "collective"))
        .join(told_of, on="row", how="left", maintain_order="left")
    )
    beyond_us = rows.select((pl.col("dur_ns") / 1e3 - pl.col("transfer_us")).sum()).item() / program.chosen_steps.height
    if beyond_us > 1:
        yield told.COLLECTIVES_SLOWER_THAN_LINKS(beyond_us=beyond_us)
    unsized = compute_time_share(rows, "dur_ns", pl.col("bytes").is_null())
    if unsized >= MIN_NOTED_PCT:
        yield told.COLLECTIVE_SIZES_INFERRED(time_pct=unsized)
    kept = compute_time_share(rows, "dur_ns", pl.col("method").is_null())
    if kept >= MIN_NOTED_PCT:
        yield told.COLLECTIVES_UNPREDICTED(time_pct=kept, factor=KEPT_COLLECTIVE_FACTOR)


def _note_older_attention(gpu: Gpu, sums: Sequence[TimeSums], changed: ChangedStep) -> Iterator[Message]:
    """Note attention kernels that can't use the target's own matrix units, where the step would gain by that."""
    rate = derive_hardware(gpu).mma_rate_fraction
    if rate >= 1:
        return
    total_us, older_us = sum(one.chosen_us for one in sums), sum(one.older_attention_us for one in sums)
    part = 100 * older_us / total_us if total_us else 0.0
    if part < MIN_OLDER_ATTENTION_PCT:
        return
    step_us = changed.compute_step_us((OLDER_ATTENTION, rate))
    if changed.is_changed_by(step_us):
        saves_us = changed.step_us - step_us
        yield told.ATTENTION_BUILT_FOR_A100(time_pct=part, rate_pct=100 * rate, gpu=gpu.slug, saves_us=saves_us)


def _note_dtype_substitutions(target: Resolution, sums: Sequence[TimeSums]) -> Iterator[Message]:
    """Note precisions that the target lacks, and the ones that the estimate uses instead."""
    replaced, total_us = pl.concat(one.replaced for one in sums), sum(one.chosen_us for one in sums)
    if replaced.is_empty():
        return
    of_pair = replaced.group_by("dtype", "runs_as").agg(pl.col("time_us").sum()).sort("dtype", "runs_as")
    for dtype, runs_as, time_us in of_pair.iter_rows():
        if dtype.endswith("tf32") or target.gpu.supports(dtype):  # a GPU without TF32 runs the same program in fp32
            continue
        part = 100 * time_us / total_us if total_us else 0.0
        yield told.DTYPE_UNSUPPORTED(gpu=target.gpu.name, dtype=dtype, runs_as=runs_as, time_pct=part)
