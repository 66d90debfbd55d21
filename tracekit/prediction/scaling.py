"""The job of a trace in another layout: what its collectives and kernels would have been on the trace's GPU.

Each rank keeps its own batch, unless another is asked for: with more replicas the job's batch grows.
"""

import polars as pl

import predictors
from predictors import Gpu
from tracekit.prediction.added import ASSUMED
from tracekit.prediction.experts import part_of_parameters, recognise_experts, share_experts
from tracekit.prediction.layout import Layout, LayoutError, groups, shares_experts
from tracekit.prediction.messages import SIZES, messages
from tracekit.prediction.rebatch import rebatch
from tracekit.prediction.tensor import reshard
from tracekit.prediction.units import BUFFER_COPY, EXPERTS_COPY
from tracekit.replay.run import Run
from tracekit.workload.names.stack import attention_stack

WORK = ("rows", "flops", "bytes")


def messages_as(calls: pl.DataFrame, roles: pl.DataFrame, old: Layout, new: Layout) -> pl.DataFrame:
    """The collectives of a job in another layout.

    The bytes of all-reduces depend on the model and the rank's own batch, not on how many ranks there are. Nor do the
    whole buffers of all-gathers and reduce-scatters where parameters are sharded; elsewhere each rank brings its part.
    Gradients and parameters shrink with a rank's part of the layers; activations that a layer's ranks exchange don't,
    but grow with its batch.
    Each rank's bytes of an all-to-all stay too: the tables or experts are split over more ranks as the batch grows.

    Args:
        calls: As ``messages`` gives them.
        roles: As ``layout.groups`` gives them.
        old: The trace's layout.
        new: Another one.
    """
    if old == new and not roles["put_in"].any():
        return calls
    names = ("dp", "tp", "pp", "ep", "edp")
    rows = calls.join(roles, on="row", how="left", maintain_order="left")
    own = pl.col("put_in") | (pl.col("ranks") == _by_role({name: old.ranks(name) for name in names}))
    everyone = pl.col("ranks") == old.world_size
    after = rows.with_columns(
        ranks=pl.when(own).then(_by_role({name: new.ranks(name) for name in names}))
        .when(everyone).then(new.world_size).otherwise(pl.col("ranks").clip(upper_bound=new.world_size)),
        stride=pl.when(own).then(_by_role({name: new.stride(name) for name in names}))
        .when(everyone).then(1).otherwise("stride"),
        before=pl.col("ranks"),
    )  # fmt: skip
    gathered = pl.col("collective").is_in(["all_gather", "reduce_scatter"]) & ~pl.lit(old.sharded or new.sharded)
    fewer_layers = old.tp * old.pp / (new.tp * new.pp)
    growth = (
        pl.when(pl.col("role") == "tp").then(1.0)
        .when(gathered).then(pl.col("ranks") / pl.col("before"))
        .when(pl.col("role") == "dp").then(fewer_layers)
        .when(pl.col("role") == "edp").then(fewer_layers * old.senders / new.senders)
        .otherwise(1.0)
    )  # fmt: skip
    activations = pl.when(pl.col("role").is_in(["dp", "edp"])).then(1.0).otherwise(new.batch / old.batch)
    return after.with_columns(pl.col(*SIZES) * growth * activations).select(calls.columns)


def _by_role(numbers: dict[str, int]) -> pl.Expr:
    return pl.col("role").replace_strict(numbers, return_dtype=pl.Int64)


def as_measured(run: Run) -> pl.DataFrame:
    """The kernel table with ``measured_us``, and whose kernels those of attention are as ``framework``.

    ``derived`` says whether that time isn't measured but follows from another amount of work; what was put in has none,
    but for collectives, which take no time as they are of one rank. ``most`` is the factor on the time up to which that
    work may be too little for it.
    """
    told = pl.col("work_from").ne_missing(ASSUMED) | (pl.col("family") == "collective")
    measured_us = pl.when(told).then(pl.col("dur_ns") / 1e3)
    return run.kernels.with_columns(
        measured_us=measured_us, framework=attention_stack(), derived=pl.lit(value=False), most=1.0
    )


