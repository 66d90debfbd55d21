"""Evaluate the model: times of a kernel table on a GPU, limiters and tiles, without measurements of these kernels."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl

from predictors.arrays import Bools, CategoricalColumn, Columns, Floats, Ints, is_true
from predictors.columns import KernelArrays, LawInputs, adapt_to_gpu, compute_law_inputs
from predictors.corrections import compute_features
from predictors.fitted_kernels import iterate_kernels, place_releases
from predictors.gaussian_process import compute_coordinates
from predictors.hardware import Hardware, get_format_key
from predictors.laws.attention import choose_key_blocks, choose_query_blocks, compute_lone_block_us
from predictors.laws.gemm import choose_expert_tiles, choose_gemm_tiles
from predictors.laws.law import EXPONENTIAL_LAWS, LAWS
from predictors.laws.terms import LatencyTerms, Tiles
from predictors.weights_file import Weights
from predictors.work import MATRIX_UNIT_LAWS, compute_arithmetic_us, compute_bound_us, uses_matrix_units

QUANTISE_LAW = "quantise"
CHUNK_ROWS = 16384  # the columns of a chunk fit the CPU's cache
HOST_COPY_KINDS = ("HtoD", "DtoH")
LINK_COPY_KINDS = (*HOST_COPY_KINDS, "PtoP")
LIMITERS = ("compute", "memory", "latency", "unknown", "link")
_MATRIX_UNIT_PATTERN = rf"^({'|'.join(MATRIX_UNIT_LAWS)})( |$)"
MAX_THREADS = min(os.cpu_count() or 1, 4)


@dataclass(frozen=True)
class LawChunk:
    """Rows of a kernel table that share a law, a chunk of them.

    Attributes:
        on_mma: Whether the kernels are made for older matrix units than the GPU's.
        rows: Positions in the table.
    """

    law: str
    on_mma: bool
    rows: Ints
    inputs: LawInputs

    def see(self, gpu: Hardware) -> Hardware:
        """Return a GPU as the kernels see it."""
        return gpu.on_mma if self.on_mma else gpu


@dataclass(frozen=True)
class KernelsByLaw:
    """A kernel table from `columns.prepare_kernels`, split by law; rows without one are in no part."""

    table: pl.DataFrame
    names: Mapping[str, CategoricalColumn]
    chunks: tuple[LawChunk, ...]

    @property
    def height(self) -> int:
        """Number of kernels."""
        return self.table.height

    @property
    def law(self) -> CategoricalColumn:
        """Law of each row."""
        return self.names["law"]

    @property
    def family(self) -> CategoricalColumn:
        """Family of each row."""
        return self.names["family"]

    @property
    def dtype(self) -> CategoricalColumn:
        """Dtype that each row runs in."""
        return self.names["dtype"]

    @cached_property
    def runs_as(self) -> pl.Series:
        """Dtype that each row runs in where it isn't the one that was asked for; else null."""
        dtype, none = self.table["dtype"], pl.Series([None], dtype=pl.String).new_from_index(0, self.height)
        return dtype.zip_with(dtype != self.table["asked"], none).alias("runs_as")

    @cached_property
    def is_on_mma(self) -> Bools:
        """Whether each row is made for older matrix units than the GPU's."""
        return is_true(self.table["on_mma"])

    @cached_property
    def is_of_stack(self) -> Bools:
        """Whether each row's software stack is named."""
        return ~self.names["framework"].is_in(None)

    @cached_property
    def is_host_copy(self) -> Bools:
        """Whether each row copies to or from the host."""
        return self.names["copy_kind"].is_in(*HOST_COPY_KINDS)

    @cached_property
    def is_link_copy(self) -> Bools:
        """Whether each row copies over a link: to or from the host, or to another GPU."""
        return self.names["copy_kind"].is_in(*LINK_COPY_KINDS)

    @cached_property
    def work(self) -> tuple[Floats, Floats]:
        """FLOPs and bytes of each row; NaN where they are unknown."""
        flops, moved = (self.table[name].cast(pl.Float64).to_numpy() for name in ("work_flops", "work_bytes"))
        return flops, moved

    @cached_property
    def kind(self) -> CategoricalColumn:
        """Law of each row, of those on matrix units with the dtype, and whether a software stack is named."""
        matrix = pl.when(pl.col("law").str.contains(_MATRIX_UNIT_PATTERN))
        named = pl.when(pl.col("framework").is_not_null()).then(pl.lit("named"))
        name = matrix.then(pl.concat_str("law", "dtype", named, separator=" ", ignore_nulls=True)).otherwise("law")
        return CategoricalColumn.from_series(self.table.select(name)[:, 0])

    def find_calibrated(self, gpu: Hardware, weights: Weights) -> Bools:
        """Return of which rows calibrations on a GPU say something."""
        if not weights.calibrated:
            return np.zeros(self.height, dtype=np.bool_)
        here, on_mma = (self.law.is_in(*weights.list_calibrated_laws(seen)) for seen in (gpu, gpu.on_mma))
        return np.where(self.is_on_mma, on_mma, here)

    def have_law_of(self, other: KernelsByLaw) -> Bools:
        """Return which rows have the same law, or none, as the same kernels on another GPU."""
        if self is other:
            return np.ones(self.table.height, dtype=np.bool_)
        codes = {name: code for code, name in enumerate(other.law.categories)}
        mine = np.array([codes.get(name, -1) for name in self.law.categories])
        return np.asarray(mine[self.law.codes] == other.law.codes)

    def select(self, rows: Bools) -> KernelsByLaw:
        """Return the same table, of which only some rows are evaluated."""
        chosen = [(part, np.flatnonzero(rows[part.rows])) for part in self.chunks]
        chunks = (
            part if some.size == part.rows.size else replace(part, rows=part.rows[some], inputs=part.inputs.take(some))
            for part, some in chosen
            if some.size
        )
        return replace(self, chunks=tuple(chunks))


