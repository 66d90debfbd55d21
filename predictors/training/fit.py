"""Fit laws and learned corrections, leave GPUs out one by one, and merge fits into weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import polars as pl

from predictors.arrays import Floats, Singles
from predictors.columns import prepare_kernels
from predictors.corrections import BOARD_FEATURES, SymmetricTrees, compute_features
from predictors.fitted_kernels import get_key, name_tables
from predictors.gaussian_process import ErrorSpread
from predictors.hardware import MMA_SUFFIX, Hardware
from predictors.kernel_identity import AMD_LIBRARIES, ATTENTION_LAWS, IDENTITY_COLUMNS, is_made_for_mma
from predictors.kernels import MIOPEN_LAWS, name_miopen_laws
from predictors.laws.law import LAWS
from predictors.result import ENGINE
from predictors.training.aiter import TUNED
from predictors.training.boost import boost
from predictors.training.datasets import load_datasets
from predictors.training.disturbed import drop_disturbed
from predictors.training.fit_law import LawData, fit_law
from predictors.training.physics import find_impossible
from predictors.training.published import RATE_SOURCE as RATE
from predictors.training.rates import settle_rates
from predictors.training.views import VIEWS, build_shown_inputs, can_show, show
from predictors.weights_file import LawConstants, Weights, load_hardware

LAW_ROWS_PER_KERNEL, LAW_ROWS_PER_GPU = 500, 1500
"""Rows of one library, engine and release on one GPU that the law's few constants are fitted on, and of all."""
TREE_ROWS_PER_KERNEL, TREE_ROWS_UNNAMED = 6000, 16000
"""The same for the learned corrections, and of kernels without a name."""
TREE_ROWS_WITHOUT = 1000
"""The same of fits that leave a GPU, a class or a release out: how many rows others have matters little there."""
MAX_LOG_ERROR = 1.0
"""Of a time beside an exact floor, as a logarithm. Where most of a kernel is its floor or its launch, what is missed of
the rest is anything, and a tree whose leaf holds such kernels only would double a sibling's short ones."""
SHARED_TREES = partial(boost, trees=120, depth=6, rate=0.12, huber=0.3, ridge=20.0)
"""Fit the trees for unmeasured GPUs: few and shallow, so that they generalize."""
OWN_TREES = partial(boost, trees=450, depth=8, rate=0.3, huber=0.1, ridge=10.0)
"""Those of an architecture that was measured: many and deep, to follow the quirks of its libraries, but with errors
beyond 10 % counting linearly, as those of runs that something else slowed down."""
DETAILED_FAMILIES, DETAILED_LAWS = (*ATTENTION_LAWS, "moe"), ("gemm fp8", "gemm fp8_block")
"""Attention, experts and products in fp8, whose libraries' choices take more to follow than those of other products."""
CONVOLUTION_FAMILY, CONVOLUTION_TREE_ROWS = "miopen", 40000
"""MIOpen's convolutions, whose find databases hold 50,000 of a law on one GPU, and rows of each that trees learn."""
SHARED_CONVOLUTION_TREES = partial(boost, trees=300, depth=8, rate=0.15, huber=0.2, ridge=20.0, rows_per_tree=24000)
"""Those of an AMD GPU nobody measured: its library is MIOpen, too, so they are as detailed as there is data for."""
FEW_ROWS_LAWS = ("sequence",)
"""Laws of which all that is public are hundreds of measurements, without noise."""
FEW_ROWS_TREES = partial(boost, trees=200, depth=5, rate=0.2, huber=0.2, ridge=3.0, passes=5)
MIN_FEW_ROWS = 200
"""Measurements of an architecture from which such a law has trees of its own. Hopper's of fewer, without cuDNN on an
H200, made that worse (16 % median, 9 without them)."""
MIN_MEASUREMENT_FRACTION = 0.1
"""A GPU with less than this share of the median GPU's measurements has no part in the trees for unmeasured ones."""
MIN_ARCHITECTURE_ROWS = 800
"""An architecture with fewer measurements of a law gets offsets, but no trees of its own."""
MIN_RELEASE_ROWS = 20
"""Measurements of a library's kernels in an engine's release on one GPU that make them fitted."""
VIEW_ROW_STEP = 3
"""One training row in so many is shown again in each view that tells less of it."""
TEST_FOLDS = 5
"""One of this many shapes is never trained on. It measures the error on a GPU whose other shapes were trained on."""


