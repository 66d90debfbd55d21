"""Judge whether a job fits into another GPU's memory, from bounds on its needs and from what was recorded."""

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from predictors import Gpu
from tracekit.analysis.embedding_tables import compute_table_bytes
from tracekit.arrays import Bools, Floats, find_matches
from tracekit.comm.cluster import USABLE_MEMORY_FRACTION
from tracekit.kept import keep_on_first
from tracekit.messages import Message, Value
from tracekit.messages import predictions as told
from tracekit.models.captured import CaptureFacts
from tracekit.parallelism.compressions import parse_compression
from tracekit.parallelism.fsdp import FsdpUnits, find_fsdp_units
from tracekit.parallelism.gradients import EMBEDDING_TABLE_OPS, find_gradients, is_in_first_step
from tracekit.parallelism.layers import find_repeated_layers
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest
from tracekit.parallelism.process_groups import infer_layout_if_needed
from tracekit.parallelism.sharded_tables import TableSharding
from tracekit.prediction.stage_memory import bound_activation_parts, compute_stage_needs
from tracekit.program import Program
from tracekit.workload.ops.memory_traffic import INDEX_BYTES
from tracekit.workload.signature import ITEM_BYTES
from tracekit.workload.step_kinds import compute_time_share

ADAM_STATE_BYTES = 8
"""Bytes of optimizer state per parameter: two fp32 moments."""

MAX_STATE_BYTES = 12
"""Bytes of optimizer state per parameter with an fp32 master copy."""

MIN_KNOWN_WORK_PCT = 95.0
"""Percent of the forward pass's time with known work that an upper bound on its activations needs."""
ADAM_PATTERN = "(?i)adam"


@dataclass(frozen=True, slots=True)
class MemoryFit:
    """The GPU memory that a rank needs.

    Attributes:
        min_bytes: Parameters, gradients and optimizer state; None where unknown.
        max_bytes: The same and everything that the forward pass writes; None where unknown.
        fits: Whether it fits; None if these bounds don't decide.
        reason: Why, one clause.
    """

    min_bytes: float | None
    max_bytes: float | None
    fits: bool | None
    reason: Message


@dataclass(frozen=True, slots=True)
class ModelState:
    """Parameters, gradients and optimizer state of a rank.

    Attributes:
        parameter_gradient_bytes: Parameters and gradients.
        min_optimizer_bytes: Least optimizer state.
        max_optimizer_bytes: Largest optimizer state.
        largest_two_fraction: Fraction of the parameters in the two largest ones, likely the embedding and the head.
        frozen_bytes: Parameters without gradients, where others are trained beside them.
    """

    parameter_gradient_bytes: float
    min_optimizer_bytes: float
    max_optimizer_bytes: float
    largest_two_fraction: float
    frozen_bytes: float = 0.0


@dataclass(frozen=True, slots=True)
class MemoryNeeds:
    """The memory that a rank of the program needs, inferred from its ops.

    Attributes:
        model_state: Parameters, gradients and optimizer state; None where unknown.
        max_forward_bytes: Upper bound on what the forward pass writes; None where unknown.
        bucket_bytes: DDP's buckets in the layout of the trace.
        table_bytes: Embedding tables with their optimizers' states; 0 where there are none.
    """

    model_state: ModelState | None
    max_forward_bytes: float | None
    bucket_bytes: float
    table_bytes: float = 0.0


@keep_on_first
def estimate_memory_needs(program: Program) -> MemoryNeeds:
    """Estimate the memory needs of a program from its ops."""
    tables = program.trace.has_named("ops", EMBEDDING_TABLE_OPS)
    state, captured = None if tables else _compute_model_state(program), program.trace.capture_facts
    if captured is None or not captured.peak_bytes:
        held = compute_table_bytes(program) if tables else 0.0
        return MemoryNeeds(state, _compute_forward_bytes(program), _compute_traced_bucket_bytes(program, state), held)
    if not captured.trains:
        state = ModelState(captured.parameter_bytes, 0, 0, 0)
    written = captured.peak_bytes - captured.held_bytes
    if captured.trains and captured.peaks:
        ends = state.largest_two_fraction if state else 0.0
        held = 2 * captured.parameter_bytes - captured.frozen_bytes
        state = ModelState(held, captured.state_bytes, captured.state_bytes, ends, captured.frozen_bytes)
        written = max(activations for _, activations, _ in captured.peaks)
    return MemoryNeeds(state, written, _compute_traced_bucket_bytes(program, state))


