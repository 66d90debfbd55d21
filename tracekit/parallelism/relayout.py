"""Derive a job's collectives and kernels in another layout, as they would have been on the trace's GPU.

Each rank keeps its own batch, unless another is requested: with more replicas the job's batch grows.
"""

import polars as pl

import predictors
from predictors import Gpu
from predictors.kernel_identity import parse_release
from predictors.kernels import TENSOR_FAMILIES
from tracekit.messages import layouts
from tracekit.models.captured import hash_inputs
from tracekit.parallelism.batch_size import scale_batch, set_context_length
from tracekit.parallelism.collective_calls import SIZE_COLUMNS, list_collectives
from tracekit.parallelism.context_parallel import split_tokens
from tracekit.parallelism.ddp_hooks import COMPRESS_OP, DECOMPRESS_OP
from tracekit.parallelism.expert_parallel import compute_expert_parameter_fraction, find_experts, split_experts
from tracekit.parallelism.fsdp import BUFFER_COPY_OP, EXPERT_BUFFER_COPY_OP
from tracekit.parallelism.inserted import WORK_FROM_ASSUMED
from tracekit.parallelism.layout import Layout, LayoutError, adds_expert_parallelism
from tracekit.parallelism.process_groups import infer_group_roles
from tracekit.parallelism.tensor_parallel import split_layers
from tracekit.program import Program
from tracekit.workload.names.library import infer_framework
from tracekit.workload.step_kinds import compute_time_share

WORK_COLUMNS = ("rows", "flops", "bytes")
"""Columns of a memory-bound kernel's work."""


def relayout_collectives(calls: pl.DataFrame, roles: pl.DataFrame, old: Layout, new: Layout) -> pl.DataFrame:
    """Return the collectives of a job in another layout.

    How the bytes of a rank change::

        all-reduce of gradients             x (old tp x pp) / (new tp x pp): a rank has fewer or more layers
        all-gather, reduce-scatter (FSDP)   the same: whole buffers, whatever the number of ranks
        all-gather, reduce-scatter (other)  x new ranks / old ranks: each rank contributes its part
        activations (tp, ep)                x (new batch / new cp) / (old batch / old cp)
        keys and values (cp)                x (new batch / new tp) / (old batch / old tp)
        all-to-all                          as activations: tables or experts are split over more ranks as the batch
        grows

    Args:
        calls: As ``list_collectives`` returns them.
        roles: As ``infer_group_roles`` returns them.
        old: The trace's layout.
        new: Another one.
    """
    if old == new and not roles["put_in"].any():
        return calls
    names = ("dp", "cp", "tp", "pp", "ep", "edp", "near")
    rows = calls.join(roles, on="row", how="left", maintain_order="left")
    own = pl.col("put_in") | (pl.col("ranks") == _map_roles({name: old.get_group_size(name) for name in names}))
    everyone = pl.col("ranks") == old.world_size
    after = rows.with_columns(
        ranks=pl.when(own).then(_map_roles({name: new.get_group_size(name) for name in names}))
        .when(everyone).then(new.world_size).otherwise(pl.col("ranks").clip(upper_bound=new.world_size)),
        stride=pl.when(own).then(_map_roles({name: new.get_group_stride(name) for name in names}))
        .when(everyone).then(1).otherwise("stride"),
        before=pl.col("ranks"),
    )  # fmt: skip
    gathered = pl.col("collective").is_in(["all_gather", "reduce_scatter"]) & ~pl.lit(
        old.sharded or new.optimizer_ranks > 1
    )
    fewer_layers = old.tp * old.pp / (new.tp * new.pp)
    growth = (
        pl.when(pl.col("role") == "tp").then(1.0)
        .when(pl.col("role") == "cp").then(old.tp / new.tp)
        .when(gathered).then(pl.col("ranks") / pl.col("before"))
        .when(pl.col("role") == "dp").then(fewer_layers)
        .when(pl.col("role") == "edp").then(fewer_layers * old.expert_parallel_replicas / new.expert_parallel_replicas)
        .otherwise(1.0)
    )  # fmt: skip
    batch = new.batch / old.batch
    activations = (
        pl.when(pl.col("role").is_in(["dp", "edp", "near"])).then(1.0)
        .when(pl.col("role") == "cp").then(batch)
        .otherwise(batch * old.cp / new.cp)
    )  # fmt: skip
    return after.with_columns(pl.col(*SIZE_COLUMNS) * growth * activations).select(calls.columns)


