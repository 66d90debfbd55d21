"""Scale the measured times of kernels without a known shape.

A fixed latency scales only with the clock. The rest scales with the resource of the family, in the dtype that the
kernel runs in on each GPU. Kernels on few SMs gain from a faster SM, not from more SMs. None gains or loses more than
the resource of a whole GPU that differs most.

GEMMs and attention are scaled by an equivalent kernel of known shape, but for those that few SMs run. The measured time
alone does not determine m, n and k. With the assumption that all sides are equal it determines one size. The model then
knows which part of the time was latency, memory and arithmetic on the source, and what each part becomes on the target.
The ratio of two peak rates knows none of that.

Evidence narrows the shape further:

- A narrow tile in the kernel's name means that one side is as short as the tile.
- Keys split over blocks mean attention with one query, as in decoding.
- A small known number of tokens gives the rows of a GEMM.
- Known sides are used as they are: the names of DeepGEMM's kernels contain the sides of the weight.
- The output that the tiles of a GEMM's blocks cover gives two sides; the time then gives the depth.

    measured on the source  -->  size on the curve of the source  -->  time at that size on the target
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from predictors.arrays import CategoricalColumn, Floats, Ints
from predictors.hardware import Hardware, get_format_key, resolve_dtype
from predictors.kernels import DTYPE_BYTES, complete_columns
from predictors.model import evaluate_kernels
from predictors.peers import share_peers
from predictors.weights_file import Weights
from predictors.work import compare_element_bytes

FIXED_LATENCY_CYCLES = 3500.0
"""Clocks from a kernel's start to its end when it does next to nothing: about 2 us, on every GPU since Volta."""
FAMILY_RESOURCES = {
    **dict.fromkeys(("gemm", "conv", "attention", "moe"), "tensor"),
    **dict.fromkeys(("linear_attention", "other"), "mixed"),
}
"""What a family waits for; the ones not named here wait for memory. Of these, kernels that work out where each element
lies wait for memory or for instructions: PyTorch's ``cat`` of caches of keys and values reaches 1 TB/s on an H100, and
takes as long on an H200."""
DEFAULT_MATRIX_DTYPE = "fp16"
"""What matrix units are taken to multiply where neither a kernel's name nor its op's inputs tell: those are serving
engines' own kernels, of 16 bits or fewer. In fp32 an RTX 4090 would run a mixture of experts faster than an H100."""

MAX_FEW_SMS_FRACTION = 0.5
"""A kernel with blocks on fewer SMs than this is one of few blocks. One of more may have as many as the GPU has SMs but
for those that it leaves to others, as 112 of 132 where communication takes 20: elsewhere it has more or fewer."""
WHOLE_GPU_RESOURCES = ("memory", "tensor", "all SMs", "fp32", "cache")


class ScaledTimes(NamedTuple):
    """Times on a target, in microseconds.

    Attributes:
        time_us: Most likely time.
        half_width: Half-width, as a logarithm, of the range over the candidate resources.
        least_us: Time by the resource that differs most in the target's favour, at most what was measured.
        most_us: Time by the one that differs most to its disadvantage, at least what was measured.
    """

    time_us: Floats
    half_width: Floats
    least_us: Floats
    most_us: Floats