def kernels_depend_on(layout: Layout) -> tuple[float, ...]:
    """The numbers of a layout that change its kernels, other than collectives."""
    return (layout.tp, layout.pp, layout.shards, layout.batch, layout.senders)


def kernels_as(run: Run, target: Gpu, old: Layout, new: Layout) -> pl.DataFrame:
    """The kernel table with ``measured_us``, as the trace's GPU would have run it in another layout.

    Optimizers of sharded jobs work on a shard, layers on their part of the sides that are shared out.

    Args:
        run: The measured run.
        target: GPU whose law tells how time follows work where the trace's isn't known.
        old: The trace's layout.
        new: Another one.

    Raises:
        LayoutError: The change can't be worked out from this trace.
    """
    table = as_measured(run)
    if old.pp != new.pp:
        raise LayoutError(f"{old} can't become {new}: a trace's own pipeline stages can't be changed.")
    if old.tp != new.tp:
        calls = messages(run.kernels, old.world_size).join(groups(run).filter(role="tp"), on="row")
        table = _remeasured(table, reshard(table, calls, old.tp, new.tp), run.gpu or target)
        table = _of_parts(_on_heads(table, old.tp / new.tp), BUFFER_COPY, old.tp / new.tp)
    if old.shards != new.shards:
        table = _remeasured(table, _on_shards(table, old.shards / new.shards), run.gpu or target)
    if shares_experts(old, new):
        experts = recognise_experts(run)
        # A rank's shard of the experts is as large as of all else.
        part = 0.0 if new.sharded else part_of_parameters(run)
        shared = share_experts(table, experts, part, new.senders)
        before_us, gemm = table["measured_us"], pl.int_range(pl.len()).is_in(experts.gemms["row"].implode())
        table = _remeasured(table, shared, run.gpu or target)
        # Engines' kernels of fewer experts gained less than that, some nothing (scripts/evaluate_experts.py).
        table = table.with_columns(most=pl.when(gemm).then(before_us / pl.col("measured_us")).otherwise("most"))
        table = _of_parts(table, EXPERTS_COPY, old.senders / new.senders)
    if old.batch != new.batch:
        table = _remeasured(table, rebatch(table, run.trace.ops, new.batch / old.batch), run.gpu or target)
    return table


def _on_heads(table: pl.DataFrame, part: float) -> pl.DataFrame:
    """The table with attention whose sequences aren't known on ``part`` of its heads: these don't share any work."""
    mine = (pl.col("family") == "attention") & pl.col("work_from").is_null()
    time_us = pl.when(mine).then(pl.col("measured_us") * part).otherwise("measured_us")
    return table.with_columns(measured_us=time_us, derived=pl.col("derived") | mine)


def _of_parts(table: pl.DataFrame, op: str, part: float) -> pl.DataFrame:
    """The table with copies of buffers, ``op``, that hold ``part`` of each unit; they have no measured time."""
    copied = {name: (pl.col(name) * part).ceil().cast(pl.Int64) for name in ("cols", "bytes")}
    mine = pl.col("op") == op
    return table.with_columns(pl.when(mine).then(value).otherwise(name).alias(name) for name, value in copied.items())


def _on_shards(table: pl.DataFrame, part: float) -> pl.DataFrame:
    """The table with optimizers that work on ``part`` of what they did, and whether a row ``changed``."""
    mine = pl.col("family") == "optimizer"
    edited = {name: pl.when(mine).then((pl.col(name) * part).ceil().cast(pl.Int64)).otherwise(name) for name in WORK}
    return table.with_columns(**edited, changed=mine)


def _remeasured(table: pl.DataFrame, edited: pl.DataFrame, gpu: Gpu) -> pl.DataFrame:
    """``edited`` with ``measured_us`` as a GPU's law has it grow with the work; of unknown work, it stays."""
    changed = edited["changed"]
    laws = [predictors.predict(one.filter(changed).drop("measured_us"), gpu)["time_us"] for one in (table, edited)]
    rows = edited.with_row_index("row")
    factors = rows.filter(changed).select("row", factor=laws[1] / laws[0])
    joined = rows.join(factors, on="row", how="left", maintain_order="left")
    return joined.with_columns(
        measured_us=pl.col("measured_us") * pl.col("factor").fill_null(1.0), derived=pl.col("derived") | changed
    ).select(table.columns)
