"""Scale GEMMs and attention without a known shape by an equivalent kernel of known shape.

The measured time alone does not determine m, n and k. With the assumption that all sides are equal it determines one
size. The model then knows which part of the time was latency, memory and arithmetic on the source, and what each part
becomes on the target. The ratio of two peak rates knows none of that.

Evidence narrows the shape further:

- A narrow tile in the kernel's name means that one side is as short as the tile.
- Keys split over blocks mean attention with one query, as in decoding.
- A small known number of tokens gives the rows of a GEMM.
- Known sides are used as they are: the names of DeepGEMM's kernels contain the sides of the weight.
- The output that the tiles of a GEMM's blocks cover gives two sides; the time then gives the depth.

    measured on the source  -->  size on the curve of the source  -->  time at that size on the target
"""

from __future__ import annotations

import numpy as np
import polars as pl

from predictors.arrays import Floats, Ints
from predictors.hardware import Hardware
from predictors.kernels import DTYPE_BYTES, complete_columns
from predictors.model import KernelsOnGpus, evaluate_kernels
from predictors.peers import Peers
from predictors.scaling import DEFAULT_MATRIX_DTYPE
from predictors.weights_file import Weights

COVERED_FAMILIES = ("gemm", "conv", "attention")
CANDIDATE_SIDES = np.unique(np.round(np.geomspace(16, 65536, 49) / 16) * 16)
"""Rows of such lengths start at multiples of 16 bytes in every format that matrix units read."""
MAX_NARROW_TILE = 64
"""A tile with a side up to this is chosen for a product with so short a side, such as a decoding step's."""
CANDIDATE_ROWS = np.geomspace(1, 65536, CANDIDATE_SIDES.size)
"""Of products whose weights are known, from one token on."""
MAX_TOKENS = 1024
"""Up to so many tokens their number says more than the time alone; of more, products of equal sides do as well, and
experts go nearer by the rate of arithmetic."""
TOKENS_PER_EXPERT_ROW = 16
"""Of so many tokens an expert sees one, where each goes to 8 of 128: its weights are read for fewer rows."""
MAX_SMS_PER_BLOCK = 8
"""With a block on less than every eighth SM the shape can't be told from the time: few SMs did all of it."""
CANDIDATE_KV_LENGTHS = np.geomspace(16, 1_048_576, 49)
ATTENTION_DEFAULTS: dict[str, pl.Expr] = {"heads": pl.lit(32), "head_dim": pl.lit(128), "causal": pl.lit(value=True)}
PREFILL_DEFAULTS = ATTENTION_DEFAULTS | {"batch": pl.lit(8), "kv_heads": pl.lit(32), "q_len": pl.col("kv_len")}
DECODE_DEFAULTS = ATTENTION_DEFAULTS | {"batch": pl.lit(32), "kv_heads": pl.lit(8), "q_len": pl.lit(1)}
"""Attention that only its tokens are open of."""
EQUIVALENT_HALF_WIDTH = 0.8
"""Half-width of the interval, as a logarithm. Of 8,000 products measured on two of A100, H100, L40S, B200, V100 and T4
(aiconfigurator, NeuSight), with their shapes hidden, 84 to 100 % lie within, by pair, and 82 to 100 % of their time; of
10,000 kernels of attention 78 to 100 % and 69 to 100 %. With tokens told, 80 to 100 % of 43,000 products, and of 33,000
layers of experts with more than 128 MB of weights 82 to 100 % (tests/validation/studies/kernels/without_shapes.py)."""