class MeasuredTimes:
    """Measured times of kernels of unknown shape, to carry to one GPU after the other.

    Args:
        table: Distinct kernels with ``family``, ``dtype``, ``framework``, ``tensor_core``, ``indexed`` and ``blocks``.
        row: Row in ``table`` of each measurement.
        measured_us: Times on the source, above zero.
        source: GPU that they were measured on.
    """

    def __init__(self, table: pl.DataFrame, row: Ints, measured_us: Floats, source: Hardware) -> None:
        self._table = table.with_columns(pl.col("dtype").fill_null(DEFAULT_MATRIX_DTYPE))
        self._row, self._measured, self._source = row, measured_us, source
        self._fixed = np.minimum(measured_us, FIXED_LATENCY_CYCLES / source.clock_mhz)
        resource = CategoricalColumn.from_series(table["family"]).map(
            lambda family: FAMILY_RESOURCES.get(family or "", "memory")
        )
        self._on_matrix_units = resource == "tensor"
        self._streams = (resource == "memory") & ~table["indexed"].fill_null(False).to_numpy()
        self._blocks = table["blocks"].fill_null(np.inf).to_numpy()
        self._fills_few_sms = self._blocks < MAX_FEW_SMS_FRACTION * source.sms
        self._formats: dict[tuple[str | bool, ...], CategoricalColumn] = {}
        self._dtypes = frozenset(self._table["dtype"])

    def scale(self, target: Hardware) -> Floats:
        """Return the times on a GPU, in microseconds."""
        ratios = self._compute_ratios(target)
        return self._scale_beyond_latency(self._choose_ratio(ratios), ratios, target)

    def scale_with_bracket(self, target: Hardware) -> ScaledTimes:
        """Return the same, with what each candidate resource would give."""
        ratios = self._compute_ratios(target)
        ratio = self._choose_ratio(ratios)
        candidates = np.log(np.stack(list(ratios.values())))
        bracket = np.maximum(candidates.max(axis=0) - np.log(ratio), np.log(ratio) - candidates.min(axis=0))
        bracket = np.where(self._fills_few_sms, 0.5, 1.0) * bracket
        half_width = bracket[self._row] * (1 - self._fixed / self._measured)
        time = self._scale_beyond_latency(ratio, ratios, target)
        least, most = self._limit_ratios(ratios)
        return ScaledTimes(time, half_width, self._measured * least[self._row], self._measured * most[self._row])

    def limit(self, target: Hardware, time_us: Floats) -> Floats:
        """Return times on a GPU that gain and lose no more than the resource that differs most."""
        return self._limit_times(time_us, self._compute_ratios(target))

    def _scale_beyond_latency(self, ratio: Floats, ratios: dict[str, Floats], target: Hardware) -> Floats:
        clock = self._source.clock_mhz / target.clock_mhz
        return self._limit_times(self._fixed * clock + (self._measured - self._fixed) * ratio[self._row], ratios)

    def _limit_times(self, time_us: Floats, ratios: dict[str, Floats]) -> Floats:
        least, most = self._limit_ratios(ratios)
        return np.clip(time_us, self._measured * least[self._row], self._measured * most[self._row])

    def _limit_ratios(self, ratios: dict[str, Floats]) -> tuple[Floats, Floats]:
        """Return the least and the largest ratio that a whole GPU's resources allow; a fixed time has a ratio of 1."""
        whole = np.stack([ratios[name] for name in WHOLE_GPU_RESOURCES])
        return np.fmin(whole.min(axis=0), 1.0), np.fmax(whole.max(axis=0), 1.0)

    def _choose_ratio(self, ratios: dict[str, Floats]) -> Floats:
        """Return the ratio of the resource that each distinct kernel waits for."""
        mixed = np.sqrt(ratios["memory"] * ratios["vector"])
        ratio = np.where(self._on_matrix_units, ratios["tensor"], np.where(self._streams, ratios["memory"], mixed))
        on_few = np.where(self._on_matrix_units, np.fmax(ratios["clock"], ratios["SM's tensor"]), ratios["clock"])
        return np.where(self._fills_few_sms, on_few, ratio)

    def _compute_ratios(self, target: Hardware) -> dict[str, Floats]:
        """Return how many times as long each resource takes on a GPU."""
        ones, source = np.ones(self._blocks.size), self._source
        clock = source.clock_mhz / target.clock_mhz
        waves = _compute_waves(self._blocks, target) / _compute_waves(self._blocks, source)
        here, there = self._resolve_dtypes(source), self._resolve_dtypes(target)
        tensor = here.map(source.get_tflops) / there.map(target.get_tflops)
        wider = compare_element_bytes(here, there)
        return {
            "clock": ones * clock,
            "memory": wider * (source.bandwidth_gbps / target.bandwidth_gbps),
            "tensor": tensor,
            "SM's tensor": tensor * waves * (target.sms / source.sms),
            "vector": waves * clock,
            "all SMs": ones * clock * (source.sms / target.sms),
            "fp32": ones * (source.vector_tflops / target.vector_tflops),
            "cache": wider * (source.cache_gbps / target.cache_gbps),
        }

    def _resolve_dtypes(self, gpu: Hardware) -> CategoricalColumn:
        """Return the dtype that each distinct kernel runs in on a GPU."""
        key = get_format_key(gpu.gpu, self._dtypes)
        if key not in self._formats:
            self._formats[key] = CategoricalColumn.from_series(self._table.select(resolve_dtype(gpu.gpu))[:, 0])
        return self._formats[key]


def _compute_waves(blocks: Floats, gpu: Hardware) -> Floats:
    """Rounds of blocks over the SMs, up to a constant; many or unknown blocks fill them evenly."""
    few = np.minimum(blocks, 1e9)
    return np.where(few < 16 * gpu.sms, np.ceil(few / gpu.sms), few / gpu.sms)


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
            table = complete_columns(pl.concat(curves, how="diagonal_relaxed")).drop("measured_us")
            self._peers = share_peers(table, weights)
            here = evaluate_kernels(self._peers.runs.split_for_gpu(source), source, weights).time_us
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
