"""Whether a job fits into another GPU's memory: what it needs at least and at most, and where it fitted."""

from dataclasses import dataclass
from math import gcd

import polars as pl

from predictors import Gpu
from tracekit.prediction.layout import Change, Layout, layout_of
from tracekit.replay.run import Run
from tracekit.workload.ops.vector import INDEX_BYTES
from tracekit.workload.parameters import GRADIENT
from tracekit.workload.shares import share
from tracekit.workload.signature import ITEM_BYTES, Signature, Tensor

USABLE = 0.92
"""Of a GPU's memory: the driver's context, NCCL's buffers and fragmentation take the rest (a judgement)."""

ADAM_BYTES = 8
"""Of state for each parameter, two fp32 moments."""

MOST_STATE_BYTES = 12
"""The same with a master copy in fp32."""

WORKED = 95.0
"""Percent of the forward pass whose work must be known for an upper bound on what it leaves in memory."""

TABLES = r"(?i)embedding_bag|embeddingbag|fbgemm"
"""Ops on tables whose gradients are not accumulated as dense tensors."""

NODE = "autograd::engine::evaluate_function: "

GIB = 2**30


@dataclass(frozen=True, slots=True)
class Memory:
    """What a rank needs of its GPU's memory.

    Attributes:
        least_bytes: Parameters, gradients and the optimizer's state; None where the trace doesn't tell.
        most_bytes: Those and everything the forward pass writes; None where the trace doesn't tell.
        fits: Whether it fits; None if these bounds don't tell.
        reason: Why, one clause.
    """

    least_bytes: float | None
    most_bytes: float | None
    fits: bool | None
    reason: str


@dataclass(frozen=True, slots=True)
class State:
    """Parameters, gradients and the optimizer's state of a rank.

    Attributes:
        held_bytes: Parameters and gradients.
        least_bytes: The optimizer's state at least.
        most_bytes: The same at most.
        at_ends: Part of the parameters that is in the two largest, likely the embedding and the head.
    """

    held_bytes: float
    least_bytes: float
    most_bytes: float
    at_ends: float


@dataclass(frozen=True, slots=True)
class Needs:
    """What a rank of the measured run needs besides what the recorder saw.

    Attributes:
        state: Parameters, gradients and the optimizer's state; None where the trace doesn't tell.
        written: Bytes that the forward pass writes at most; None where the trace doesn't tell.
    """

    state: State | None
    written: float | None


def needs(run: Run) -> Needs:
    """What the ops of a run tell of its memory."""
    tables = run.trace.ops["name"].str.contains(TABLES).any()
    return Needs(None if tables else _state(run), _forward_bytes(run))


def judge(
    run: Run,
    gpu: Gpu,
    layouts: tuple[Layout, Layout] | None = None,
    known: Needs | None = None,
    in_flight: float = 1.0,
    kept: float = 1.0,
) -> Memory:
    """Whether a rank of the job fits.

    Args:
        run: The measured run.
        gpu: The target.
        layouts: Of the trace, and on the target; None where it stays.
        known: What :func:`needs` gives of the run, where several GPUs are judged.
        in_flight: Passes whose activations a rank holds at most, over one pass of the trace.
        kept: Part of the parameters that a rank keeps where replicas share experts.
    """
    held_part, part = (kept * one for one in (_parts(*layouts) if layouts else (1.0, 1.0)))
    batch = layouts[1].batch / layouts[0].batch if layouts else 1.0
    # Of experts and tables, which may be all that a rank holds, fewer ranks share out as much.
    crowded = max(layouts[0].ep / layouts[1].ep, 1.0) if layouts else 1.0
    in_flight *= batch
    known = known or needs(run)
    state, written = known.state, known.written
    buckets = _bucket_bytes(run, state, layouts) * held_part
    lacking = buckets if layouts and layouts[0].dp == 1 else 0.0
    peaks = [rank.peak_memory_bytes for rank in run.ranks if rank.peak_memory_bytes]
    if held_part == part == batch == crowded == 1 and peaks:
        allocated, reserved = (max(sizes) for sizes in zip(*peaks, strict=True))
        return _recorded(allocated, reserved, lacking, USABLE * gpu.memory_bytes)
    least = state.held_bytes * held_part + state.least_bytes * part if state else None
    staged = layouts is not None and layouts[1].pp > layouts[0].pp
    whole = state.at_ends if state and staged else 0.0
    most = None
    if state and written is not None:
        held = state.held_bytes * _besides(whole, held_part) + state.most_bytes * _besides(whole, part)
        most = (held + buckets) * crowded + written * in_flight
    room = USABLE * gpu.memory_bytes
    own = _own_bytes(run)
    if least is not None and least > room:
        return Memory(least, most, False, f"it needs at least {least / GIB:.1f} of {room / GIB:.1f} GiB")
    if own is not None and gpu.memory_bytes >= own and crowded * held_part * max(in_flight, 1.0) <= 1 and not lacking:
        return Memory(least, most, True, f"it fitted into the {own / GIB:.0f} GiB of the trace's GPU")
    if most is not None and most <= room:
        return Memory(least, most, True, f"it needs at most {most / GIB:.1f} of {room / GIB:.1f} GiB")
    if least is None:
        return Memory(least, most, None, f"the trace doesn't tell how much of {room / GIB:.1f} GiB it needs")
    upper = f" and at most {most / GIB:.1f}" if most is not None else ", and how much more the trace doesn't tell,"
    return Memory(least, most, None, f"it needs at least {least / GIB:.1f}{upper} of {room / GIB:.1f} GiB")