def split_by_law(table: pl.DataFrame) -> KernelsByLaw:
    """A table split by law."""
    arrays = KernelArrays.from_table(table)
    law, on_mma = arrays.names["law"], table["on_mma"].to_numpy()
    chunks = [
        LawChunk(name, made_for_mma, rows, compute_law_inputs(arrays.take(rows)))
        for code, name in enumerate(law.categories)
        for made_for_mma in (False, True)
        for rows in _slice_evenly(np.flatnonzero((law.codes == code) & (on_mma == made_for_mma)))
        if name is not None
    ]
    return KernelsByLaw(table, arrays.names, tuple(chunks))


def _slice_evenly(rows: Ints) -> list[Ints]:
    """Rows in chunks of even length."""
    return np.array_split(rows, math.ceil(rows.size / CHUNK_ROWS)) if rows.size else []


class KernelsOnGpus:
    """Kernels as they run on one GPU after the other; those of one class and with the same formats run them alike.

    Formats that no kernel asks for don't matter, nor does the class where no kernel names a software stack, nor the
    vendor where nothing is convolved.

    Args:
        table: From ``kernels.complete_columns``.
    """

    def __init__(self, table: pl.DataFrame) -> None:
        self.table = table
        self._splits: dict[tuple[str | bool, ...], KernelsByLaw] = {}
        self._of_gpu: dict[Hardware, KernelsByLaw] = {}
        self._dtypes = frozenset(name for name in CategoricalColumn.from_series(table["dtype"]).categories if name)
        self._names_stacks = table["framework"].null_count() < table.height
        self._convolves = bool((table["family"] == "conv").any())

    def split_for_gpu(self, gpu: Hardware) -> KernelsByLaw:
        """The kernels as they run on a GPU."""
        if gpu not in self._of_gpu:
            amd = self._convolves and gpu.gpu.vendor == "amd"
            key = (gpu.tensor_class if self._names_stacks else "", amd, *get_format_key(gpu.gpu, self._dtypes))
            if key not in self._splits:
                self._splits[key] = split_by_law(adapt_to_gpu(self.table, gpu))
            self._of_gpu[gpu] = self._splits[key]
        return self._of_gpu[gpu]