def _map_roles(numbers: dict[str, int]) -> pl.Expr:
    return pl.col("role").replace_strict(numbers, return_dtype=pl.Int64)


def add_measured_times(program: Program) -> pl.DataFrame:
    """Add ``measured_us`` and further columns to the kernel table.

    ``framework`` names the library of a kernel, as its name tells it. ``derived`` is whether the time is derived from
    other work instead of measured. ``most`` is the factor by which the time may be longer. Inserted kernels have no
    measured time, except collectives, whose time is zero as they have one rank.
    """
    told = pl.col("work_from").ne_missing(WORK_FROM_ASSUMED) | (pl.col("family") == "collective")
    measured_us = pl.when(told).then(pl.col("dur_ns") / 1e3)
    table = program.kernels.with_columns(
        measured_us=measured_us, framework=infer_framework(), derived=find_corrected_kernels(program), most=1.0
    )
    if program.framework is None:
        return table
    engine, version = program.framework
    served = pl.when(pl.col("family").is_in(TENSOR_FAMILIES))
    release = parse_release(version) if version else None
    return table.with_columns(
        engine=served.then(pl.lit(engine)), release=served.then(pl.lit(release, pl.Float64)), in_job=pl.lit(value=True)
    )


def find_corrected_kernels(program: Program) -> pl.Series:
    """Find the kernels of a captured program whose times a trace corrected without having run the same."""
    facts, kernels = program.trace.capture_facts, program.kernels
    if facts is None or not facts.measured_by:
        return pl.repeat(value=False, n=kernels.height, eager=True)
    inputs = kernels.select(pl.col("op").fill_null(""), pl.col("input_dims").fill_null(""))
    names = {pair: hash_inputs(*pair) in facts.seen for pair in inputs.unique().iter_rows()}
    return pl.Series([not names[pair] for pair in inputs.iter_rows()])


def compute_seen_pct(program: Program) -> float:
    """Compute the percent of a corrected program's kernel time that a trace ran with the same inputs."""
    kernels = program.kernels.with_columns(seen=~find_corrected_kernels(program))
    return compute_time_share(kernels, "dur_ns", pl.col("seen"))


def get_kernel_key(layout: Layout) -> tuple[float, ...]:
    """Return the numbers of a layout that change kernels other than collectives."""
    return (
        layout.tp,
        layout.pp,
        layout.fsdp_ranks,
        layout.optimizer_ranks,
        layout.batch,
        layout.expert_parallel_replicas,
        layout.context or 0,
        layout.sequence_parallel,
        layout.cp,
    )


