"""Inherit the work of kernels without shapes from the same kernel elsewhere in the trace.

Launches before the trace began and replays of CUDA graphs have no op, and some ops record no shapes. Such a kernel does
the same work as kernels of the same name and launch, if all of those with shapes agree. If they differ, only those with
the same neighbouring kernels count. Some traces also lack the grid of kernels launched before they began; then a long
sequence of kernels with the same names is needed:

    with shapes      A  B  [C: 4096 x 4096]  D
    without shapes   A  B  [C: inherits   ]  D
"""

import polars as pl

from tracekit.arrays import list_distinct
from tracekit.trace import RankTrace
from tracekit.workload.work_inference.rule import WorkRule, override_columns

LAUNCH_COLUMNS = ("name", "blocks", "threads_per_block", "shared_memory_bytes")

# Numbers of kernels launched before and after that have to be equal, in the order in which they are tried.
NEIGHBOUR_COUNTS = ((0, 0), (1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (0, 16), (16, 0))
NEIGHBOUR_COUNTS_BY_NAME = ((16, 16), (8, 8), (0, 16), (16, 0), (4, 4))
MAX_NEIGHBOURS = 16

MAX_TIME_RATIO = 1.5
"""Maximum ratio of a kernel's time to those it inherits from; a GEMM's grid doesn't give the length of its dot
products."""

MIN_EQUAL_NEIGHBOURS = 8
"""Number of equal neighbouring kernels that a copy or collective needs to inherit."""

WINDOWS = pl.selectors.matches(r"^[ab]\d+$")
"""Hashes of a kernel and of those before and after it."""

INHERITED_COLUMNS = (
    "dtype", "direction", "batch", "m", "n", "k", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "causal",
    "window", "cache_width", "kv_dtype", "mask_bytes", "mask_batch", "mask_heads",
    "paged", "rows", "cols", "flops", "bytes", "work_low", "work_high", "collective", "ranks",
    "process_group", "group_description", "group_ranks", "share", "family", "winograd",
    "channels", "channels_first", "height", "width", "part", "across", "serial_clocks", "warp_clocks",
    "accessed_bytes", "reuse_bytes", "distinct_bytes", "streamed_bytes", "host_bytes",
)  # fmt: skip


_DONORS = ("shapes", "recorded", "gradients")
"""Sources of work that other kernels may inherit."""


def infer_repeated_work(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Copy the work of equal kernels to those that have none."""
    missing = kernels["work_from"].null_count()
    if missing in (0, kernels.height) or not kernels["work_from"].is_in(_DONORS).any():
        return kernels
    has_grid = pl.col("blocks").is_not_null() | (pl.col("kind") != "kernel")
    for key, around, takers in (
        (LAUNCH_COLUMNS, NEIGHBOUR_COUNTS, has_grid),
        (("name",), NEIGHBOUR_COUNTS_BY_NAME, pl.col("blocks").is_null()),
    ):
        kernels = _inherit(kernels, key, around, takers)
    return kernels


REPEATS_RULE = WorkRule(
    "repeated-kernels",
    "A kernel without shapes does the work of equal kernels elsewhere in the trace.",
    "TraceLens' Qwen 0.5B on an MI300X: all of GPU time has known work, 69 % without the rule. All kernels of a "
    "name that have shapes need to agree.",
    infer_repeated_work,
)


def _hash_neighbours(launched: pl.LazyFrame) -> pl.LazyFrame:
    """Hash the kernels before (``b1``, ``b2``, ...) and after (``a1``, ...) each kernel, whose own hash is ``a0``."""
    launched = launched.with_columns(b0="a0")
    for side, direction in (("b", 1), ("a", -1)):
        launched = launched.with_columns(pl.col(f"{side}0").shift(direction).over("device").alias(f"{side}1"))
        length = 1
        while length < MAX_NEIGHBOURS:
            shorter = pl.col(f"{side}{length}")
            longer = pl.struct(shorter, shorter.shift(direction * length).over("device").alias("further")).hash()
            length *= 2
            launched = launched.with_columns(longer.alias(f"{side}{length}"))
    return launched


def _inherit(
    kernels: pl.DataFrame, key: tuple[str, ...], around: tuple[tuple[int, int], ...], takers: pl.Expr
) -> pl.DataFrame:
    """Inherit with each number of equal neighbours in turn; a kernel takes what it finds first."""
    shapeless = pl.col("input_dims").is_null() | ~pl.col("op").str.starts_with("aten::")
    is_taking = kernels.select(takers & pl.col("work_from").is_null() & shapeless).to_series()
    if not is_taking.any():
        return kernels
    launched = _sort_by_launch(kernels.with_columns(is_taking=is_taking), key)
    taking = launched.filter("is_taking").select("row", "dur_ns", "kind", WINDOWS)
    donors = launched.filter(pl.col("work_from").is_in(_DONORS), pl.col("a0").is_in(taking["a0"].unique().implode()))
    work = pl.struct(name for name in INHERITED_COLUMNS if name != "share").hash()
    donors = donors.select(
        "dur_ns", "family", WINDOWS, donor="row", work=kernels[donors["row"]].select(work).to_series()
    )
    found = []
    for before, after in around:
        found.append(_find_donors(taking, donors, before, after))
        taking = taking.join(found[-1], on="row", how="anti")
        if taking.is_empty():
            break
    taken = pl.concat(found)
    if taken.is_empty():
        return kernels
    given = kernels.select(pl.col(INHERITED_COLUMNS).name.prefix("given "))[taken["donor"]]
    joined = kernels.with_row_index("row").join(taken.hstack(given), on="row", how="left", maintain_order="left")
    takes = pl.col("donor").is_not_null()
    return joined.with_columns(
        *(pl.when(takes).then(f"given {name}").otherwise(name).alias(name) for name in INHERITED_COLUMNS),
        work_from=pl.when(takes).then(pl.lit("repeat")).otherwise("work_from"),
    ).select(kernels.columns)


def _sort_by_launch(kernels: pl.DataFrame, key: tuple[str, ...]) -> pl.DataFrame:
    """List the kernels in order of launch, with their ``row`` and the hashes of the kernels around them."""
    # Correlation ids count launches; all kernels of one graph launch have the same.
    order = ("device", "correlation", "stream", "ts_ns", "row")
    columns = ("dur_ns", "kind", "family", "work_from", "is_taking")
    rows = kernels.lazy().with_row_index("row").select(*order, *columns, a0=pl.struct(key).hash())
    return _hash_neighbours(rows.sort(order)).collect()


def _find_donors(taking: pl.DataFrame, donors: pl.DataFrame, before: int, after: int) -> pl.DataFrame:
    """Find the kernels that inherit with so many equal neighbours (``row``), and from which one (``donor``)."""
    key = ["a0", *([f"b{before}"] if before else []), *([f"a{after}"] if after else [])]
    agreeing = (
        donors.lazy()
        .join(taking.lazy(), on=key, how="semi")
        .group_by(key)
        .agg(
            pl.col("donor", "family").first(),
            alike=pl.col("work").n_unique() == 1,
            least=pl.col("dur_ns").min(),
            most=pl.col("dur_ns").max(),
        )
        .filter("alike")
    )
    timely = pl.col("dur_ns").is_between(pl.col("least") / MAX_TIME_RATIO, pl.col("most") * MAX_TIME_RATIO)
    # The launch of a copy or collective doesn't give its size, nor does a collective's time, which includes waiting.
    placed = pl.lit(before + after >= MIN_EQUAL_NEIGHBOURS)
    plain = (pl.col("kind") == "kernel") & (pl.col("family") != "collective")
    return (
        taking.lazy()
        .join(agreeing, on=key)
        .filter(pl.when(plain).then(timely).otherwise(placed))
        .select("row", "donor")
        .collect()
    )


CONVOLUTION_BACKWARD = "aten::convolution_backward"
DATA_GRADIENT_IN_NAME = r"(?i)dgrad|bwd|backward"
"""Words for the input's gradient, in names that don't have one for the weight's."""
BOTH_GRADIENTS_WANTED = r"True, ?True"


def infer_weight_gradients(kernels: pl.DataFrame, _trace: RankTrace) -> pl.DataFrame:
    """Mark the weight gradient of each convolution backward op, if no kernel of it is named as one.

    Beside a kernel that is named as the input's gradient, those without a direction are the weight's; if none is
    named, the last one is.

    The table has ``op_row``, ``correlation`` and the columns of convolutions.
    """
    if CONVOLUTION_BACKWARD not in list_distinct(kernels["op"]):
        return kernels
    mine = (pl.col("op") == CONVOLUTION_BACKWARD) & (pl.col("family") == "conv") & pl.col("m").is_not_null()
    asked = pl.col("concrete_inputs").str.contains(BOTH_GRADIENTS_WANTED).fill_null(True)
    weight = mine & (pl.col("direction") == "wgrad")
    data = mine & ~weight & pl.col("name").str.contains(DATA_GRADIENT_IN_NAME)
    place = pl.when(mine).then("correlation")
    last = (place.count().over("op_row") > 1) & (place == place.max().over("op_row"))
    other = pl.when(data.any().over("op_row")).then(~data).otherwise(last)
    turned = mine & asked & ~weight.any().over("op_row") & other & pl.col("op_row").is_not_null()
    return kernels.with_columns(
        override_columns(turned, {"direction": pl.lit("wgrad"), "m": pl.col("k"), "k": pl.col("m")})
    )


GRADIENTS_RULE = WorkRule(
    "weight-gradients",
    "Of a convolution's backward op without a kernel named as the weight's gradient, the kernel without a direction "
    "is it, or else the last one.",
    "cuDNN and MIOpen run both gradients in this order in the public traces of convolutional networks.",
    infer_weight_gradients,
)
"""The libraries compute the input's gradient first, then the weight's."""
