"""A job of one stage as a pipeline of several: its layers shared out, its passes run again by a pipeline schedule.

A micro-batch is a traced pass: its shapes stay, only how many run in a step and where changes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.arrays import Floats, Ints
from tracekit.comm import Cluster
from tracekit.prediction.gathers import Gathers, gathers_us
from tracekit.prediction.layers import Layers, recognise_layers
from tracekit.prediction.layout import Layout, LayoutError
from tracekit.prediction.memory import gradients
from tracekit.prediction.rebatch import weight_gradients
from tracekit.prediction.schedule import ends, tasks_of
from tracekit.prediction.sends import activation_bytes, send_times_us
from tracekit.replay.engine import Timeline
from tracekit.replay.run import Run

LEFT_OUT = 0.03
"""Part of a step by which published pipelines came out otherwise than schedules and sends explain; in the interval."""

MOST_PASSES = 5_000_000
"""Of chunks in a step; scheduling these takes half a gigabyte."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """How a step runs through the stages.

    Attributes:
        stages: Of the pipeline.
        chunks: Of layers on each stage: 1 is plain 1F1B, more are interleaved.
        micro_batches: Passes in a step.
        passes: Passes in a step of the trace.
        layers: That were shared out.
        bubble: Part of the step in which the mean stage waits for others, sends included.
        slowest: Work of the stage that has most, with what lies before or behind the layers, over the mean stage's.
        send_bytes: What a stage sends to the next.
        send_us: How long that takes between the stages that are farthest apart.
        once: Part of the trace's GPU time that is no pass's: the optimizer, clipping.
        put_off: Part of the backward passes that is put off where a stage would wait: weights' gradients; None by 1F1B.
        gather_us: How long the mean stage waits for its parameters in a step, where replicas share them out.
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
    def growth(self) -> float:
        """What a replica of the job works through in a step, over what it does in the trace."""
        return self.micro_batches / self.passes

    @property
    def passed(self) -> float:
        """What a stage does in the passes of a step, over what a rank of the trace does in them."""
        return self.growth / self.stages

    @property
    def work(self) -> float:
        """What a stage computes in a step, over what a rank of the trace does."""
        return (1 - self.once) * self.passed + self.once / self.stages

    @property
    def in_flight(self) -> float:
        """Passes whose activations the first stage holds at most, over one pass of the whole model."""
        warmup = 1.0 if self.chunks == 1 else 1 + (self.stages - 1) / (self.stages * self.chunks)
        return min(warmup, self.micro_batches / self.stages)

    def __str__(self) -> str:
        """Such as ``4 stages of 8 layers, 16 micro-batches by 1F1B``."""
        by = "1F1B" if self.chunks == 1 else f"interleaved 1F1B of {self.chunks} chunks a stage"
        if self.put_off is not None:
            by = f"ZB-H1, weight gradients ({100 * self.put_off:.0f} % of the backward passes) deferred"
        each = -(-self.layers // self.stages)
        upto = "up to " if self.layers % self.stages else ""
        layers = "layer" if each == 1 else "layers"
        return f"{self.stages} stages of {upto}{each} {layers}, {self.micro_batches} micro-batches by {by}"


@dataclass(frozen=True, slots=True)
class Parts:
    """What one step of one stage is made of, in microseconds; of a pass the step's mean one.

    Attributes:
        forward: Forward pass of each layer, with what lies before the first and behind the last one.
        backward: The same of the backward pass, in the order of the forward one.
        weights: The part of ``backward`` that is weights' gradients.
        tail: From the last backward pass to the end of the step: gradients still on their way, the optimizer.
    """

    forward: Floats
    backward: Floats
    weights: Floats
    tail: float

    def whole(self, passes: int) -> float:
        """The step, of so many passes."""
        return float(passes * (self.forward.sum() + self.backward.sum()) + self.tail)


def pipelined(
    run: Run, timelines: Sequence[Timeline], layout: Layout, cluster: Cluster
) -> tuple[Pipeline, tuple[Floats, ...]]:
    """The pipeline, and by which factors the steps of some timelines get longer, those of the trace in order.

    Each step is scheduled by itself, with its own parts.

    Args:
        run: The measured run, of one stage.
        timelines: Its replays with the target's times: the prediction, and its interval's low and high end.
        layout: On the target.
        cluster: What joins the stages.

    Raises:
        LayoutError: The layers can't be told, or not be shared out like that.
    """
    layers = recognise_layers(run)
    micro_batches = layout.micro_batches or layers.per_step * layout.pp
    _check(layout, micro_batches)
    send_bytes = activation_bytes(run, layers) * layout.batch
    sends = send_times_us(send_bytes, layout, cluster)
    shares = _tail_shares(run, layout.pp)
    parts = [parts_of(run, layers, timeline) for timeline in timelines]
    gathers = gathers_us(run, layers, layout, cluster) if layout.shards > 1 else (None,) * len(parts)
    tasks = tasks_of(layout.pp, layout.chunks, micro_batches, layout.zero_bubble)
    found = [
        {step: _step_us(part, send, share, gather, layout, micro_batches, tasks) for step, part in of_step.items()}
        for of_step, send, share, gather in zip(parts, sends, shares, gathers, strict=True)
    ]
    if layout.zero_bubble and not any(part.weights.any() for part in parts[0].values()):
        raise LayoutError(
            "the trace doesn't tell which GEMMs compute weight gradients: record with record_shapes=True."
        )
    step_us, bubble_us, slowest, gather_us = np.array(list(found[0].values())).T
    pipeline = Pipeline(
        stages=layout.pp,
        chunks=layout.chunks,
        micro_batches=micro_batches,
        passes=layers.per_step,
        layers=layers.count,
        bubble=float(np.median(bubble_us / step_us)),
        slowest=float(np.median(slowest)),
        send_bytes=send_bytes,
        send_us=float(sends[0].max()),
        once=_once(run, layers, timelines[0]),
        put_off=_put_off(parts[0].values()) if layout.zero_bubble else None,
        gather_us=float(np.median(gather_us)),
    )
    bracket = (1.0, 1 - LEFT_OUT, 1 + LEFT_OUT)
    of_steps = (
        {step: other * after[step][0] / part.whole(layers.per_step) for step, part in before.items()}
        for other, after, before in zip(bracket, found, parts, strict=True)
    )
    return pipeline, tuple(_in_order(run, factors) for factors in of_steps)


def _put_off(parts: Iterable[Parts]) -> float:
    """Part of the backward passes that is weights' gradients, in the median step."""
    return float(np.median([part.weights.sum() / part.backward.sum() for part in parts]))


def _in_order(run: Run, factors: Mapping[int, float]) -> Floats:
    """A factor for each step of the trace; where a step's passes tell none, the median one."""
    usual = float(np.median(list(factors.values())))
    return np.array([factors.get(step, usual) for step in run.meter.numbers])


def _check(layout: Layout, micro_batches: int) -> None:
    if layout.chunks > 1 and micro_batches % layout.pp:
        raise LayoutError(
            f"{micro_batches} micro-batches can't be interleaved over {layout.pp} stages:",
            "take a multiple of the stages, or --pp-schedule 1f1b.",
        )
    if layout.pp * layout.chunks * micro_batches > MOST_PASSES:
        raise LayoutError(f"{micro_batches} micro-batches over {layout.pp} stages are too many to be scheduled.")


def parts_of(run: Run, layers: Layers, timeline: Timeline) -> dict[int, Parts]:
    """The parts of each step that counts: how much later each part's last kernel ends than that of the part before.

    So whatever holds up a layer, be it the GPU, the host or a collective, counts to it.

    Args:
        run: The measured run.
        layers: Its layers.
        timeline: A replay.
    """
    ended = pl.Series(timeline.activity_end_ns).gather(layers.kernels["row"])
    done = layers.kernels.select(done=ended.cum_max()) if layers.kernels["rank"].n_unique() == 1 else (
        layers.kernels.with_columns(end=ended).select(done=pl.col("end").cum_max().over("rank"))
    )  # fmt: skip
    done_ns = done["done"].to_numpy()
    begin, turn, end = layers.passes.T
    step_us, of_pass = _steps(run, layers, timeline)
    start_ns = np.where(layers.first, of_pass["start_ns"].to_numpy(), done_ns[begin - 1])[:, None]
    before_layers = np.where(layers.forward[0] > 0, done_ns[begin + layers.forward[0] - 1][:, None], start_ns)
    forward_ns = done_ns[begin[:, None] + layers.forward[1:] - 1]
    backward_ns = done_ns[turn[:, None] + layers.backward - 1]
    marks = [start_ns, before_layers, forward_ns, done_ns[turn - 1][:, None], backward_ns, done_ns[end - 1][:, None]]
    spans_us = np.diff(np.concatenate(marks, axis=1), axis=1) / 1e3
    sums = _of_weights(run, layers, timeline)
    number, steady = (of_pass[name].to_numpy() for name in ("step", "steady"))
    return {
        step: _parts(spans_us[mine].mean(axis=0), sums[mine].sum(axis=0), step_us[step], layers)
        for step in np.unique(number[steady]).tolist()
        for mine in [number == step]
    }


def _parts(spans_us: Floats, sums: Floats, step_us: float, layers: Layers) -> Parts:
    """The parts of a step.

    Args:
        spans_us: Of its mean pass, forward and backward.
        sums: Of its backward passes, by layer, as :func:`_of_weights` gives them.
        step_us: How long it takes.
        layers: The layers.
    """
    ahead, back = spans_us[: layers.count + 2], spans_us[layers.count + 2 :][::-1]
    every, weights = sums.T
    part = np.divide(weights, every, out=np.zeros_like(every), where=every > 0)[::-1]
    tail = step_us - layers.per_step * spans_us.sum()
    return Parts(ahead, back, back * part, max(float(tail), 0.0))


def _of_weights(run: Run, layers: Layers, timeline: Timeline) -> Floats:
    """Of each pass and layer of it, backward, time of all kernels and of those that work out weights' gradients."""
    ran_ns = pl.DataFrame({"ran": timeline.activity_end_ns - timeline.activity_start_ns})["ran"]
    own = pl.DataFrame({"all": ran_ns, "weights": ran_ns * weight_gradients(run.kernels, run.trace.ops)})
    sums = np.vstack([np.zeros(2), own[layers.kernels["row"]].to_numpy().cumsum(axis=0)])
    _, turn, end = layers.passes.T
    edges = np.concatenate([turn[:, None], turn[:, None] + layers.backward, end[:, None]], axis=1)
    of_pass: Floats = np.diff(sums[edges], axis=1)
    return of_pass


def _steps(run: Run, layers: Layers, timeline: Timeline) -> tuple[dict[int, float], pl.DataFrame]:
    """Microseconds of each step that counts, of several ranks the mean; and of each pass its step.

    That is ``step``, when it starts, and whether it is not the trace's first.
    """
    table = run.each_step(timeline).drop_nulls("time_ns")
    table = table.with_columns(start_ns=pl.col("end_ns") - pl.col("time_ns"))
    of_pass = layers.kernels.select("rank", "step")[layers.passes[:, 0]].join(
        table, on=["rank", "step"], how="left", maintain_order="left"
    )
    of_pass = of_pass.select("step", "start_ns", pl.col("steady").fill_null(False))
    each = table.filter("steady").group_by("step").agg(pl.col("time_ns").mean() / 1e3)
    return dict(each.iter_rows()), of_pass


def _once(run: Run, layers: Layers, timeline: Timeline) -> float:
    """Part of the chosen steps' computing that is done once a step."""
    ran_ns = pl.Series("ran_ns", timeline.activity_end_ns - timeline.activity_start_ns)
    computes = run.in_steps & (run.kernels["family"] != "collective")
    return 1 - int(ran_ns.gather(layers.kernels["row"]).sum()) / int(ran_ns.filter(computes).sum())


def _step_us(
    part: Parts,
    sends: Floats,
    tail_share: float,
    gathers: Gathers | None,
    layout: Layout,
    micro_batches: int,
    tasks: Ints,
) -> tuple[float, float, float, float]:
    """How long a step takes, and of the mean stage, how long it waits for others, and for parameters.

    Third is the most that a stage works, over the mean.
    """
    begin = _begins(part, layout)
    forward, backward, weights = (
        np.add.reduceat(times, begin) for times in (part.forward, part.backward, part.weights)
    )
    late = weights if layout.zero_bubble else None
    first = gathers.longer_us(part.forward, begin) if gathers else np.zeros_like(forward)
    done = float(ends(forward, backward, sends, layout.pp, micro_batches, late, first, tasks).max())
    busy = micro_batches * (forward + backward).reshape(layout.chunks, layout.pp).sum(axis=0)
    gather_us = float(first.sum()) / layout.pp
    bubble_us = done - float(busy.mean()) - gather_us
    return done + part.tail * tail_share, bubble_us, float(busy.max() / busy.mean()), gather_us


def _begins(part: Parts, layout: Layout) -> Ints:
    """Where in the parts of a pass each chunk begins; what isn't a layer lies in the first and in the last chunk.

    All get as many layers as the others; where that leaves some over, chunks with little else to do take one more.
    """
    chunks, layers = layout.pp * layout.chunks, part.forward.size - 2
    besides = np.zeros(chunks)
    besides[0] = part.forward[0] + part.backward[0]
    besides[-1] += part.forward[-1] + part.backward[-1]
    least, left = divmod(layers, chunks)
    each = np.full(chunks, least)
    each[np.argsort(besides, kind="stable")[:left]] += 1
    if not (each + besides).all():
        over = f"{layout.pp} stages" + (f" of {layout.chunks} chunks" if layout.chunks > 1 else "")
        raise LayoutError(f"{layers} layers can't be split over {over}.")
    return np.concatenate([[0], 1 + each[:-1].cumsum()])


def _tail_shares(run: Run, stages: int) -> tuple[float, float, float]:
    """Part of what follows the passes (gradients, optimizer) that is left to a stage: likely, least and most.

    It goes with the stage's parameters. The largest one is likely the embedding, whole on the stage that ends last;
    the next largest may be the head. Where no gradients with shapes were recorded, up to all of it.
    """
    found = gradients(run)
    if found is None:
        return 1 / stages, 1 / stages, 1.0
    sizes = np.sort([gradient.numel for gradient in found])[::-1]
    whole = np.cumsum(sizes[:2]) / sizes.sum()
    return float(whole[0] + (1 - whole[0]) / stages), 1 / stages, float(whole[-1] + (1 - whole[-1]) / stages)