def relayout_kernels(program: Program, source: Gpu | None, target: Gpu, old: Layout, new: Layout) -> pl.DataFrame:
    """Return the kernel table with ``measured_us`` as the trace's GPU would have run it in another layout.

    Optimizers of FSDP jobs work on a shard; layers work on their part of the split dimensions.

    Args:
        program: The program.
        source: The trace's GPU; None where it is unknown.
        target: GPU whose latency law scales times in that case.
        old: The trace's layout.
        new: Another one.

    Raises:
        LayoutError: The change can't be derived from this trace.
    """
    table, gpu = add_measured_times(program), source or target
    if old.pp != new.pp:
        raise LayoutError(layouts.RECORDED_STAGES_FIXED(old=str(old), new=str(new)))
    if old.tp != new.tp:
        calls = list_collectives(program.kernels, old.world_size).join(
            infer_group_roles(program).filter(role="tp"), on="row"
        )
        table = _rescale_times(table, split_layers(table, calls, old.tp, new.tp, new.sequence_parallel), gpu)
        table = _scale_attention_heads(table, old.tp / new.tp)
        for op in (BUFFER_COPY_OP, COMPRESS_OP, DECOMPRESS_OP):
            table = _scale_buffer_copies(table, op, old.tp / new.tp)
    if old.optimizer_ranks != new.optimizer_ranks:
        table = _rescale_times(table, _shard_optimizer(table, old.optimizer_ranks / new.optimizer_ranks), gpu)
    if adds_expert_parallelism(old, new):
        experts = find_experts(program)
        # With FSDP and ZeRO a rank updates the same fraction of the experts as of all other parameters.
        part = 0.0 if new.optimizer_ranks > 1 else compute_expert_parameter_fraction(program)
        shared = split_experts(table, experts, part, new.expert_parallel_replicas, new.tp)
        before_us, gemm = table["measured_us"], pl.int_range(pl.len()).is_in(experts.gemms["row"].implode())
        table = _rescale_times(table, shared, gpu)
        # With fewer experts engines' kernels became faster by less, some not at all (tests/validation).
        table = table.with_columns(most=pl.when(gemm).then(before_us / pl.col("measured_us")).otherwise("most"))
        table = _scale_buffer_copies(
            table, EXPERT_BUFFER_COPY_OP, old.expert_parallel_replicas / new.expert_parallel_replicas
        )
    if old.cp != new.cp:
        table = _rescale_times(table, split_tokens(table, program.trace.ops, new.cp), gpu)
    if old.batch != new.batch:
        table = _rescale_times(table, scale_batch(table, program.trace.ops, new.batch / old.batch), gpu)
    if new.context:
        table = _rescale_times(table, set_context_length(table, new.context), gpu)
    return table


def _scale_attention_heads(table: pl.DataFrame, part: float) -> pl.DataFrame:
    """Scale attention with unknown sequences to ``part`` of its heads, which share no work."""
    mine = (pl.col("family") == "attention") & pl.col("work_from").is_null()
    time_us = pl.when(mine).then(pl.col("measured_us") * part).otherwise("measured_us")
    return table.with_columns(measured_us=time_us, derived=pl.col("derived") | mine)


def _scale_buffer_copies(table: pl.DataFrame, op: str, part: float) -> pl.DataFrame:
    """Scale the buffer copies ``op`` to ``part`` of each unit; they have no measured time."""
    copied = {name: (pl.col(name) * part).ceil().cast(pl.Int64) for name in ("cols", "bytes")}
    mine = pl.col("op") == op
    return table.with_columns(pl.when(mine).then(value).otherwise(name).alias(name) for name, value in copied.items())


def _shard_optimizer(table: pl.DataFrame, part: float) -> pl.DataFrame:
    """Scale optimizers to ``part`` of their work, and add ``changed``, whether a row changed."""
    mine = pl.col("family") == "optimizer"
    edited = {
        name: pl.when(mine).then((pl.col(name) * part).ceil().cast(pl.Int64)).otherwise(name) for name in WORK_COLUMNS
    }
    return table.with_columns(**edited, changed=mine)


def _rescale_times(table: pl.DataFrame, edited: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """Rescale ``measured_us`` by the GPU's latency law: law(edited) / law(table); unknown work keeps its time."""
    changed = edited["changed"]
    laws = [predictors.predict(one.filter(changed).drop("measured_us"), gpu)["time_us"] for one in (table, edited)]
    rows = edited.with_row_index("row")
    factors = rows.filter(changed).select("row", factor=laws[1] / laws[0])
    joined = rows.join(factors, on="row", how="left", maintain_order="left")
    return joined.with_columns(
        measured_us=pl.col("measured_us") * pl.col("factor").fill_null(1.0), derived=pl.col("derived") | changed
    ).select(table.columns)
