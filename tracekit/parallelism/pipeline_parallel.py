"""Turn a job of one stage into a pipeline: split its layers over stages, and schedule its passes.

A micro-batch is a traced pass. Its shapes stay; the number of passes in a step and their places change.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.comm import Cluster, predict
from tracekit.messages import layouts
from tracekit.parallelism.batch_size import find_weight_gradients
from tracekit.parallelism.fsdp_pipeline import StageGathers, predict_stage_gathers
from tracekit.parallelism.gemm_sides import find_hidden_sizes
from tracekit.parallelism.gradients import find_gradients
from tracekit.parallelism.layers import RepeatedLayers, find_repeated_layers
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.pipeline_schedules import build_tasks, compute_stage_ends
from tracekit.program import Program
from tracekit.replay.engine import Timeline

SEND_LATENCY_US = (300.0, 0.0, 600.0)
"""Cost of a send beyond its transfer, for launches and the wait for the other stage: likely, least and most.

Likely: sends of 10 to 28 MB took 0.38 to 0.76 ms between A100s, of which the transfer is 0.08 to 0.16 ms inside a node
(Qi et al., Zero Bubble Pipeline Parallelism, 2023, table 6), and interleaved schedules, which send more often, lost as
much with each send (table 4). Most is twice that. Least is zero, where a framework overlaps sends with computing.
"""


def infer_send_bytes(program: Program, layers: RepeatedLayers) -> float:
    """Infer the bytes that one layer passes to the next.

    It is the output of GEMMs whose number of columns is also the input width of GEMMs.

    Args:
        program: The program.
        layers: Its layers.

    Raises:
        LayoutError: No GEMM of the layers has known shapes.
    """
    gemms = program.kernels[layers.first_pass_rows].filter((pl.col("family") == "gemm") & (pl.col("batch") == 1))
    both = find_hidden_sizes(gemms)
    if both.is_empty():
        raise LayoutError(layouts.STAGE_MESSAGES_UNKNOWN())
    return float(both["bytes"][0])


def predict_send_times_us(size_bytes: float, layout: Layout, cluster: Cluster) -> tuple[Floats, ...]:
    """Predict how long a send from each chunk to the next blocks a stage: likely, least and most.

    Args:
        size_bytes: Size of the send.
        layout: Layout on the cluster.
        cluster: The cluster that connects the stages.
    """
    chunks = np.arange(layout.pp * layout.chunks)
    node = chunks % layout.pp * layout.get_group_stride("pp") // cluster.gpus_per_node
    sends = pl.DataFrame({"nodes": 1 + (node[1:] != node[:-1])})
    call = {"collective": "send_recv", "bytes": size_bytes, "ranks": 2, "dtype": "bf16"}
    times = predict(sends.with_columns(pl.lit(value).alias(name) for name, value in call.items()), cluster)
    columns = ("time_us", "low_us", "high_us")
    return tuple(
        times[column].to_numpy() + hand_over for column, hand_over in zip(columns, SEND_LATENCY_US, strict=True)
    )


UNEXPLAINED_STEP_FRACTION = 0.03
"""Fraction of a step by which published pipelines differ from schedules and sends; part of the interval."""

MAX_SCHEDULED_PASSES = 5_000_000
"""Largest number of chunk passes in a step; scheduling these takes half a gigabyte."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The schedule, the work and the sends of a step that runs through several stages.

    Attributes:
        stages: Number of stages.
        chunks: Chunks of layers on each stage: 1 is plain 1F1B, more are interleaved.
        micro_batches: Micro-batches in a step.
        passes: Passes in a step of the trace.
        layers: Number of layers that were split.
        bubble: Fraction of the step in which the mean stage waits for others, sends included.
        slowest: Work of the busiest stage, with what precedes or follows the layers, relative to the mean stage's.
        send_bytes: Size of a send to the next stage.
        send_us: Duration of a send between the stages that are farthest apart.
        once: Fraction of the trace's GPU time that runs once a step: optimizer, clipping.
        put_off: Fraction of the backward passes that are deferred weight gradients (ZB-H1); None for 1F1B.
        gather_us: Time in a step that the mean stage waits for its parameters with FSDP.
    """

    stages: int
    chunks: int
    micro_batches: int
    passes: int
    layers: int
    bubble: float
    slowest: float
    send_bytes: float
    send_us: float
    once: float
    put_off: float | None = None
    gather_us: float = 0.0

    @property
    def micro_batch_ratio(self) -> float:
        """Micro-batches that a replica processes in a step, relative to the trace."""
        return self.micro_batches / self.passes

    @property
    def stage_pass_ratio(self) -> float:
        """Passes of a stage in a step, in passes of the whole model, relative to the trace."""
        return self.micro_batch_ratio / self.stages

    @property
    def stage_work_ratio(self) -> float:
        """GPU work of a stage in a step, relative to a rank of the trace."""
        return (1 - self.once) * self.stage_pass_ratio + self.once / self.stages

    @property
    def max_passes_in_flight(self) -> float:
        """Largest number of passes whose activations the first stage holds, in passes of the whole model."""
        warmup = 1.0 if self.chunks == 1 else 1 + (self.stages - 1) / (self.stages * self.chunks)
        return min(warmup, self.micro_batches / self.stages)

    def __str__(self) -> str:
        """Return text such as ``4 stages of 8 layers, 16 micro-batches by 1F1B``."""
        by = "1F1B" if self.chunks == 1 else f"interleaved 1F1B of {self.chunks} chunks a stage"
        if self.put_off is not None:
            by = f"ZB-H1, weight gradients ({100 * self.put_off:.0f} % of the backward passes) deferred"
        each = -(-self.layers // self.stages)
        upto = "up to " if self.layers % self.stages else ""
        layers = "layer" if each == 1 else "layers"
        return f"{self.stages} stages of {upto}{each} {layers}, {self.micro_batches} micro-batches by {by}"


@dataclass(frozen=True, slots=True)
class StepParts:
    """What one step of one stage is made of, in microseconds; of a pass the step's mean one.

    Attributes:
        forward_us: Forward time.
        backward_us: Backward time, in the order of the forward pass.
        weight_gradient_us: The part of ``backward_us`` that computes weight gradients.
        tail_us: From the last backward pass to the end of the step: remaining gradient exchange, the optimizer.
    """

    forward_us: Floats
    backward_us: Floats
    weight_gradient_us: Floats
    tail_us: float

    def sum_us(self, passes: int) -> float:
        """Sum the parts of a step with ``passes`` passes."""
        return float(passes * (self.forward_us.sum() + self.backward_us.sum()) + self.tail_us)


def predict_pipeline(
    program: Program, timelines: Sequence[Timeline], layout: Layout, cluster: Cluster
) -> tuple[Pipeline, tuple[Floats, ...]]:
    """The pipeline, and by which factors the steps of some timelines get longer, those of the trace in order.

    Each step is scheduled by itself, with its own parts.

    Args:
        program: The program, of one stage.
        timelines: Its replays with the target's times: the prediction, and its interval's low and high end.
        layout: Layout on the target.
        cluster: The cluster that connects the stages.

    Raises:
        LayoutError: The layers are unknown, or can't be split in this way.
    """
    layers = find_repeated_layers(program)
    micro_batches = layout.micro_batches or layers.passes_per_step * layout.pp
    _check_schedule(layout, micro_batches)
    send_bytes = infer_send_bytes(program, layers) * layout.batch / layout.cp
    sends = predict_send_times_us(send_bytes, layout, cluster)
    shares = _compute_tail_fractions(program, layout.pp)
    weights = _find_weight_gradients(program)
    parts = [measure_step_parts(program, layers, timeline, weights) for timeline in timelines]
    gathers = predict_stage_gathers(program, layers, layout, cluster) if layout.fsdp_ranks > 1 else (None,) * len(parts)
    tasks = build_tasks(layout.pp, layout.chunks, micro_batches, layout.zero_bubble)
    alike = StageKinds(np.zeros(layout.pp, dtype=np.int64))
    found = [
        {
            step: _schedule_step([part], send, share, [gather], layout, micro_batches, tasks, alike).figures
            for step, part in of_step.items()
        }
        for of_step, send, share, gather in zip(parts, sends, shares, gathers, strict=True)
    ]
    if layout.zero_bubble and not any(part.weight_gradient_us.any() for part in parts[0].values()):
        raise LayoutError(layouts.WEIGHT_GRADIENTS_UNKNOWN())
    step_us, bubble_us, slowest, gather_us = np.array(list(found[0].values())).T
    pipeline = Pipeline(
        stages=layout.pp,
        chunks=layout.chunks,
        micro_batches=micro_batches,
        passes=layers.passes_per_step,
        layers=layers.count,
        bubble=float(np.median(bubble_us / step_us)),
        slowest=float(np.median(slowest)),
        send_bytes=send_bytes,
        send_us=float(sends[0].max()),
        once=_measure_once_fraction(program, layers, timelines[0]),
        put_off=_compute_weight_gradient_fraction(parts[0].values()) if layout.zero_bubble else None,
        gather_us=float(np.median(gather_us)),
    )
    bracket = (1.0, 1 - UNEXPLAINED_STEP_FRACTION, 1 + UNEXPLAINED_STEP_FRACTION)
    of_steps = (
        {step: other * after[step][0] / part.sum_us(layers.passes_per_step) for step, part in before.items()}
        for other, after, before in zip(bracket, found, parts, strict=True)
    )
    return pipeline, tuple(_align_with_steps(program, factors) for factors in of_steps)


def _compute_weight_gradient_fraction(parts: Iterable[StepParts]) -> float:
    """Compute the fraction of the backward passes that computes weight gradients, in the median step."""
    return float(np.median([part.weight_gradient_us.sum() / part.backward_us.sum() for part in parts]))


def _align_with_steps(program: Program, factors: Mapping[int, float]) -> Floats:
    """Return a factor for each step of the trace; the median factor for steps without one."""
    usual = float(np.median(list(factors.values())))
    return np.array([factors.get(step, usual) for step in program.step_timer.numbers])


def _check_schedule(layout: Layout, micro_batches: int) -> None:
    if layout.chunks > 1 and micro_batches % layout.pp:
        raise LayoutError(layouts.INTERLEAVING_INDIVISIBLE(micro_batches=micro_batches, stages=layout.pp))
    if layout.pp * layout.chunks * micro_batches > MAX_SCHEDULED_PASSES:
        raise LayoutError(layouts.SCHEDULE_TOO_LARGE(micro_batches=micro_batches, stages=layout.pp))


def measure_step_parts(
    program: Program, layers: RepeatedLayers, timeline: Timeline, weight_gradients: pl.Series
) -> dict[int, StepParts]:
    """Measure the parts of each counted step, from the end of one part's last kernel to that of the next.

    So whatever delays a layer (GPU, host or a collective) counts as its time::

        kernels of one pass | before layers | layer 0 | layer 1 | after layers |
        end times           ^ start         ^ t0      ^ t1      ^ t2           ^ t3
        parts                 t0 - start      t1 - t0   t2 - t1   t3 - t2

    Args:
        program: The program.
        layers: Its layers.
        timeline: A replay.
        weight_gradients: Which of the kernels compute gradients of weights.
    """
    ended = pl.Series(timeline.activity_end_ns).gather(layers.kernels["row"])
    done = layers.kernels.select(done=ended.cum_max()) if layers.kernels["rank"].n_unique() == 1 else (
        layers.kernels.with_columns(end=ended).select(done=pl.col("end").cum_max().over("rank"))
    )  # fmt: skip
    done_ns = done["done"].to_numpy()
    begin, turn, end = layers.passes.T
    step_us, of_pass = _time_steps(program, layers, timeline)
    start_ns = np.where(layers.is_first_pass, of_pass["start_ns"].to_numpy(), done_ns[begin - 1])[:, None]
    first = layers.forward_starts[:, :1]
    before_layers = np.where(first > 0, done_ns[begin[:, None] + first - 1], start_ns)
    forward_ns = done_ns[begin[:, None] + layers.forward_starts[:, 1:] - 1]
    backward_ns = done_ns[turn[:, None] + layers.backward_starts - 1]
    marks = [start_ns, before_layers, forward_ns, done_ns[turn - 1][:, None], backward_ns, done_ns[end - 1][:, None]]
    spans_us = np.diff(np.concatenate(marks, axis=1), axis=1) / 1e3
    sums = _measure_weight_gradient_fractions(weight_gradients, layers, timeline)
    number, chosen = (of_pass[name].to_numpy() for name in ("step", "chosen"))
    return {
        step: _split_step(spans_us[mine].mean(axis=0), sums[mine].sum(axis=0), step_us[step], layers)
        for step in np.unique(number[chosen]).tolist()
        for mine in [number == step]
    }


def _split_step(spans_us: Floats, sums: Floats, step_us: float, layers: RepeatedLayers) -> StepParts:
    """Split a step into its parts.

    Args:
        spans_us: Of its mean pass, forward and backward.
        sums: Of its backward passes, by layer, as :func:`_measure_weight_gradient_fractions` gives them.
        step_us: How long it takes.
        layers: The layers.
    """
    ahead, back = spans_us[: layers.count + 2], spans_us[layers.count + 2 :][::-1]
    every, weights = sums.T
    part = np.divide(weights, every, out=np.zeros_like(every), where=every > 0)[::-1]
    tail = step_us - layers.passes_per_step * spans_us.sum()
    return StepParts(ahead, back, back * part, max(float(tail), 0.0))


def _find_weight_gradients(program: Program) -> pl.Series:
    return find_weight_gradients(program.kernels, program.trace.ops)


def _measure_weight_gradient_fractions(
    weight_gradients: pl.Series, layers: RepeatedLayers, timeline: Timeline
) -> Floats:
    """Sum the kernel times of each backward pass by layer: all kernels, and those of weight gradients."""
    ran_ns = pl.DataFrame({"ran": timeline.activity_end_ns - timeline.activity_start_ns})["ran"]
    own = pl.DataFrame({"all": ran_ns, "weights": ran_ns * weight_gradients})
    sums = np.vstack([np.zeros(2), own[layers.kernels["row"]].to_numpy().cumsum(axis=0)])
    _, turn, end = layers.passes.T
    edges = np.concatenate([turn[:, None], turn[:, None] + layers.backward_starts, end[:, None]], axis=1)
    of_pass: Floats = np.diff(sums[edges], axis=1)
    return of_pass


def _time_steps(program: Program, layers: RepeatedLayers, timeline: Timeline) -> tuple[dict[int, float], pl.DataFrame]:
    """Measure each counted step in microseconds (mean over ranks), and find the step of each pass.

    That is ``step``, when it starts, and whether it is one of the chosen ones.
    """
    table = program.tabulate_chosen_steps(timeline)
    table = table.with_columns(start_ns=pl.col("end_ns") - pl.col("time_ns"))
    of_pass = layers.kernels.select("rank", "step")[layers.passes[:, 0]].join(
        table, on=["rank", "step"], how="left", maintain_order="left"
    )
    of_pass = of_pass.select("step", "start_ns", chosen=pl.col("start_ns").is_not_null())
    each = table.group_by("step").agg(pl.col("time_ns").mean() / 1e3)
    return dict(each.iter_rows()), of_pass


def _measure_once_fraction(program: Program, layers: RepeatedLayers, timeline: Timeline) -> float:
    """Measure the fraction of the chosen steps' computing time that runs once a step."""
    ran_ns = pl.Series("ran_ns", timeline.activity_end_ns - timeline.activity_start_ns)
    computes = program.is_in_chosen_steps & (program.kernels["family"] != "collective")
    return 1 - int(ran_ns.gather(layers.kernels["row"]).sum()) / int(ran_ns.filter(computes).sum())


