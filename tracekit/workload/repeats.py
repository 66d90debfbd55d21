"""Work of kernels without shapes, from the same kernel elsewhere in the trace.

Launches before the trace began and replays of CUDA graphs have no op, and some ops record no shapes. Such a kernel does
what one of the same name and launch did, if all of those with shapes did the same; where they differ, those with the
same kernels around them count. Some traces have no grid either for what was launched before they began; then only a
long row of kernels of the same names tells.
"""

import polars as pl

LAUNCH = ("name", "blocks", "threads_per_block", "shared_memory_bytes")

# Kernels launched before and after that have to be alike, in the order in which they are tried.
AROUND = ((0, 0), (1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (0, 16), (16, 0))
AROUND_BY_NAME = ((16, 16), (8, 8), (0, 16), (16, 0), (4, 4))
LONGEST = 16

SLOWER = 1.5
"""How far a kernel's time may lie from those of its likes; a GEMM's grid doesn't tell how deep it is."""

PLACED = 8
"""Kernels around a copy or collective that have to be alike."""

WORK = (
    "dtype", "direction", "batch", "m", "n", "k", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal",
    "window", "paged", "rows", "cols", "flops", "bytes", "work_low", "work_high", "collective", "ranks",
    "process_group", "group_description", "group_ranks", "share", "family", "winograd",
    "channels", "height", "width", "part", "across",
)  # fmt: skip


def inherit(kernels: pl.DataFrame) -> pl.DataFrame:
    """``kernels`` with the work of their likes on those that have none.

    Args:
        kernels: With the columns of ``schema.KERNELS``; null in ``work_from`` where the work isn't known.
    """
    missing = kernels["work_from"].null_count()
    if missing in (0, kernels.height):
        return kernels
    # Correlation ids count launches; those of one graph share theirs.
    table = kernels.with_row_index("row").sort("device", "correlation", "stream", "ts_ns", "row")
    has_grid = pl.col("blocks").is_not_null() | (pl.col("kind") != "kernel")
    for key, around, takers in ((LAUNCH, AROUND, has_grid), (("name",), AROUND_BY_NAME, pl.col("blocks").is_null())):
        windows = _windows(table, key)
        for before, after in around:
            table = _inherit_once(table.hstack(windows), before, after, takers).select(table.columns)
    return table.sort("row").drop("row")


def _windows(table: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
    """Numbers that are alike where the kernels before (``b1``, ``b2``, ...) and after (``a1``, ...) are; itself: 0."""
    frame = table.select("device", b0=pl.struct(key).hash(), a0=pl.struct(key).hash())
    for side, direction in (("b", 1), ("a", -1)):
        frame = frame.with_columns(pl.col(f"{side}0").shift(direction).over("device").alias(f"{side}1"))
        length = 1
        while length < LONGEST:
            shorter = pl.col(f"{side}{length}")
            longer = pl.struct(shorter, shorter.shift(direction * length).over("device").alias("further")).hash()
            length *= 2
            frame = frame.with_columns(longer.alias(f"{side}{length}"))
    return frame.drop("device")


def _inherit_once(table: pl.DataFrame, before: int, after: int, takers: pl.Expr) -> pl.DataFrame:
    key = ["a0", *([f"b{before}"] if before else []), *([f"a{after}"] if after else [])]
    shapeless = pl.col("input_dims").is_null() | ~pl.col("op").str.starts_with("aten::")
    takes = takers & pl.col("work_from").is_null() & shapeless
    donors = (
        table.filter(pl.col("work_from").is_in(["shapes", "recorded", "gradients"]))
        .group_by(key)
        .agg(
            *(pl.col(name).first().name.prefix("given ") for name in WORK),
            alike=pl.struct(name for name in WORK if name != "share").n_unique() == 1,
            least=pl.col("dur_ns").min(),
            most=pl.col("dur_ns").max(),
        )
        .filter("alike")
    )
    timely = pl.col("dur_ns").is_between(pl.col("least") / SLOWER, pl.col("most") * SLOWER)
    # A copy's or a message's launch doesn't tell its size, nor does the time of a message, which waits for others.
    placed = pl.lit(before + after >= PLACED)
    plain = (pl.col("kind") == "kernel") & (pl.col("given family") != "collective")
    found = (
        table.filter(takes)
        .select("row", "dur_ns", "kind", *key)
        .join(donors, on=key)
        .filter(pl.when(plain).then(timely).otherwise(placed))
        .select("row", pl.lit("repeat").alias("given work_from"), *(f"given {name}" for name in WORK))
    )
    if found.is_empty():
        return table
    joined = table.join(found, on="row", how="left", maintain_order="left")
    given = pl.col("given work_from").is_not_null()
    return joined.with_columns(
        pl.when(given).then(f"given {name}").otherwise(name).alias(name) for name in (*WORK, "work_from")
    )