def _recorded(allocated: float, reserved: float, buckets: float, room: float) -> Memory:
    """By what the recorder saw: tensors need theirs, and the allocator needs no more than it took."""
    most = reserved + buckets
    fits = True if most <= room else False if allocated > room else None
    more = f", and up to {buckets / GIB:.1f} come to it for buckets of gradients" if buckets else ""
    took = f"it took {allocated / GIB:.1f} GiB of tensors, {reserved / GIB:.1f} reserved{more}"
    return Memory(allocated, most, fits, f"{took}; {room / GIB:.1f} are usable")


def _bucket_bytes(run: Run, state: State | None, layouts: tuple[Layout, Layout] | None) -> float:
    """Of the copy of each gradient that DistributedDataParallel has in a bucket, unless it is told otherwise."""
    job = layouts[1] if layouts else layout_of(run, Change())
    replicas, sharded = (job.dp, job.sharded) if job else (run.trace.world_size, False)
    return state.held_bytes / 2 if state and replicas > 1 and not sharded else 0.0


def _own_bytes(run: Run) -> int | None:
    if run.gpu is not None:
        return run.gpu.memory_bytes
    return run.trace.device.memory_bytes or None if run.trace.device else None


def _parts(old: Layout, new: Layout) -> tuple[float, float]:
    """What a rank holds of its parameters and gradients in another layout, and of their state, over what it held.

    Stages that share them out have them whole from their first micro-batch to their last.
    """
    layers = old.tp * old.pp / (new.tp * new.pp)
    shared = layers * old.shards / new.shards
    return (layers if new.pp > old.pp else shared), shared


def _besides(whole: float, part: float) -> float:
    """A part of all but what stays whole."""
    return whole + (1 - whole) * part


def gradients(run: Run) -> list[Tensor] | None:
    """The gradients that one backward pass accumulates, one for each parameter; None where none were recorded.

    Args:
        run: The measured run.
    """
    table = run.trace.ops.filter((pl.col("name") == GRADIENT) & pl.col("input_dims").is_not_null() & _in_step(run))
    described = list(table.sort("ts_ns").select("input_dims", "input_types").iter_rows())
    if not described:
        return None
    one_pass = described[: len(described) // _passes(run, described)]
    return [tensor for dims, types in one_pass for tensor in Signature.parse(GRADIENT, dims, types, None).at(0)]


def _state(run: Run) -> State | None:
    found = gradients(run) or []
    elements = sum(gradient.numel for gradient in found)
    if not elements:
        return None
    stored = sum(gradient.size_bytes(4) for gradient in found)
    ends = sum(sorted(gradient.numel for gradient in found)[-2:]) / elements
    named = (run.trace.ops["name"], run.trace.annotations["name"], run.kernels["name"])
    adam = any(names.str.contains("(?i)adam").any() for names in named)
    return State(2 * stored, (ADAM_BYTES if adam else 0) * elements, MOST_STATE_BYTES * elements, ends)


def _passes(run: Run, rows: list[tuple[str, str]]) -> int:
    """How many backward passes a step holds: as often the same gradients follow, and all other nodes run, too."""
    nodes = run.trace.ops.filter(pl.col("name").str.starts_with(NODE) & _in_step(run))
    most = gcd(len(rows), *nodes.group_by("name").len()["len"])
    counts = (count for count in range(most, 0, -1) if most % count == 0)
    return next(count for count in counts if rows == rows[: len(rows) // count] * count)


def _forward_bytes(run: Run) -> float | None:
    """Bytes that the kernels of the first forward pass of a step write at most; None where too many aren't known."""
    backward = run.trace.ops.filter(pl.col("name").str.contains("autograd::") & _in_step(run))["ts_ns"].min()
    if backward is None:
        return None
    kernels = run.kernels.filter(rank=run.trace.rank or 0) if "rank" in run.kernels.columns else run.kernels
    launched = kernels.with_columns(launch_ns=run.trace.calls["ts_ns"].gather(kernels["call"]))
    step = run.chosen["step"][0]
    forward = launched.filter(
        (pl.col("step") == step) & (pl.col("launch_ns") < backward) & (pl.col("family") != "collective")
    )
    # Pooling writes one element for each row, and where it was; of others a row is as long as it was read.
    pools = (pl.col("family") == "reduction") & pl.col("indexed").fill_null(False)
    item = pl.col("dtype").replace_strict(ITEM_BYTES, default=4, return_dtype=pl.Int64)
    product = pl.col("m") * pl.col("n") * pl.col("batch").fill_null(1) * item
    attended = pl.col("batch").fill_null(1) * pl.col("heads") * pl.col("q_len") * pl.col("head_dim") * item
    whole = pl.col("rows") * pl.when(pools).then(item + INDEX_BYTES).otherwise(pl.col("cols") * item)
    moved = pl.min_horizontal("bytes", whole)
    written = forward.select("dur_ns", written=pl.coalesce(product, attended, moved) * pl.col("share"))
    known = share(written, "dur_ns", pl.col("written").is_not_null())
    return float(written["written"].sum()) if known >= WORKED else None


def _in_step(run: Run) -> pl.Expr:
    step = run.chosen.row(0, named=True)
    return pl.col("ts_ns").is_between(step["start_ns"], step["end_ns"])