@dataclass(frozen=True)
class TreeSettings:
    """How the trees of a law are fitted.

    Attributes:
        shared: Fits those for unmeasured GPUs.
        own: Fits those of an architecture.
        unnamed_rows: Rows of one GPU's kernels without a name.
        min_own_rows: Measurements of an architecture from which it has trees of its own.
        enough_to_share: Measurements with which a GPU has a part in the shared trees, however many others have.
    """

    shared: Callable[..., SymmetricTrees]
    own: Callable[..., SymmetricTrees]
    unnamed_rows: int = TREE_ROWS_UNNAMED
    min_own_rows: int = MIN_ARCHITECTURE_ROWS
    enough_to_share: float = np.inf


def choose_tree_settings(law: str) -> TreeSettings:
    """Choose how the trees of a law are fitted."""
    family = law.split(" ")[0]
    if law in FEW_ROWS_LAWS:
        return TreeSettings(SHARED_TREES, FEW_ROWS_TREES, min_own_rows=MIN_FEW_ROWS)
    if family in DETAILED_FAMILIES or law in DETAILED_LAWS:
        return TreeSettings(SHARED_TREES, partial(OWN_TREES, huber=0.05, passes=5))
    if family == CONVOLUTION_FAMILY:
        own = partial(OWN_TREES, rows_per_tree=24000)
        return TreeSettings(SHARED_CONVOLUTION_TREES, own, CONVOLUTION_TREE_ROWS, enough_to_share=MIN_ARCHITECTURE_ROWS)
    return TreeSettings(SHARED_TREES, OWN_TREES)


@dataclass(frozen=True)
class LawMeasurements:
    """Measurements of one law on one GPU.

    The GPU is stored as its slug so that the object can be sent to another process (``load_hardware``).
    """

    gpu: str
    table: pl.DataFrame

    @cached_property
    def hardware(self) -> Hardware:
        """The GPU."""
        return load_hardware(self.gpu)

    @property
    def board(self) -> str:
        """Slug of the GPU, however its kernels see it."""
        return self.gpu.removesuffix(MMA_SUFFIX)

    @property
    def is_published_rate(self) -> bool:
        """Whether it is published rates."""
        return bool(self.table["source"][0] == RATE)

    def select_shapes(self, test: bool) -> LawMeasurements:
        """The shapes that are never trained on, or the others; of published rates, all there is."""
        if self.is_published_rate:
            return self
        held = pl.col("fold") % TEST_FOLDS == 0
        return LawMeasurements(self.gpu, self.table.filter(held if test else ~held))


@dataclass(frozen=True)
class LawFit:
    """Fit of one law: constants, launch times, corrections for unmeasured and for measured GPUs, spread."""

    law: str
    fitted: LawConstants
    launch_us: dict[str, float]
    shared_trees: SymmetricTrees
    architecture_corrections: dict[str, SymmetricTrees]
    spread: ErrorSpread | None = None

    @property
    def weights(self) -> Weights:
        """As weights that know this law only."""
        return merge_fits([self])


def extract_fit(weights: Weights, law: str) -> LawFit:
    """Return the fit that a law's weights were made of; what launches took isn't kept."""
    trees = {name.partition("/")[0]: of for name, of in weights.corrections.items() if name.partition("/")[2] == law}
    return LawFit(law, weights.laws[law], {}, trees.pop("all"), trees, weights.spreads.get(law))


def merge_fits(fits: Sequence[LawFit]) -> Weights:
    """Weights from fitted laws, without interval widths."""
    return Weights(
        laws={f.law: f.fitted for f in fits},
        corrections={
            f"{who}/{f.law}": trees
            for f in fits
            for who, trees in {"all": f.shared_trees, **f.architecture_corrections}.items()
        },
        spreads={f.law: f.spread for f in fits if f.spread is not None},
    )