@dataclass(frozen=True, slots=True)
class StageKinds:
    """Which kind of GPU each stage runs on.

    Attributes:
        of_stage: Number of each stage's kind.
        by_speed: Whether faster stages get more layers; else all get as many.
    """

    of_stage: Ints
    by_speed: bool = False


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """A step of several stages, in microseconds.

    Attributes:
        step_us: The step.
        passes_us: The part of it to the end of the last pass.
        busy_us: Work of each stage in it.
        gather_us: Wait of the mean stage for parameters.
        tail_us: What follows the passes on each stage.
        layers: Layers of each stage.
    """

    step_us: float
    passes_us: float
    busy_us: Floats
    gather_us: float
    tail_us: Floats
    layers: Ints

    @property
    def figures(self) -> tuple[float, float, float, float]:
        """The step; the mean stage's wait for others; the busiest stage over the mean; the mean wait for parameters."""
        mean_us = float(self.busy_us.mean())
        waits_us = self.passes_us - mean_us - self.gather_us
        return self.step_us, waits_us, float(self.busy_us.max() / self.busy_us.mean()), self.gather_us


def predict_unlike_stages(
    programs: Sequence[Program],
    timelines: Sequence[Timeline],
    layout: Layout,
    clusters: Sequence[Cluster],
    kinds: StageKinds,
) -> ScheduledStep:
    """Schedule the median step of a pipeline whose stages run on several kinds of GPUs.

    Args:
        programs: The program of one stage on each kind.
        timelines: Its replay there.
        layout: Layout on the target.
        clusters: The cluster, as if all its GPUs were of each kind.
        kinds: The kind of each stage.

    Raises:
        LayoutError: As :func:`predict_pipeline`.
    """
    program = programs[0]
    layers = find_repeated_layers(program)
    micro_batches = layout.micro_batches or layers.passes_per_step * layout.pp
    send_bytes = infer_send_bytes(program, layers) * layout.batch / layout.cp
    sends = np.max([predict_send_times_us(send_bytes, layout, one)[0] for one in clusters], axis=0)
    share = _compute_tail_fractions(program, layout.pp)[0]
    gathers = [
        predict_stage_gathers(program, layers, layout, one)[0] if layout.fsdp_ranks > 1 else None for one in clusters
    ]
    tasks = build_tasks(layout.pp, layout.chunks, micro_batches, layout.zero_bubble)
    parts = [
        measure_step_parts(one, layers, line, _find_weight_gradients(one))
        for one, line in zip(programs, timelines, strict=True)
    ]
    steps = [
        _schedule_step([of_kind[step] for of_kind in parts], sends, share, gathers, layout, micro_batches, tasks, kinds)
        for step in parts[0]
    ]
    return sorted(steps, key=lambda one: one.step_us)[len(steps) // 2]


def _schedule_step(
    parts: Sequence[StepParts],
    sends: Floats,
    tail_share: float,
    gathers: Sequence[StageGathers | None],
    layout: Layout,
    micro_batches: int,
    tasks: Ints,
    kinds: StageKinds,
) -> ScheduledStep:
    """Schedule a step, of which ``parts`` and ``gathers`` are those of each kind of GPU."""
    kind = np.tile(kinds.of_stage, layout.chunks)
    begin = _split_layers(parts, layout, kind, by_speed=kinds.by_speed)

    def sum_chunks(times_us: Iterable[Floats]) -> Floats:
        chunks: Floats = np.stack([np.add.reduceat(one, begin) for one in times_us])[kind, np.arange(kind.size)]
        return chunks

    forward, backward, weights = (
        sum_chunks(getattr(part, name) for part in parts)
        for name in ("forward_us", "backward_us", "weight_gradient_us")
    )
    late = weights if layout.zero_bubble else None
    delays = [
        gather.compute_delays_us(part.forward_us, begin) if gather else np.zeros_like(forward)
        for gather, part in zip(gathers, parts, strict=True)
    ]
    first = np.stack(delays)[kind, np.arange(kind.size)]
    ends = compute_stage_ends(forward, backward, sends, layout.pp, micro_batches, late, first, tasks)
    tail = np.array([part.tail_us * tail_share for part in parts])[kinds.of_stage]
    layers = np.diff(begin, append=parts[0].forward_us.size)
    layers[[0, -1]] -= 1
    return ScheduledStep(
        step_us=float((ends + tail).max()),
        passes_us=float(ends.max()),
        busy_us=micro_batches * (forward + backward).reshape(layout.chunks, layout.pp).sum(axis=0),
        gather_us=float(first.sum()) / layout.pp,
        tail_us=tail,
        layers=layers.reshape(layout.chunks, layout.pp).sum(axis=0),
    )


def _split_layers(parts: Sequence[StepParts], layout: Layout, kind: Ints, *, by_speed: bool) -> Ints:
    """Split the parts of a pass into chunks; return the first part of each.

    All chunks get the same number of layers; chunks with the least other work take one of the remaining layers each.
    By speed each layer goes to the chunk that would be done with it first. What precedes the layers belongs to the
    first chunk, what follows them to the last one.

    Args:
        parts: Those of each kind of GPU.
        layout: Layout on the target.
        kind: The kind of each chunk.
        by_speed: Whether faster chunks get more layers.
    """
    chunks, layers = layout.pp * layout.chunks, parts[0].forward_us.size - 2
    besides = np.zeros(chunks)
    opens, closes = parts[kind[0]], parts[kind[-1]]
    besides[0] = opens.forward_us[0] + opens.backward_us[0]
    besides[-1] += closes.forward_us[-1] + closes.backward_us[-1]
    least, left = divmod(layers, chunks)
    each = np.full(chunks, least)
    each[np.argsort(besides, kind="stable")[:left]] += 1
    if by_speed:
        layer_us = np.array([(part.forward_us + part.backward_us)[1:-1].mean() for part in parts])[kind]
        each = _assign_layers(layers, besides, layer_us)
    if not (each + besides).all():
        raise LayoutError(layouts.LAYERS_INDIVISIBLE(layers=layers, stages=layout.pp, chunks=layout.chunks))
    return np.concatenate([[0], 1 + each[:-1].cumsum()])


def _assign_layers(layers: int, besides: Floats, layer_us: Floats) -> Ints:
    """Assign layers one by one to the chunk that would be done with one more first, which is best for the slowest."""
    each = np.zeros(besides.size, dtype=np.int64)
    for _ in range(layers):
        each[np.argmin(besides + (each + 1) * layer_us)] += 1
    return each


def _compute_tail_fractions(program: Program, stages: int) -> tuple[float, float, float]:
    """Compute the fraction of the step's tail (gradients, optimizer) that is left to a stage: likely, least and most.

    It follows the stage's parameters. The largest one is likely the embedding, whole on the stage that ends last; the
    next largest may be the head. Where no gradients with shapes were recorded, up to all of the tail may be left.
    """
    found = find_gradients(program)
    if found is None:
        return 1 / stages, 1 / stages, 1.0
    sizes = np.sort([gradient.numel for gradient in found])[::-1]
    whole = np.cumsum(sizes[:2]) / sizes.sum()
    return float(whole[0] + (1 - whole[0]) / stages), 1 / stages, float(whole[-1] + (1 - whole[-1]) / stages)