@dataclass(frozen=True)
class ModelTimes:
    """Model output, one element a row; NaN where the shape isn't known.

    Attributes:
        bound_us: Least possible time.
        floor_us: Part of the time that depends neither on the compute rate nor on the memory rate.
        compute_us: Time of the arithmetic at the rate that the kernel reaches.
        memory_us: Time of the memory traffic at the rate that the kernel reaches.
        is_compute_bound: Whether arithmetic takes longer than memory traffic. For kernels that go through memory once,
            this compares the arithmetic at peak rate: the compute time of their law also contains instructions and the
            ports to the cache.
    """

    kernels: KernelsByLaw
    bound_us: Floats
    time_us: Floats
    floor_us: Floats
    compute_us: Floats
    memory_us: Floats
    is_compute_bound: Bools

    def classify_limiters(self) -> Ints:
        """Return what the time mostly is, as a place in `LIMITERS`: 'latency' where the floor outweighs both rates."""
        largest = np.fmax(self.compute_us, self.memory_us)
        which = np.where(self.floor_us > largest, 2, np.where(self.is_compute_bound, 0, 1))
        which = np.where(np.isnan(self.time_us), 3, which)
        over_link = self.kernels.is_link_copy & (which != LIMITERS.index("latency"))
        return np.where(over_link | self.kernels.family.is_in("collective"), LIMITERS.index("link"), which)