def load_measurements(
    data: Sequence[Path], hold_out: Collection[str] = (), gpus: Collection[str] | None = None
) -> dict[str, list[LawMeasurements]]:
    """Measurements by law, one element per GPU and one for its published rates, without the GPUs held out.

    Args:
        data: Folders, see ``datasets.load_datasets``.
        hold_out: Slugs.
        gpus: Slugs of the GPUs to load; all by default.
    """
    rows = load_datasets(*data, gpus=gpus)
    table = prepare_kernels(rows).hstack(rows.select("gpu", "source", "latency_us"))
    amd = [gpu for gpu in table["gpu"].unique() if load_hardware(gpu).gpu.vendor == "amd"]
    table = table.with_columns(name_miopen_laws(pl.col("gpu").is_in(amd)))
    table = table.with_columns(shape=hash_shape()).with_columns(fold=_choose_fold())
    table = drop_disturbed(table)
    out: dict[str, list[LawMeasurements]] = {}
    for (law, gpu, _), part in table.group_by("law", "gpu", pl.col("source") == RATE, maintain_order=True):
        if law is None or gpu in hold_out:
            continue
        for measured in _split_by_matrix_units(str(gpu), part.sort("shape")):
            possible = _drop_impossible(str(law), measured)
            if not possible.select_shapes(test=False).table.is_empty():
                out.setdefault(str(law), []).append(possible)
    return out


def _drop_impossible(law: str, measured: LawMeasurements) -> LawMeasurements:
    if measured.is_published_rate:
        return measured
    return replace(measured, table=measured.table.filter(~find_impossible(law, measured.table, measured.hardware)))


def _split_by_matrix_units(gpu: str, table: pl.DataFrame) -> list[LawMeasurements]:
    """Kernels made for older matrix units than the GPU's apart from the others."""
    seen = table.with_columns(on_mma=is_made_for_mma(load_hardware(gpu))).partition_by("on_mma", maintain_order=True)
    return [LawMeasurements(gpu + MMA_SUFFIX * part["on_mma"][0], part) for part in seen]


def fit_law_and_corrections(
    law: str, parts: Sequence[LawMeasurements], near: LawFit | None = None, left_out: Collection[str] = ()
) -> LawFit:
    """Fits one law on the training shapes of some GPUs.

    Args:
        law: Name of the law.
        parts: Measurements: kernels of a GPU, its published rates, or both.
        near: Fit of almost the same measurements to start from. Corrections of architectures are taken from it.
        left_out: Architectures whose corrections are not taken from it.
    """
    train = [p.select_shapes(test=False) for p in parts]
    fitted, launches = fit_law(
        LAWS[law],
        [sample_law_data(p, LAW_ROWS_PER_KERNEL) for p in train],
        near.fitted if near else None,
    )
    own = {} if near is None else {a: trees for a, trees in near.architecture_corrections.items() if a not in left_out}
    rows = TREE_ROWS_PER_KERNEL if near is None else TREE_ROWS_WITHOUT
    return settle_rates(_fit_corrections(law, fitted, launches, own, train, rows), train)


def refit_corrections(fitted: LawFit, parts: Sequence[LawMeasurements]) -> LawFit:
    """A law with its trees fitted on all shapes: what ships, once the shapes held out have measured its error."""
    trees = _fit_corrections(fitted.law, fitted.fitted, fitted.launch_us, {}, parts)
    return replace(settle_rates(trees, parts), spread=fitted.spread)


def _fit_corrections(
    law: str,
    fitted: LawConstants,
    launches: dict[str, float],
    known: dict[str, SymmetricTrees],
    parts: Sequence[LawMeasurements],
    rows: int = TREE_ROWS_PER_KERNEL,
) -> LawFit:
    """Fit the trees that all GPUs share, and the correction of each architecture that has none yet."""
    parts, settings = [part for part in parts if not part.is_published_rate], choose_tree_settings(law)
    share = MIN_MEASUREMENT_FRACTION * float(np.median([p.table.height for p in parts]))
    many = min(share, settings.enough_to_share)
    sets = [_compute_targets(law, p, fitted, launches, rows) for p in parts]
    common = [s for p, s in zip(parts, sets, strict=True) if p.table.height >= many]
    features, *targets = _pool_targets(common)
    shared = settings.shared(features[:-BOARD_FEATURES], *targets)
    taught = sorted(p.gpu for p in parts if p.table.height >= many)
    own = dict(known)
    for architecture in sorted({s.architecture for s in sets} - own.keys()):
        alike = [s for s in sets if s.architecture == architecture]
        if sum(s.target.size for s in alike) >= settings.min_own_rows:
            own[architecture] = settings.own(*_pool_targets(alike))
    return LawFit(law, replace(fitted, taught=taught, releases=list_releases(law, parts)), launches, shared, own)


def fit_own_trees(law: str, part: LawMeasurements, fitted: LawConstants) -> SymmetricTrees:
    """Fit the correction of an architecture to one GPU's measurements, none of which includes a launch."""
    targets = _compute_targets(law, part, fitted, {}, TREE_ROWS_PER_KERNEL)
    return choose_tree_settings(law).own(*_pool_targets([targets]))