class EquivalentKernels:
    """Products and attention of a table, and for each kind of them a curve of such kernels from small to large.

    Args:
        table: Distinct kernels with ``family``, ``dtype``, ``framework``, ``batch``, ``m``, ``n``, ``k``, ``tokens``,
            ``tile_m``, ``tile_n``, ``covered_m``, ``covered_n``, ``split_k`` and ``blocks``.
        row: Row in ``table`` of each measurement.
        measured: Times on the source, in microseconds, above zero.
        source: GPU that they were measured on.
        weights: Weights for the source.
    """

    def __init__(self, table: pl.DataFrame, row: Ints, measured: Floats, source: Hardware, weights: Weights) -> None:
        sized = (pl.col("family") == "moe") & pl.all_horizontal(pl.col("n", "k").is_not_null())
        product = (pl.col("family") == "gemm") | sized
        covers = (
            (pl.col("family") == "gemm")
            & pl.col("covered_n").is_not_null()
            & pl.all_horizontal(pl.col("m", "n", "k").is_null())
        )
        tile, few = pl.when(product).then(pl.min_horizontal("tile_m", "tile_n")), pl.col("rows").is_not_null()
        rows = table.with_columns(rows=_estimate_rows_from_tokens(), channels=pl.when(covers).then("covered_n"))
        covered = {"m": pl.coalesce("rows", "covered_m"), "n": pl.col("covered_n")}
        sides = {name: pl.when(covers).then(side).otherwise(name) for name, side in covered.items()}
        kinds = rows.with_columns(**sides, covers=covers).select(
            "framework",
            "blocks",
            "channels",
            "covers",
            *(pl.when(product).then(side) for side in ("batch", "m", "n", "k")),
            family=pl.when(few | sized).then(pl.lit("gemm")).otherwise("family"),
            dtype=pl.when(few).then(pl.col("dtype").fill_null(DEFAULT_MATRIX_DTYPE)).otherwise("dtype"),
            splits=pl.col("split_k"),
            narrow=pl.coalesce(pl.when(tile == 1).then(tile), "rows", pl.when(tile <= MAX_NARROW_TILE).then(tile)),
        )
        told = kinds.select(
            pl.col("family").is_in(COVERED_FAMILIES)
            & pl.col("dtype").is_in(list(DTYPE_BYTES))
            & (pl.col("blocks").fill_null(np.inf) * MAX_SMS_PER_BLOCK >= source.sms)
        )[:, 0]
        self.told = told.fill_null(False).to_numpy()[row]
        """Measurements that an equivalent kernel can predict."""
        self.inferred = self.told & kinds["covers"].fill_null(False).to_numpy()[row]
        """Those whose output's size is known."""
        of_kind = kinds.drop("blocks").select(pl.struct(pl.all()).rank("dense"))[:, 0].to_numpy()[row]
        self._mine = [self.told & (of_kind == kind) for kind in np.unique(of_kind[self.told])]
        curves = [_build_size_curve(kinds[int(row[mine][0])]) for mine in self._mine]
        self._ends = np.cumsum([curve.height for curve in curves])[:-1]
        self._measured, self._weights = measured, weights
        self._peers, self._here = None, list[Floats]()
        if curves:
            runs = KernelsOnGpus(complete_columns(pl.concat(curves, how="diagonal_relaxed")))
            self._peers = Peers(runs, weights)
            here = evaluate_kernels(runs.split_for_gpu(source), source, weights).time_us
            self._here = [np.maximum.accumulate(times) for times in np.split(here, self._ends)]

    def predict_times(self, target: Hardware, weights: Weights) -> Floats:
        """Times on another GPU, in microseconds: of the kernels of their kinds that take as long; NaN elsewhere.

        They are no shorter than on any GPU that is no worse, whatever kernels that one runs.
        """
        time = self._scale_along_curves(target, weights)
        if self._peers is not None:
            for peer in self._peers.list_bordering(target, self._peers.group_alike):
                time = np.fmax(time, self._scale_along_curves(peer, self._weights))
        return time

    def _scale_along_curves(self, target: Hardware, weights: Weights) -> Floats:
        time = np.full(self._measured.size, np.nan)
        for mine, here, there in zip(self._mine, self._here, self._evaluate_curves(target, weights), strict=True):
            ratio = np.interp(np.log(self._measured[mine]), np.log(here), np.log(there / here))
            time[mine] = self._measured[mine] * np.exp(ratio)
        return time

    def _evaluate_curves(self, gpu: Hardware, weights: Weights) -> list[Floats]:
        """Of each curve, on a GPU."""
        return np.split(self._peers.evaluate_calibrated(gpu, weights).time_us, self._ends) if self._peers else []


def _estimate_rows_from_tokens() -> pl.Expr:
    """Of products and of those of experts, where few tokens are known to go through them; null elsewhere."""
    of_an_expert = (pl.col("tokens") / TOKENS_PER_EXPERT_ROW).ceil()
    rows = pl.when(family="gemm").then("tokens").when(family="moe").then(of_an_expert)
    return pl.when(pl.col("tokens") <= MAX_TOKENS).then(rows)


def _build_size_curve(kind: pl.DataFrame) -> pl.DataFrame:
    """Kernels of one kind."""
    one = kind.select("family", "dtype", "framework", "narrow", "batch", "m", "n", "k", "channels")
    if kind["family"][0] == "attention":
        sizes = DECODE_DEFAULTS if kind["splits"][0] else PREFILL_DEFAULTS
        return one.join(pl.DataFrame({"kv_len": CANDIDATE_KV_LENGTHS}), how="cross").with_columns(**sizes)
    rows = pl.coalesce("m", "narrow", "side") if kind["n"][0] is None else pl.coalesce("m", "rows")
    sides = {name: pl.coalesce(name, "side") for name in ("n", "k")}
    return one.join(pl.DataFrame({"side": CANDIDATE_SIDES, "rows": CANDIDATE_ROWS}), how="cross").with_columns(
        m=rows, **sides
    )