def evaluate_kernels(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> ModelTimes:
    """Times of a kernel table on a GPU."""
    names = ("bound_us", "time_us", "floor_us", "compute_us", "memory_us")
    out = {name: np.full(kernels.height, np.nan) for name in names}
    arithmetic = np.zeros(kernels.height, dtype=np.bool_)

    def fill(part: LawChunk) -> None:
        terms, time_us = evaluate_law(part.inputs, part.law, part.see(gpu), weights)
        columns = part.inputs.to_columns(gpu)
        bound = compute_bound_us(part.law, columns, gpu)
        compute_us = terms.compute_us if uses_matrix_units(part.law) else compute_arithmetic_us(part.law, columns, gpu)
        arithmetic[part.rows] = compute_us >= terms.memory_us
        if part.law == "decode":
            time_us = np.maximum(time_us, terms.floor_us + compute_lone_block_us(columns, gpu))
        quantising_us = compute_quantising_us(part.inputs, gpu, weights)
        out["bound_us"][part.rows], out["time_us"][part.rows] = bound, np.maximum(time_us, bound) + quantising_us
        out["floor_us"][part.rows] = terms.floor_us + quantising_us
        for name in ("compute_us", "memory_us"):
            out[name][part.rows] = getattr(terms, name)

    if kernels.height <= CHUNK_ROWS:
        for part in kernels.chunks:
            fill(part)
    else:  # numpy lets go of the interpreter's lock, so threads help
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            list(pool.map(fill, kernels.chunks))
    return ModelTimes(kernels, **out, is_compute_bound=arithmetic)


def compute_quantising_us(rows: LawInputs, gpu: Hardware, weights: Weights) -> Floats:
    """Time that products' benchmarks spend on quantising their input beside them; 0 in jobs and of other formats."""
    time_us = np.zeros(rows.share.size)
    contains = np.flatnonzero(rows.numbers["quantised_input"])
    if contains.size:
        time_us[contains] = evaluate_law(rows.take(contains).get_quantising(), QUANTISE_LAW, gpu, weights)[1]
    return time_us


def classify_bounds(kernels: KernelsByLaw, gpu: Hardware) -> pl.Series:
    """What each kernel's least time depends on, 'compute' or 'memory'; null where the shape isn't known."""
    which = np.full(kernels.height, 2)
    for part in kernels.chunks:
        columns = part.inputs.to_columns(gpu)
        is_arithmetic = compute_arithmetic_us(part.law, columns, gpu) >= compute_bound_us(part.law, columns, gpu)
        which[part.rows] = np.where(is_arithmetic, LIMITERS.index("compute"), LIMITERS.index("memory"))
    return pl.Series("bound_by", [*LIMITERS[:2], None])[which]


def evaluate_law(rows: LawInputs, law: str, gpu: Hardware, weights: Weights) -> tuple[LatencyTerms, Floats]:
    """The law's terms and the time with the learned correction, for rows that share a law.

    No attention that was measured has a mask: the correction is that of the same kernel without one.
    """
    known = rows.without_masks()
    placed = _place_releases(known, law, gpu, weights)
    columns, terms = _compute_law_terms(placed, law, gpu, weights)
    twin = weights.find_twin(law, gpu)
    of_twin = (columns, terms) if twin is None else _compute_law_terms(placed, law, twin, weights)
    learned = np.zeros(rows.share.size)
    grown = weights.get_correction(law, gpu)
    if grown is not None:
        learned = grown.predict(compute_features(law, rows.frameworks, *of_twin, twin or gpu))
    learned *= 1.0 if weights.is_trained_on(law, twin or gpu) else LAWS[law].unseen_gpu_fraction
    correction = LAWS[law].compute_correctable_fraction(terms) * learned
    if known is not rows:
        terms = _compute_law_terms(rows, law, gpu, weights)[1]
        if twin is not None:
            of_twin = _compute_law_terms(rows, law, twin, weights)
    time_us = np.exp(np.log(terms.time_us) + correction)
    if twin is not None:
        there_us = of_twin[1].time_us * np.exp(LAWS[law].compute_correctable_fraction(of_twin[1]) * learned)
        rate = columns["tflops"] / of_twin[0]["tflops"]
        least, most = gpu.bound_time_ratio(twin, rate, law in EXPONENTIAL_LAWS)
        time_us = np.clip(time_us, there_us * least, there_us * most)
    if (law, gpu.slug) in weights.calibrated:
        return _apply_calibration(rows, law, gpu, weights, terms, time_us)
    return terms, time_us


def _apply_calibration(
    rows: LawInputs, law: str, gpu: Hardware, weights: Weights, terms: LatencyTerms, time_us: Floats
) -> tuple[LatencyTerms, Floats]:
    """Move the terms and the time that rows have without a calibration to what was measured on their GPU."""
    own = weights.calibrated[law, gpu.slug]
    correction = (1 + own.trust) * (np.log(time_us) - np.log(terms.time_us))
    if own.architectures:
        shifts = compute_architecture_shifts(rows, law, gpu, weights)
        correction = correction + sum(part * shifts[one] for one, part in own.architectures.items())
    if own.gaussian_process is not None:
        places = compute_coordinates(law, rows.frameworks, rows.to_columns(gpu), terms, gpu)
        correction = correction + own.gaussian_process.predict(places)
    moved = _compute_law_terms(rows, law, gpu, weights, own.offset)[1]
    return moved, np.exp(np.log(moved.time_us) + correction)


def compute_architecture_shifts(rows: LawInputs, law: str, gpu: Hardware, weights: Weights) -> dict[str, Floats]:
    """Compute how log(time) would change with each architecture's correction in place of the one of all GPUs.

    Returns:
        Architecture -> (rows,); empty for a GPU that has a sibling, or was measured.
    """
    others = weights.list_other_corrections(law, gpu)
    if not others:
        return {}
    columns, terms = _compute_law_terms(_place_releases(rows.without_masks(), law, gpu, weights), law, gpu, weights)
    features = compute_features(law, rows.frameworks, columns, terms, gpu)
    shared = LAWS[law].unseen_gpu_fraction * weights.corrections[f"all/{law}"].predict(features)
    part = LAWS[law].compute_correctable_fraction(terms)
    return {architecture: part * (trees.predict(features) - shared) for architecture, trees in others.items()}


def _place_releases(rows: LawInputs, law: str, gpu: Hardware, weights: Weights) -> LawInputs:
    """Rows with releases that the law was fitted to, the others' replaced."""
    if not (rows.numbers["release"] >= 0).any():
        return rows
    fitted = weights.get_law(law).find_alike_kernels(gpu)
    placed = place_releases(law, rows.numbers, rows.frameworks, fitted)
    return replace(rows, numbers={**rows.numbers, "release": placed})


def compute_software_spread(rows: LawInputs, law: str, gpu: Hardware, weights: Weights) -> Floats:
    """Return how far apart, as logarithms, the predictions are of the fitted kernels that engines' kernels may be.

    It is 0 for kernels of whose software all is told, of no engine, or of a release beyond the fitted ones.
    """
    spread = np.zeros(rows.share.size)
    of_law = weights.get_law(law)
    known, alike = of_law.find_kernels(gpu), of_law.find_alike_kernels(gpu)
    for kernel, some in iterate_kernels(law, rows.numbers, rows.frameworks):
        like = [] if known.has(*kernel) else alike.list_like(*kernel)
        told = rows.take(some)
        here = np.log(evaluate_law(told, law, gpu, weights)[1]) if like else 0.0
        for library, release in like:
            numbers = {**told.numbers, "release": np.full(some.size, release)}
            one = replace(told, numbers=numbers, frameworks=np.full(some.size, library, dtype=object))
            apart = np.abs(np.log(evaluate_law(one, law, gpu, weights)[1]) - here)
            spread[some] = np.maximum(spread[some], apart)
    return spread


def _compute_law_terms(
    rows: LawInputs, law: str, gpu: Hardware, weights: Weights, calibrated: Mapping[str, float] | None = None
) -> tuple[Columns, LatencyTerms]:
    columns = rows.to_columns(gpu)
    return columns, LAWS[law].evaluate(
        columns, rows.share, gpu, weights.get_law(law).compute_constants(gpu, rows.frameworks, calibrated)
    )


TILE_COLUMNS = {
    "tile_m": pl.Int64, "tile_n": pl.Int64, "split_k": pl.Int64, "waves": pl.Float64, "kept_ratio": pl.Float64,
}  # fmt: skip
TILED_ATTENTION_LAWS = ("prefill", "encoder", "sequence")
VECTOR_UNIT_LAW = "gemm fp32"


def describe_tiles(kernels: KernelsByLaw, gpu: Hardware, weights: Weights) -> pl.DataFrame:
    """Return the tiles that the laws choose on a GPU.

    Returns:
        One row per kernel: ``tile_m`` (of attention queries), ``tile_n`` (not of attention), ``split_k`` (of attention
        parts of the keys), ``waves``, and of products whose traced tile is known ``kept_ratio``: how many times as long
        they would take with that one; null for kernels that aren't tiled.
    """
    columns = {name: np.full(kernels.table.height, np.nan) for name in TILE_COLUMNS}
    tile_m, tile_n = (kernels.table[name].to_numpy() for name in ("tile_m", "tile_n"))
    for part in kernels.chunks:
        on = part.see(gpu)
        found = _choose_tiles(part, on, weights, (tile_m[part.rows], tile_n[part.rows]))
        if found is not None:
            for name, values in found._asdict().items():
                columns[name][part.rows] = values
    return pl.DataFrame([_to_series(name, columns[name], dtype) for name, dtype in TILE_COLUMNS.items()])


def _choose_tiles(part: LawChunk, gpu: Hardware, weights: Weights, traced: tuple[Floats, Floats]) -> Tiles | None:
    """The tiles of kernels that share a law; None if it has none."""
    x, kind = part.inputs.to_columns(gpu), part.law.split(" ")[0]
    if kind in TILED_ATTENTION_LAWS:
        return choose_query_blocks(x, gpu)
    if kind in ("decode", "latent"):
        return choose_key_blocks(x, gpu)
    if kind not in ("gemm", "moe"):
        return None
    constants = weights.get_law(part.law).compute_constants(gpu, part.inputs.frameworks, None)
    if kind == "moe":
        return choose_expert_tiles(x, gpu, constants)
    return choose_gemm_tiles(x, gpu, constants, traced, on_matrix_units=part.law != VECTOR_UNIT_LAW)


def _to_series(name: str, column: Floats, dtype: pl.DataType | type[pl.DataType]) -> pl.Series:
    return pl.Series(name, column, dtype=pl.Float64, nan_to_null=True).cast(dtype)