def list_releases(law: str, parts: Sequence[LawMeasurements]) -> dict[str, dict[str, list[float]]]:
    """Return the releases of engines' kernels that each GPU was measured on, as ``LawConstants.releases``."""
    return {part.gpu: found for part in parts if (found := _list_releases_of_gpu(law, part.table))}


def _list_releases_of_gpu(law: str, table: pl.DataFrame) -> dict[str, list[float]]:
    head_dim, batch = (table[name].cast(pl.Float64).fill_null(1.0).to_numpy() for name in ("head_dim", "batch"))
    names, second = name_tables(law, head_dim, batch)
    named = table.select("engine", library="framework", release="release", table=pl.Series(names).gather(second * 1))
    kernel = ["table", "engine", "library", "release"]
    counted = named.drop_nulls().group_by(kernel).len().filter(pl.col("len") >= MIN_RELEASE_ROWS).sort(kernel)
    found: dict[str, list[float]] = {}
    for name, engine, library, release in counted.select(kernel).iter_rows():
        found.setdefault(get_key(name, engine, library), []).append(release)
    return found


_SHAPE_COLUMNS = ("batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "window",
               "tokens", "hidden", "inter", "topk", "experts", "tp", "ep")  # fmt: skip
_WEIGHT_COLUMNS = ("batch", "n", "k", "hidden", "inter", "topk", "experts", "tp", "ep", "cols")
"""Of these, what products, experts and quantising have in common whatever the number of their tokens."""
_PRIMES = (3, 7, 31, 127, 8191, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197)


def _hash_columns(names: Sequence[str]) -> pl.Expr:
    """A number that is the same for the same shape on every GPU, in any version of any library."""
    return _mix([pl.col(name).fill_null(0.0) for name in names])


def hash_weights() -> pl.Expr:
    """A number of the weights that a kernel works with: a ``fold`` that holds them out with all numbers of tokens."""
    return _hash_columns(_WEIGHT_COLUMNS)


def _mix(numbers: Sequence[pl.Expr]) -> pl.Expr:
    terms = [number * prime for number, prime in zip(numbers, _PRIMES, strict=False)]
    mixed = pl.sum_horizontal(terms).cast(pl.UInt64) * 2654435761 % 4294967296
    return mixed // 65536 + mixed % 65536 * 65536


def hash_shape() -> pl.Expr:
    """The same; of MIOpen's convolutions the pass and the images count, too."""
    passes = [pl.col("direction") == one for one in ("dgrad", "wgrad")]
    images = [pl.col(name).fill_null(0.0) for name in ("height", "width", "bytes")]
    convolution = _mix([*(pl.col(name) for name in ("batch", "m", "n", "k")), *images, *passes])
    return pl.when(_is_of_miopen()).then(convolution).otherwise(_hash_columns(_SHAPE_COLUMNS))


def _is_of_miopen() -> pl.Expr:
    return pl.col("law").is_in(MIOPEN_LAWS).fill_null(value=False)


def _choose_fold() -> pl.Expr:
    """What decides whether a shape is held out: of tuners' rows, many of which have one weight, that weight.

    With its neighbours of the same weight in the fit, a shape would say nothing of other models'. Of MIOpen's
    convolutions it is that too: groups, filters and what each filter sees, in whatever pass.
    """
    forward, of_weights = pl.col("direction") == "forward", pl.col("direction") == "wgrad"
    filters = pl.when(forward).then("n").when(of_weights).then("m").otherwise("k")
    convolution = _mix([_mix([pl.col("batch"), filters, pl.when(forward).then("k").otherwise("n")]).cast(pl.Float64)])
    return (
        pl.when(pl.col("source") == TUNED)
        .then(hash_weights())
        .when(_is_of_miopen())
        .then(convolution)
        .otherwise("shape")
    )


