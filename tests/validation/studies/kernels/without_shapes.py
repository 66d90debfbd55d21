"""GEMMs and experts predicted from another GPU without their shapes, or with tokens or weights alone.

A benchmark finds weights in the cache that a job would have to read again, so only layers whose weights no cache here
holds count. Errors are medians; the sum is that of all times over the measured sum.
"""

from collections.abc import Iterator
from itertools import permutations
from statistics import median

import polars as pl

from predictors import Gpu, predict, resolve_gpu
from predictors.kernels import DTYPE_BYTES
from predictors.training.aiconfigurator import load
from tests.validation.study import AICONFIGURATOR, find_input, format_table

INPUTS = (AICONFIGURATOR,)
SYSTEMS = ("a100_sxm", "h100_sxm", "l40s", "b200_sxm")
MIN_WEIGHTS_MB = 128
FAMILY_TITLES = {"gemm": "GEMMs", "moe": "MoE"}
TOKEN_RANGES = ((1, 256), (257, 1024), (1025, 65536))
MAX_KERNELS = 2000
"""Kernels of a pair of GPUs."""
SHAPE = ("m", "n", "k", "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "routing", "framework", "dtype")
KNOWN = ("nothing", "tokens", "weights", "shapes")
"""What a prediction knows of the shape."""
HEADINGS = (
    "kernels", "tokens", "from → to", "n", *KNOWN, *(f"sum, {one}" for one in KNOWN[:3]),
    *(f"in interval, {one}" for one in KNOWN[:3]),
)  # fmt: skip


def run() -> str:
    """Return a row for each kind of kernel, range of tokens and pair of GPUs, and one of all pairs."""
    families: dict[str, list[pl.DataFrame]] = {family: [] for family in FAMILY_TITLES}
    for table in load(find_input(AICONFIGURATOR)):
        known = table.filter(pl.col("gpu").is_in(SYSTEMS))
        family = known["family"][0] if known.height else None
        if family in families:
            families[family].append(add_sizes(known).filter(pl.col("weights_mb") > MIN_WEIGHTS_MB))
    sections = ["# Kernels without their shapes, from another GPU\n"]
    for family, title in FAMILY_TITLES.items():
        sections.append(format_table(HEADINGS, list_rows(title, pl.concat(families[family]))))
    return "\n".join((*sections, "Source: github.com/ai-dynamo/aiconfigurator at 095f58a5.\n"))


def add_sizes(table: pl.DataFrame) -> pl.DataFrame:
    """Return medians over versions, with `rows` and `weights_mb`, for experts of those that a token visits."""
    known = table.filter(pl.col("dtype").is_in(list(DTYPE_BYTES)))
    if table["family"][0] == "gemm":
        known, weights = known.with_columns(rows="m"), pl.col("n") * pl.col("k")
    else:
        visited = 1 - (1 - 1 / pl.col("experts")) ** (pl.col("tokens") * pl.col("topk"))
        each = 3 * pl.col("hidden") * pl.col("inter") / pl.col("tp")
        known, weights = known.with_columns(rows="tokens"), pl.col("experts") / pl.col("ep") * visited * each
    item_bytes = pl.col("dtype").replace_strict(DTYPE_BYTES, return_dtype=pl.Float64)
    shape = [name for name in SHAPE if name in table.columns]
    medians = known.group_by("family", "gpu", "rows", *shape).agg(measured_us=pl.col("latency_us").median())
    return medians.with_columns(weights_mb=weights * item_bytes / 1e6)


def list_rows(title: str, table: pl.DataFrame) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one family."""
    for least, most in TOKEN_RANGES:
        ranged = table.filter(pl.col("rows").is_between(least, most))
        found = [predict_pair(*pair) for pair in permutations(ranged.partition_by("gpu"), 2)]
        for pair in (*found, pl.concat(found).with_columns(direction=pl.lit("all"))):
            if pair.height:
                yield title, f"{least} to {most}", *summarize_pair(pair)


def predict_pair(source: pl.DataFrame, target: pl.DataFrame) -> pl.DataFrame:
    """Predict the kernels that both GPUs measured from one for the other, by what is known of the shape."""
    shape = [name for name in SHAPE if name in source.columns]
    both = source.join(target.select(*shape, target_us="measured_us"), on=shape, nulls_equal=True)
    both = both.sort(*shape).sample(min(both.height, MAX_KERNELS), seed=0)
    source_gpu, target_gpu = (find_gpu(side["gpu"][0]) for side in (source, target))
    nothing = both.select("family", "dtype", "measured_us")
    tables = (
        nothing,
        nothing.with_columns(tokens=both["rows"]),
        nothing.with_columns(both[side] for side in ("n", "k") if side in both.columns),
        both.drop("framework"),
    )
    found = {
        known: predict(table, target_gpu, source_gpu=source_gpu) for known, table in zip(KNOWN, tables, strict=True)
    }
    times = {known: table["time_us"] for known, table in found.items()}
    factor = found["tokens"]["high_us"] / times["tokens"]
    direction = pl.lit(f"{source_gpu.slug} → {target_gpu.slug}")
    return both.select("target_us", direction=direction, **times, factor=factor)


def find_gpu(name: str) -> Gpu:
    """Find a GPU by aiconfigurator's name of it."""
    return resolve_gpu(name.replace("a100_sxm", "a100-sxm-80gb").replace("_", "-")).gpu


def summarize_pair(pair: pl.DataFrame) -> Iterator[str]:
    """Yield the cells of a pair of GPUs."""
    target_us = pair["target_us"]
    yield from (pair["direction"][0], str(pair.height))
    for known in KNOWN:
        yield f"{100 * median((pair[known] / target_us - 1).abs()):.0f} %"
    for known in KNOWN[:3]:
        yield f"{100 * (float(pair[known].sum()) / float(target_us.sum()) - 1):+.0f} %"
    for known in KNOWN[:3]:
        inside = (pair[known] / target_us).log().abs() <= pair["factor"].log()
        yield f"{100 * inside.sum() / pair.height:.0f} %"