def judge_memory_fit(
    program: Program,
    source: Gpu | None,
    gpu: Gpu,
    layouts: tuple[Layout, Layout] | None = None,
    known: MemoryNeeds | None = None,
    in_flight: float = 1.0,
    held_fraction: float = 1.0,
) -> MemoryFit:
    """Judge whether a rank of the job fits.

    Args:
        program: The program.
        source: The trace's GPU; None where it is unknown.
        gpu: The target.
        layouts: Layouts of the trace and on the target; None where the layout stays.
        known: What :func:`estimate_memory_needs` returns for the program, where several GPUs are judged.
        in_flight: Largest number of passes whose activations a rank holds, relative to one pass of the trace.
        held_fraction: Fraction of the parameters that a rank holds where replicas split experts.
    """
    old, new = layouts or (Layout(), Layout())
    held_part, part = _compute_held_fractions(old, new)
    held_part, part = held_fraction * held_part, part if new.zero else held_fraction * part
    # With fewer expert-parallel ranks each holds more experts or tables, which may be all that it holds.
    crowded = max(old.ep / new.ep, 1.0)
    in_flight *= new.batch / old.batch * old.cp / new.cp
    known = known or estimate_memory_needs(program)
    state, written = known.model_state, known.max_forward_bytes
    buckets = (_compute_bucket_bytes(state, layouts[1]) if layouts else known.bucket_bytes) * held_part
    lacking = buckets if layouts and layouts[0].data_ranks == 1 else 0.0
    room = USABLE_MEMORY_FRACTION * gpu.memory_bytes
    captured = program.trace.capture_facts
    is_known = captured is not None and crowded == held_fraction == 1
    if is_known and (exact := _judge_captured_memory(program, (old, new), in_flight, lacking, room)):
        return exact
    peaks = [rank.peak_memory_bytes for rank in program.ranks if rank.peak_memory_bytes]
    if held_part == part == crowded == 1 and peaks:
        allocated, reserved = (max(sizes) for sizes in zip(*peaks, strict=True))
        if in_flight == 1:
            return _judge_recorded_memory(allocated, reserved, lacking, room)
        return _judge_scaled_memory(state, allocated, reserved + lacking, in_flight, room)
    least = _compute_least_bytes(known, held_part, part, crowded)
    least = _raise_to_recorded(least, program) if held_part == part == crowded == 1 and in_flight >= 1 else least
    staged = layouts is not None and layouts[1].pp > layouts[0].pp
    whole = state.largest_two_fraction if state and staged else 0.0
    most = None
    if state and written is not None:
        held = state.parameter_gradient_bytes * _scale_except(
            whole, held_part
        ) + state.max_optimizer_bytes * _scale_except(whole, part)
        most = (held + buckets) * crowded + written * in_flight
    own = None if captured else source.memory_bytes if source else _get_recorded_bytes(program)
    if least is not None and least > room:
        return MemoryFit(least, most, False, told.MEMORY_LOWER_BOUND(min_bytes=least, usable_bytes=room))
    if own is not None and gpu.memory_bytes >= own and crowded * held_part * max(in_flight, 1.0) <= 1 and not lacking:
        return MemoryFit(least, most, True, told.MEMORY_AS_TRACED(source_bytes=own))
    if most is not None and most <= room:
        return MemoryFit(least, most, True, told.MEMORY_UPPER_BOUND(max_bytes=most, usable_bytes=room))
    if least is None:
        return MemoryFit(least, most, None, told.MEMORY_UNKNOWN(usable_bytes=room))
    if most is None:
        return MemoryFit(least, most, None, told.MEMORY_BOUND_BELOW_ONLY(min_bytes=least, usable_bytes=room))
    return MemoryFit(least, most, None, told.MEMORY_BOUNDS(min_bytes=least, max_bytes=most, usable_bytes=room))


def _compute_least_bytes(known: MemoryNeeds, held_part: float, part: float, crowded: float) -> float | None:
    """Compute what a rank holds at least; of embedding tables only where no rank holds more or fewer of them."""
    state = known.model_state
    if state:
        return state.parameter_gradient_bytes * held_part + state.min_optimizer_bytes * part
    return known.table_bytes or None if held_part == part == crowded else None