def sample_law_data(measured: LawMeasurements, rows: int) -> LawData:
    """What a law is fitted to: a sample of each kernel's rows on one GPU, named by the library and by the engine."""
    kernels = measured.table.select(pl.struct(IDENTITY_COLUMNS).n_unique()).item()
    table = sample_rows(measured.table, min(rows, LAW_ROWS_PER_GPU // kernels))
    both = table.filter(can_show(ENGINE) & (pl.col("framework") != pl.col("engine")))
    known, shown = pl.concat([table, both]), pl.concat([table, show(both, ENGINE)])
    return LawData(
        measured.hardware,
        build_shown_inputs(known, shown).to_columns(measured.hardware),
        known["share"].to_numpy(),
        _forget_amd_libraries(shown).to_numpy().astype(object),
        (known["source"] == "eager").to_numpy(),
        known["latency_us"].to_numpy(),
        measured.is_published_rate,
    )


def _forget_amd_libraries(shown: pl.DataFrame) -> pl.Series:
    """Frameworks of rows; of AMD's products none, which would shift those of NVIDIA's kernels without a name."""
    amd = pl.col("framework").is_in(AMD_LIBRARIES) & pl.col("family").is_in(["gemm", "moe"])
    return shown.select(pl.when(~amd.fill_null(value=False)).then("framework").alias("framework"))["framework"]


def sample_rows(table: pl.DataFrame, rows: int, unnamed: int | None = None) -> pl.DataFrame:
    """At most so many rows of each kernel; GPUs measured on the same shapes get the same ones.

    Args:
        table: Rows in the order of their shapes.
        rows: Of one library, engine and release.
        unnamed: Of kernels without a name, if other.
    """
    limit = pl.when(pl.col("framework").is_null()).then(rows if unnamed is None else unnamed).otherwise(rows)
    return table.filter(pl.int_range(pl.len()).over(IDENTITY_COLUMNS) < limit)


@dataclass(frozen=True)
class CorrectionTargets:
    """What the law misses on one GPU: features (features, rows), log(measured / law) and weights (rows,)."""

    architecture: str
    features: Singles
    target: Floats
    weight: Floats


def _compute_targets(
    law: str, measured: LawMeasurements, fitted: LawConstants, launches: dict[str, float], rows: int
) -> CorrectionTargets:
    table, gpu = sample_rows(measured.table, rows, choose_tree_settings(law).unnamed_rows), measured.hardware
    told = [compute_row_targets(law, table, table, gpu, fitted, launches)]
    for view in VIEWS:
        some = table.filter(can_show(view)).gather_every(VIEW_ROW_STEP)
        if not some.is_empty():
            less = compute_row_targets(law, some, show(some, view), gpu, fitted, launches)
            told.append(replace(less, weight=less.weight / VIEW_ROW_STEP))
    return CorrectionTargets(
        gpu.architecture,
        np.concatenate([one.features for one in told], axis=1),
        np.concatenate([one.target for one in told]),
        np.concatenate([one.weight for one in told]),
    )


def compute_row_targets(
    law: str, table: pl.DataFrame, shown: pl.DataFrame, gpu: Hardware, fitted: LawConstants, launches: dict[str, float]
) -> CorrectionTargets:
    """Residuals of rows of which the law and the trees are told what `shown` tells (``views.show``)."""
    inputs = build_shown_inputs(table, shown)
    columns, frameworks = inputs.to_columns(gpu), inputs.frameworks
    terms = LAWS[law].evaluate(columns, table["share"].to_numpy(), gpu, fitted.compute_constants(gpu, frameworks))
    kernel = subtract_launch_us(table, launches.get(gpu.slug, 0.0))
    share = kernel / table["latency_us"].to_numpy()
    correctable = LAWS[law].compute_correctable_fraction(terms)
    share = share * correctable
    target = np.log(kernel / terms.time_us) / correctable
    if LAWS[law].floor_is_exact:
        target = np.clip(target, -MAX_LOG_ERROR, MAX_LOG_ERROR)
    weight = share**2 / np.sum(share**2)
    return CorrectionTargets(gpu.architecture, compute_features(law, frameworks, columns, terms, gpu), target, weight)


def subtract_launch_us(table: pl.DataFrame, launch_us: float) -> Floats:
    """Measured times without the launch: of eager rows at least a tenth is the kernel."""
    latency = table["latency_us"].to_numpy()
    eager = (table["source"] == "eager").to_numpy()
    return np.where(eager, np.maximum(latency - launch_us, 0.1 * latency), latency)


def _pool_targets(sets: Sequence[CorrectionTargets]) -> tuple[Singles, Floats, Floats]:
    """Features, target and weights of several GPUs together."""
    weight = np.concatenate([s.weight for s in sets])
    features = np.concatenate([s.features for s in sets], axis=1)
    return features, np.concatenate([s.target for s in sets]), weight / weight.mean()
