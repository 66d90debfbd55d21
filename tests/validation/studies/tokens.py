"""Holds products and experts carried without their shapes against measured ones: tokens or weights untold and told.

python -m tests.validation.studies.tokens AICONFIGURATOR [--weights-mb 128]

AICONFIGURATOR: A checkout, or a folder of its tables. A benchmark finds weights in the cache that a job would have to
read again, so only those count that no cache here holds. Errors are medians; the sum is that of all times over the
measured sum.
"""

import argparse
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import polars as pl

from predictors import Gpu, predict, resolve_gpu
from predictors.kernels import DTYPE_BYTES
from predictors.training.aiconfigurator import load
from tests.validation.tables import print_table

FAMILIES = {"gemm": "GEMMs", "moe": "MoE"}
TOKENS = ((1, 256), (257, 1024), (1025, 65536))
MOST = 2000
"""Kernels of a pair of GPUs."""
SHAPE = ("m", "n", "k", "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "routing", "framework", "dtype")
WAYS = ("untold", "tokens", "weights", "shapes")
HEADING = (
    f"| kernels | tokens | from → to | n | {' | '.join(WAYS)} | sum, {' | '.join(WAYS[:3])} "
    f"| within, {' | '.join(WAYS[:3])} |"
)


def main() -> None:
    """Prints a row for each kind of kernel, range of tokens and pair of GPUs, and one for all pairs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--weights-mb", type=float, default=128)
    args = parser.parse_args()
    tables = list(load(args.data))
    for family in FAMILIES:
        kernels = pl.concat(_sized(table) for table in tables if table["family"][0] == family)
        print_table(HEADING, rows(kernels.filter(pl.col("weights_mb") > args.weights_mb)))


def rows(table: pl.DataFrame) -> Iterator[str]:
    """Of one family."""
    family = FAMILIES[table["family"][0]]
    for least, most in TOKENS:
        ranged = table.filter(pl.col("rows").is_between(least, most))
        found = [_carried(*pair) for pair in permutations(ranged.partition_by("gpu"), 2)]
        for pair in (*found, pl.concat(found).with_columns(way=pl.lit("all"))):
            if pair.height:
                yield f"| {family} | {least} to {most} | {_line(pair)}"


def _sized(table: pl.DataFrame) -> pl.DataFrame:
    """Medians over versions, with ``rows`` and ``weights_mb``, of the experts that a token visits."""
    known = table.filter(pl.col("dtype").is_in(list(DTYPE_BYTES)))
    if table["family"][0] == "gemm":
        known, weights = known.with_columns(rows="m"), pl.col("n") * pl.col("k")
    else:
        visited = 1 - (1 - 1 / pl.col("experts")) ** (pl.col("tokens") * pl.col("topk"))
        each = 3 * pl.col("hidden") * pl.col("inter") / pl.col("tp")
        known, weights = known.with_columns(rows="tokens"), pl.col("experts") / pl.col("ep") * visited * each
    size = pl.col("dtype").replace_strict(DTYPE_BYTES, return_dtype=pl.Float64)
    shape = [name for name in SHAPE if name in table.columns]
    medians = known.group_by("family", "gpu", "rows", *shape).agg(measured_us=pl.col("latency_us").median())
    return medians.with_columns(weights_mb=weights * size / 1e6)


def _carried(here: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame:
    """Kernels that both GPUs measured, carried from one to the other."""
    shape = [name for name in SHAPE if name in here.columns]
    both = here.join(there.select(*shape, there_us="measured_us"), on=shape, nulls_equal=True)
    both = both.sort(*shape).sample(min(both.height, MOST), seed=0)
    source, target = (_gpu(side["gpu"][0]) for side in (here, there))
    untold = both.select("family", "dtype", "measured_us")
    tables = (
        untold,
        untold.with_columns(tokens=both["rows"]),
        untold.with_columns(both[side] for side in ("n", "k") if side in both.columns),
        both.drop("framework"),
    )
    found = {way: predict(table, target, source_gpu=source) for way, table in zip(WAYS, tables, strict=True)}
    times = {way: times["time_us"] for way, times in found.items()}
    factor = found["tokens"]["high_us"] / times["tokens"]
    return both.select("there_us", way=pl.lit(f"{source.slug} → {target.slug}"), **times, factor=factor)


def _gpu(name: str) -> Gpu:
    return resolve_gpu(name.replace("a100_sxm", "a100-sxm-80gb").replace("_", "-")).gpu


def _line(pair: pl.DataFrame) -> str:
    there = pair["there_us"]
    errors = [f"{100 * (pair[way] / there - 1).abs().median():.0f} %" for way in WAYS]
    sums = [f"{100 * (pair[way].sum() / there.sum() - 1):+.0f} %" for way in WAYS[:3]]
    inside = [f"{100 * ((pair[way] / there).log().abs() <= pair['factor'].log()).mean():.0f} %" for way in WAYS[:3]]
    return f"{pair['way'][0]} | {pair.height} | {' | '.join((*errors, *sums, *inside))} |"


if __name__ == "__main__":
    main()