def _raise_to_recorded(least: float | None, program: Program) -> float | None:
    """Raise what a rank holds at least to the recorded peak of its tensors."""
    recorded = [rank.peak_allocated_bytes for rank in program.ranks if rank.peak_allocated_bytes]
    return max((one for one in (least, *recorded) if one is not None), default=None)


def _judge_recorded_memory(allocated: float, reserved: float, buckets: float, room: float) -> MemoryFit:
    """Judge by the recorded peaks: allocated tensors are needed, and no more than the reserved memory."""
    most = reserved + buckets
    fits = _compare_bounds(allocated, most, room)
    reason = told.MEMORY_RECORDED(allocated_bytes=allocated, reserved_bytes=reserved, usable_bytes=room)
    if buckets:
        reason = told.MEMORY_RECORDED_PLUS_BUCKETS(**reason.values, buckets_bytes=buckets)
    return MemoryFit(allocated, most, fits, reason)


def _judge_scaled_memory(
    state: ModelState | None, allocated: float, reserved: float, in_flight: float, room: float
) -> MemoryFit:
    """Judge by the recorded peaks at another batch, with which all grows but the model's state.

    ::

        recorded     state | activations |            twice     state | activations | activations |

    Args:
        state: Parameters, gradients and optimizer state; None where unknown.
        allocated: Peak of the tensors.
        reserved: Peak of the reserved memory, with what comes on top.
        in_flight: Activations, relative to the recorded ones.
        room: Usable memory.
    """
    held = [0.0, allocated]
    if state:
        optimizer = (state.min_optimizer_bytes, state.max_optimizer_bytes)
        held = [min(state.parameter_gradient_bytes + one, allocated) for one in optimizer]
    grown = sorted((in_flight - 1) * (allocated - one) for one in held)
    least, most = allocated + grown[0], reserved + grown[-1]
    fits = _compare_bounds(least, most, room)
    return MemoryFit(least, most, fits, told.MEMORY_BOUNDS(min_bytes=least, max_bytes=most, usable_bytes=room))


def _judge_captured_memory(
    program: Program, layouts: tuple[Layout, Layout], in_flight: float, buckets: float, room: float
) -> MemoryFit | None:
    """Judge by what the tensors of a captured step take; None where that isn't known in the layout."""
    facts = program.trace.capture_facts
    if facts and facts.peak_bytes and layouts[1].tables:
        of_dense = max(buckets - layouts[1].tables.weight_bytes, 0.0)
        return _judge_scaled_capture(_shard_held_tables(facts, layouts[1].tables), in_flight, of_dense, room)
    if facts and facts.peaks:
        return _judge_split_memory(program, facts, layouts, in_flight, buckets, room)
    if facts and facts.peak_bytes and _compute_held_fractions(*layouts) == (1, 1):
        return _judge_scaled_capture(facts, in_flight, buckets, room)
    return None


def _shard_held_tables(facts: CaptureFacts, tables: TableSharding) -> CaptureFacts:
    """Return the facts of the rank that holds most of sharded tables, in place of all of them."""
    held = max(facts.held_bytes + round(tables.held_bytes - tables.whole_bytes), 0)
    return replace(facts, held_bytes=held, peak_bytes=held + facts.peak_bytes - facts.held_bytes)


def _judge_scaled_capture(facts: CaptureFacts, in_flight: float, buckets: float, room: float) -> MemoryFit:
    """Judge by the peak of a captured step; what it makes grows with its batch, gradients don't.

    ::

        held | gradients | activations          held: parameters, optimizer's states, inputs
             |<-------- made --------->|
    """
    made = facts.peak_bytes - facts.held_bytes
    gradients = min(facts.parameter_bytes, made) if facts.trains else 0
    ends = made * in_flight, gradients + (made - gradients) * in_flight
    least, most = (facts.held_bytes + buckets + end for end in (min(ends), max(ends)))
    return _judge_captured_bounds(least, most, room)


