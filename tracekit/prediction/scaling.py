"""The job of a trace on other numbers of ranks: what its collectives and kernels would have been on the trace's GPU.

Each rank keeps its own batch: with more copies the job's batch grows.
"""

import polars as pl

import predictors
from predictors import Gpu
from tracekit.prediction.layout import Layout, LayoutError, trains
from tracekit.prediction.messages import SIZES
from tracekit.replay.run import Run

WORK = ("rows", "flops", "bytes")


def messages_as(calls: pl.DataFrame, roles: pl.DataFrame, old: Layout, new: Layout) -> pl.DataFrame:
    """The collectives of a job in another layout.

    The bytes of all-reduces depend on the model and the rank's own batch, not on how many ranks there are. Nor do the
    whole buffers of all-gathers and reduce-scatters where parameters are sharded; elsewhere each rank brings its part.
    Each rank's bytes of an all-to-all stay too: the tables or experts are split over more ranks as the batch grows.

    Args:
        calls: As ``messages`` gives them.
        roles: As ``layout.groups`` gives them.
        old: The trace's layout.
        new: Another one.
    """
    if old == new:
        return calls
    names = ("dp", "tp", "pp", "ep")
    rows = calls.join(roles, on="row", how="left", maintain_order="left")
    own = pl.col("ranks") == _by_role({name: old.ranks(name) for name in names})
    everyone = pl.col("ranks") == old.world_size
    after = rows.with_columns(
        ranks=pl.when(own).then(_by_role({name: new.ranks(name) for name in names}))
        .when(everyone).then(new.world_size).otherwise("ranks"),
        stride=pl.when(own).then(_by_role({name: new.stride(name) for name in names}))
        .when(everyone).then(1).otherwise("stride"),
        before=pl.col("ranks"),
    )  # fmt: skip
    gathered = pl.col("collective").is_in(["all_gather", "reduce_scatter"]) & ~pl.lit(old.sharded)
    growth = pl.when(gathered).then(pl.col("ranks") / pl.col("before")).otherwise(1.0)
    return after.with_columns(pl.col(*SIZES) * growth).select(calls.columns)


def _by_role(numbers: dict[str, int]) -> pl.Expr:
    return pl.col("role").replace_strict(numbers, return_dtype=pl.Int64)


def as_measured(run: Run) -> pl.DataFrame:
    """The kernel table with ``measured_us``."""
    return run.kernels.with_columns(measured_us=pl.col("dur_ns") / 1e3)


def kernels_depend_on(old: Layout, new: Layout) -> tuple[int, ...]:
    """The numbers of a layout that change its kernels, other than collectives."""
    return (new.tp, new.pp, new.dp if old.sharded else old.dp)


def kernels_as(run: Run, target: Gpu, old: Layout, new: Layout) -> pl.DataFrame:
    """The kernel table with ``measured_us``, as the trace's GPU would have run it in another layout.

    Optimizers of sharded jobs work on a shard.

    Args:
        run: The measured run.
        target: GPU whose law tells how time follows work where the trace's isn't known.
        old: The trace's layout.
        new: Another one.

    Raises:
        LayoutError: The change can't be worked out from this trace.
    """
    table = as_measured(run)
    if (old.tp, old.pp) != (new.tp, new.pp):
        raise LayoutError(f"{old} can't become {new}: only data and expert parallelism can be changed.")
    if trains(run) and old.dp == 1 < new.dp:
        raise LayoutError(
            "the trace has no data-parallel ranks, so no collectives that could grow.", "Record two ranks."
        )
    if not old.sharded or old.dp == new.dp:
        return table
    part = old.dp / new.dp
    mine = pl.col("family") == "optimizer"
    edited = table.with_columns(
        pl.when(mine).then((pl.col(name) * part).ceil().cast(pl.Int64)).otherwise(name).alias(name) for name in WORK
    )
    gpu = run.gpu or target
    law = [predictors.predict(one.filter(mine).drop("measured_us"), gpu)["time_us"] for one in (table, edited)]
    ratio = (law[1] / law[0]).fill_null(part)
    factors = table.with_row_index("row").filter(mine).select("row", factor=ratio)
    return (
        edited.with_row_index("row")
        .join(factors, on="row", how="left", maintain_order="left")
        .with_columns(measured_us=pl.col("measured_us") * pl.col("factor").fill_null(1.0))
        .drop("row", "factor")
    )
