"""Products and attention without a shape: the time of one that takes as long on the source, on the target.

A time alone doesn't tell rows, columns and depth. But of one kind of shape, all sides alike, it tells the size, and the
model then knows how much of it was latency, memory and arithmetic on the source, and what each becomes on the target. A
peak rate's ratio knows none of that. Where the kernel's name tells a narrow tile, one side is as short as that; where
it tells that keys are split over blocks, attention has one query, as decoding does. Where few tokens are known to go
through a product, they are its rows. Sides that are known stay: DeepGEMM's kernels are named by their weights.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.fitted import Weights
from predictors.kernels import DTYPE_BYTES, complete
from predictors.machine import Machine
from predictors.model import Runs, model
from predictors.scaling import UNTOLD

FAMILIES = ("gemm", "conv", "attention")
SIDES = np.unique(np.round(np.geomspace(16, 65536, 49) / 16) * 16)
"""Rows of such lengths start at multiples of 16 bytes in every format that matrix units read."""
NARROW = 64
"""A tile with a side up to this is chosen for a product with so short a side, such as a decoding step's."""
ROWS = np.geomspace(1, 65536, SIDES.size)
"""Of products whose weights are known, from one token on."""
MOST_TOKENS = 1024
"""Up to so many tokens their number says more than the time alone; of more, products of equal sides do as well, and
experts go nearer by the rate of arithmetic."""
OF_AN_EXPERT = 16
"""Of so many tokens an expert sees one, where each goes to 8 of 128: its weights are read for fewer rows."""
FEW = 8
"""With a block on less than every eighth SM the shape can't be told from the time: few SMs did all of it."""
TOKENS = np.geomspace(16, 1_048_576, 49)
HEADS: dict[str, pl.Expr] = {"heads": pl.lit(32), "head_dim": pl.lit(128), "causal": pl.lit(value=True)}
PREFILL = HEADS | {"batch": pl.lit(8), "kv_heads": pl.lit(32), "q_len": pl.col("kv_len")}
DECODE = HEADS | {"batch": pl.lit(32), "kv_heads": pl.lit(8), "q_len": pl.lit(1)}
"""Attention that only its tokens are open of."""
SPREAD = 0.8
"""Half-width of the interval, as a logarithm. Of 8,000 products measured on two of A100, H100, L40S, B200, V100 and T4
(aiconfigurator, NeuSight), with their shapes hidden, 84 to 100 % lie within, by pair, and 82 to 100 % of their time; of
10,000 kernels of attention 78 to 100 % and 69 to 100 %. With tokens told, 80 to 100 % of 43,000 products, and of 33,000
layers of experts with more than 128 MB of weights 82 to 100 % (scripts/evaluate_tokens.py)."""


class Equivalents:
    """Products and attention of a table, and for each kind of them a curve of such kernels from small to large.

    Args:
        table: distinct kernels with `family`, `dtype`, `framework`, `batch`, `m`, `n`, `k`, `tokens`, `tile_m`,
            `tile_n`, `split_k` and `blocks`.
        row: which of them each measurement is.
        measured: times on the source, in microseconds, above zero.
        source: where they were measured.
        weights: for the source.
    """

    def __init__(self, table: pl.DataFrame, row: Ints, measured: Floats, source: Machine, weights: Weights) -> None:
        tile, few = pl.when(family="gemm").then(pl.min_horizontal("tile_m", "tile_n")), pl.col("rows").is_not_null()
        kinds = table.with_columns(rows=_rows()).select(
            "framework",
            "blocks",
            *(pl.when(family="gemm").then(side) for side in ("batch", "m", "n", "k")),
            family=pl.when(few).then(pl.lit("gemm")).otherwise("family"),
            dtype=pl.when(few).then(pl.col("dtype").fill_null(UNTOLD)).otherwise("dtype"),
            splits=pl.col("split_k"),
            narrow=pl.coalesce(pl.when(tile == 1).then(tile), "rows", pl.when(tile <= NARROW).then(tile)),
        )
        told = kinds.select(
            pl.col("family").is_in(FAMILIES)
            & pl.col("dtype").is_in(list(DTYPE_BYTES))
            & (pl.col("blocks").fill_null(np.inf) * FEW >= source.sms)
        )[:, 0]
        self.told = told.fill_null(False).to_numpy()[row]
        """Of which measurements the time is told by a kernel that takes as long."""
        of_kind = kinds.drop("blocks").select(pl.struct(pl.all()).rank("dense"))[:, 0].to_numpy()[row]
        self._mine = [self.told & (of_kind == kind) for kind in np.unique(of_kind[self.told])]
        curves = [_from_small_to_large(kinds[int(row[mine][0])]) for mine in self._mine]
        self._ends = np.cumsum([curve.height for curve in curves])[:-1]
        self._curves = Runs(complete(pl.concat(curves, how="diagonal_relaxed"))) if curves else None
        self._measured = measured
        self._here = [np.maximum.accumulate(times) for times in self._times(source, weights)]

    def on(self, target: Machine, weights: Weights) -> Floats:
        """Times on another GPU, in microseconds: of the kernels of their kinds that take as long; NaN elsewhere."""
        time = np.full(self._measured.size, np.nan)
        for mine, here, there in zip(self._mine, self._here, self._times(target, weights), strict=True):
            ratio = np.interp(np.log(self._measured[mine]), np.log(here), np.log(there / here))
            time[mine] = self._measured[mine] * np.exp(ratio)
        return time

    def _times(self, gpu: Machine, weights: Weights) -> list[Floats]:
        """Of each curve, on a GPU."""
        if self._curves is None:
            return []
        return np.split(model(self._curves.on(gpu), gpu, weights).time_us, self._ends)


def _rows() -> pl.Expr:
    """Of products and of those of experts, where few tokens are known to go through them; null elsewhere."""
    of_an_expert = (pl.col("tokens") / OF_AN_EXPERT).ceil()
    rows = pl.when(family="gemm").then("tokens").when(family="moe").then(of_an_expert)
    return pl.when(pl.col("tokens") <= MOST_TOKENS).then(rows)


def _from_small_to_large(kind: pl.DataFrame) -> pl.DataFrame:
    """Kernels of one kind."""
    one = kind.select("family", "dtype", "framework", "narrow", "batch", "m", "n", "k")
    if kind["family"][0] == "attention":
        sizes = DECODE if kind["splits"][0] else PREFILL
        return one.join(pl.DataFrame({"kv_len": TOKENS}), how="cross").with_columns(**sizes)
    rows = pl.coalesce("m", "narrow", "side") if kind["n"][0] is None else pl.coalesce("m", "rows")
    sides = {name: pl.coalesce(name, "side") for name in ("n", "k")}
    return one.join(pl.DataFrame({"side": SIDES, "rows": ROWS}), how="cross").with_columns(m=rows, **sides)