def _judge_split_memory(
    program: Program,
    facts: CaptureFacts,
    layouts: tuple[Layout, Layout],
    in_flight: float,
    buckets: float,
    room: float,
) -> MemoryFit | None:
    """Judge by the lifetimes of a captured step's tensors, in another layout or at another batch.

    FSDP shards parameters, gradients and optimizer state, and gathers units on top. Tensor parallelism splits them,
    too.

    Returns:
        None where the FSDP units are unknown, or what layers hold is.
    """
    old, new = layouts
    if old.pp != new.pp:
        return _judge_stages(program, facts, layouts, room)
    split = old.tp / new.tp
    shard, update_part = (split * part for part in _list_parts(old, new))
    gradient_part = update_part if new.zero > 1 else shard
    gradients, activations, updates = np.array(facts.peaks, np.float64).T
    gathered = np.zeros((2, gradients.size))
    if new.sharded and not old.sharded:
        units = _find_units(program)
        if units is None:
            return None
        gathered[:, :-1] = _bound_gathered_bytes(units, split, gradients[:-1] > 0)
    other = facts.held_bytes - facts.parameter_bytes - facts.state_bytes
    fixed = facts.parameter_bytes * shard + facts.state_bytes * update_part + other + buckets
    least, most = (
        fixed
        + float(
            (gradients * gradient_part + updates * update_part + activations * part * in_flight + units_bytes).max()
        )
        for part, units_bytes in zip(bound_activation_parts(program, facts, old, new), gathered, strict=True)
    )
    return _judge_captured_bounds(least, most, room)


def _judge_stages(
    program: Program, facts: CaptureFacts, layouts: tuple[Layout, Layout], room: float
) -> MemoryFit | None:
    """Judge by what the stages of a captured program hold; None where what its layers hold isn't known.

    Raises:
        LayoutError: There are fewer layers than stages.
    """
    old, new = layouts
    if facts.layers is None or old.pp > 1:
        return None
    parts = bound_activation_parts(program, facts, old, new)
    least, most = (
        compute_stage_needs(facts, facts.layers, layouts, part, most=is_most)
        for part, is_most in zip(parts, (False, True), strict=True)
    )
    stage = most.fullest
    ends = float(least.peak_bytes.max()), float(most.peak_bytes[stage])
    values: dict[str, Value] = {
        "stage": stage,
        "stages": new.pp,
        "max_bytes": ends[1],
        "state_bytes": float(most.state_bytes[stage]),
        "passes": int(most.passes[stage]),
        "leanest_bytes": float(most.peak_bytes.min()),
        "usable_bytes": room,
    }
    is_exact = ends[0] == ends[1]
    reason = told.MEMORY_STAGES(**values) if is_exact else told.MEMORY_STAGES_SCALED(**values, min_bytes=ends[0])
    return MemoryFit(*ends, _compare_bounds(*ends, room), reason)


def _judge_captured_bounds(least: float, most: float, room: float) -> MemoryFit:
    fits = _compare_bounds(least, most, room)
    if least == most:
        return MemoryFit(least, most, fits, told.MEMORY_CAPTURED(peak_bytes=most, usable_bytes=room))
    return MemoryFit(least, most, fits, told.MEMORY_CAPTURED_SCALED(min_bytes=least, max_bytes=most, usable_bytes=room))


@keep_on_first
def _find_units(program: Program) -> FsdpUnits | None:
    try:
        return find_fsdp_units(program, find_repeated_layers(program))
    except LayoutError:
        return None


GATHERED_LAYERS, GRADIENT_LAYERS = (1.0, 2.0), (1.0, 3.0)
"""Fewest and most layers whose parameters, and in the backward pass gradients, FSDP holds at once.

Gathered are a layer and the next; gradients are its own, and what is reduce-scattered, of two layers (fully_shard's
prefetch and ``reduce_scatter_state``).
"""


def _bound_gathered_bytes(units: FsdpUnits, split: float, is_backward: Bools) -> Floats:
    """Bound what FSDP gathers at moments; the rest's parameters, and then its gradients, stay whole to the end."""
    layer, rest = split * (units.gathered_layer_bytes + units.expert_bytes), split * units.gathered_rest_bytes
    gradients = split * np.array([units.layer_bytes + units.expert_bytes, units.rest_bytes])
    forward = rest + layer * np.array(GATHERED_LAYERS)
    backward = forward + gradients[0] * np.array(GRADIENT_LAYERS) + gradients[1] * np.array([0.0, 1.0])
    bounds: Floats = np.where(is_backward, backward[:, None], forward[:, None])
    return bounds


def _compare_bounds(least: float, most: float, room: float) -> bool | None:
    """Return whether what lies between two bounds fits; ``None`` where that is open."""
    return True if most <= room else False if least > room else None


def _compute_traced_bucket_bytes(program: Program, state: ModelState | None) -> float:
    """Compute the size of DDP's buckets in the trace; a job of unknown layout counts as replicas."""
    if state is None:
        return 0.0
    return _compute_bucket_bytes(
        state, infer_layout_if_needed(program, LayoutRequest()) or Layout(dp=program.trace.world_size)
    )


def _compute_bucket_bytes(state: ModelState | None, job: Layout) -> float:
    """Compute the size of DDP's buckets: a copy of each gradient by default, none where the optimizer is sharded.

    Replicas that average their parameters flatten these, which takes as much. What compression holds comes on top.
    """
    if state is None or job.data_ranks == 1 or job.optimizer_ranks > 1:
        return 0.0
    how = parse_compression(job.gradient_compression) if job.gradient_compression else None
    compressed = how.costs.held_fraction if how else 0.0
    return (1 + compressed) * (state.parameter_gradient_bytes - state.frozen_bytes) / 2


def _get_recorded_bytes(program: Program) -> int | None:
    """Return the memory of the trace's GPU as the trace describes it."""
    return program.trace.device.memory_bytes or None if program.trace.device else None


def _compute_held_fractions(old: Layout, new: Layout) -> tuple[float, float]:
    """Compute the fractions of parameters and gradients, and of optimizer state, that a rank holds in another layout.

    Both are relative to the trace. FSDP pipeline stages hold whole parameters from their first micro-batch to their
    last.
    """
    layers = old.tp * old.pp / (new.tp * new.pp)
    shared, updated = (layers * part for part in _list_parts(old, new))
    return (layers if new.pp > old.pp else shared), updated


def _list_parts(old: Layout, new: Layout) -> tuple[float, float]:
    """List the parts of parameters, and of optimizer work and states, that a rank holds, relative to the trace."""
    return old.fsdp_ranks / new.fsdp_ranks, old.optimizer_ranks / new.optimizer_ranks


def _scale_except(whole: float, part: float) -> float:
    """Scale all but a fraction that stays whole."""
    return whole + (1 - whole) * part


def _compute_model_state(program: Program) -> ModelState | None:
    found = find_gradients(program) or []
    elements = sum(gradient.numel for gradient in found)
    if not elements:
        return None
    stored = sum(gradient.compute_bytes(4) for gradient in found)
    ends = sum(sorted(gradient.numel for gradient in found)[-2:]) / elements
    noted = any(program.trace.has_named(table, ADAM_PATTERN) for table in ("ops", "annotations"))
    adam = noted or find_matches(program.kernels["name"], ADAM_PATTERN).size > 0
    return ModelState(2 * stored, (ADAM_STATE_BYTES if adam else 0) * elements, MAX_STATE_BYTES * elements, ends)


def _compute_forward_bytes(program: Program) -> float | None:
    """Compute the bytes that a step's first forward pass writes at most; None where too many are unknown."""
    autograd = program.trace.ops[program.trace.find_named("ops", "autograd::")]
    backward = autograd.filter(is_in_first_step(program))["ts_ns"].min() if autograd.height else None
    if backward is None:
        return None
    kernels = program.kernels.filter(rank=program.trace.rank or 0)
    launched = kernels.with_columns(launch_ns=program.trace.calls["ts_ns"].gather(kernels["call"]))
    step = program.chosen_steps["step"][0]
    forward = launched.filter(
        (pl.col("step") == step) & (pl.col("launch_ns") < backward) & (pl.col("family") != "collective")
    )
    # Pooling writes one element and its index per row; other ops write rows as long as those that they read.
    pools = (pl.col("family") == "reduction") & pl.col("indexed").fill_null(False)
    item = pl.col("dtype").replace_strict(ITEM_BYTES, default=4, return_dtype=pl.Int64)
    product = pl.col("m") * pl.col("n") * pl.col("batch").fill_null(1) * item
    attended = pl.col("batch").fill_null(1) * pl.col("heads") * pl.col("q_len") * pl.col("head_dim") * item
    whole = pl.col("rows") * pl.when(pools).then(item + INDEX_BYTES).otherwise(pl.col("cols") * item)
    moved = pl.min_horizontal("bytes", whole)
    written = forward.select("dur_ns", written=pl.coalesce(product, attended, moved) * pl.col("share"))
    known = compute_time_share(written, "dur_ns", pl.col("written").is_not_null())
    return float(written["written"].sum()) if known >= MIN_KNOWN_WORK_PCT else None
