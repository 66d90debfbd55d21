"""Fits laws and learned corrections, leaves GPUs out one by one, and turns both into weights."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import polars as pl

from predictors.arrays import Floats, Singles
from predictors.columns import law_columns, prepare, sizes
from predictors.features import ATTENTION_LAWS, features
from predictors.fitted import Fitted, Weights, machine_of
from predictors.law import LAWS
from predictors.machine import ON_MMA, Machine
from predictors.residual import Averaged, Correction, Trees
from predictors.stacks import made_for_mma
from predictors.surface import Spread
from predictors.training.boost import boost
from predictors.training.datasets import load
from predictors.training.descend import descend
from predictors.training.fit_law import Part, fit_law
from predictors.training.published import SOURCE as RATE

LAW_ROWS, LAW_ROWS_IN_ALL = 500, 1500
"""Rows of one framework on one GPU that the law's few constants are fitted on, and of all its frameworks."""
TREE_ROWS = 16000
"""The same for the learned corrections."""
MOST_MISSED = 1.0
"""Of a time beside an exact floor, as a logarithm. Where most of a kernel is its floor or its launch, what is missed of
the rest is anything, and a tree whose leaf holds such kernels only would double a sibling's short ones."""
SHARED_TREES = partial(boost, trees=120, depth=6, rate=0.12, huber=0.3, ridge=20.0)
"""Grows the trees for GPUs that nobody measured: few and shallow, so that they hold there."""
OWN_TREES = partial(boost, trees=450, depth=8, rate=0.3, huber=0.1, ridge=10.0)
"""Those of an architecture that was measured: many and deep, to follow the quirks of its libraries, but with errors
beyond 10 % counting linearly, as those of runs that something else slowed down."""
FINE_FAMILIES = (*ATTENTION_LAWS, "moe")
FINE_TREES = {"huber": 0.05, "passes": 5}
"""What is otherwise for attention and experts, whose libraries' choices take more to follow than those of products."""
SMOOTH_FAMILIES = ("moe",)
NETWORK = partial(descend, perceptrons=3, epochs=150, huber=0.1)
"""Trains what is averaged with the trees of experts: few of all their sizes were measured, and it is smooth between."""
LEAST_PART = 0.1
"""A GPU with less than this share of the median GPU's measurements has no part in the trees for unmeasured ones."""
OWN_LEAST_ROWS = 1000
"""An architecture with fewer measurements of a law gets offsets, but no trees of its own."""
ANONYMOUS_STEP = 3
"""One training row in so many is shown again without its framework."""
TEST_FOLDS = 5
"""One shape in so many is never trained on: it measures the error of a GPU whose other shapes were seen."""


@dataclass(frozen=True)
class Measured:
    """Measurements of one law on one GPU, known by its slug so that a process can hand it to another (`machine_of`).

    Measured kernels, or the rates of large products that somebody published, which the law's constants are fitted to.
    """

    gpu: str
    table: pl.DataFrame

    @cached_property
    def machine(self) -> Machine:
        """The GPU."""
        return machine_of(self.gpu)

    @property
    def board(self) -> str:
        """Slug of the GPU, however its kernels see it."""
        return self.gpu.removesuffix(ON_MMA)

    @property
    def rated(self) -> bool:
        """Whether it is published rates."""
        return bool(self.table["source"][0] == RATE)

    @cached_property
    def unslowed(self) -> Measured:
        """What a GPU can do: of attention kernels of which versions took very different times, the fastest's."""
        fastest = self.table["unslowed_us"]
        if fastest.equals(self.table["latency_us"]):
            return self
        return Measured(self.gpu, self.table.with_columns(latency_us=fastest))

    def shapes(self, test: bool) -> Measured:
        """The shapes that are never trained on, or the others; of published rates, all there is."""
        if self.rated:
            return self
        held = pl.col("shape") % TEST_FOLDS == 0
        return Measured(self.gpu, self.table.filter(held if test else ~held))


@dataclass(frozen=True)
class LawFit:
    """One law fitted: constants, launches of eager measurements, trees for any GPU and for those measured, spread."""

    law: str
    fitted: Fitted
    launches: dict[str, float]
    shared: Trees
    own: dict[str, Correction]
    spread: Spread | None = None

    @property
    def weights(self) -> Weights:
        """As weights that know this law only."""
        return merge([self])


def merge(fits: Sequence[LawFit]) -> Weights:
    """Weights from fitted laws, without interval widths."""
    return Weights(
        laws={f.law: f.fitted for f in fits},
        grown={f"{who}/{f.law}": trees for f in fits for who, trees in {"all": f.shared, **f.own}.items()},
        spreads={f.law: f.spread for f in fits if f.spread is not None},
    )


def measurements(data: Sequence[Path], hold_out: Collection[str] = ()) -> dict[str, list[Measured]]:
    """Measurements by law, one element per GPU and one for its published rates, without the GPUs held out.

    Args:
        data: folders, see `datasets.load`.
        hold_out: slugs.
    """
    rows = load(*data)
    table = prepare(rows).hstack(rows.select("gpu", "source", "latency_us", "unslowed_us", "versions_us"))
    table = table.with_columns(shape=_shape_number())
    out: dict[str, list[Measured]] = {}
    for (law, gpu, _), part in table.group_by("law", "gpu", pl.col("source") == RATE, maintain_order=True):
        if law is None or gpu in hold_out:
            continue
        for measured in _as_seen(str(gpu), part.sort("shape")):
            if not measured.shapes(test=False).table.is_empty():
                out.setdefault(str(law), []).append(measured)
    return out


def _as_seen(gpu: str, table: pl.DataFrame) -> list[Measured]:
    """Kernels made for older matrix units than the GPU's apart from the others."""
    seen = table.with_columns(on_mma=made_for_mma(machine_of(gpu))).partition_by("on_mma", maintain_order=True)
    return [Measured(gpu + ON_MMA * part["on_mma"][0], part) for part in seen]


def fit(law: str, parts: Sequence[Measured], near: LawFit | None = None, left_out: Collection[str] = ()) -> LawFit:
    """Fits one law on the training shapes of some GPUs.

    Args:
        law: its name.
        parts: measurements, of a GPU its kernels, its published rates or both.
        near: a fit of almost the same measurements, to start from; trees of architectures are taken from it.
        left_out: the architectures whose trees are not.
    """
    train = [p.shapes(test=False) for p in parts]
    fitted, launches = fit_law(LAWS[law], [part_of(p.unslowed, LAW_ROWS) for p in train], near.fitted if near else None)
    own = {} if near is None else {a: trees for a, trees in near.own.items() if a not in left_out}
    return _corrected(law, fitted, launches, own, train)


def refit(fitted: LawFit, parts: Sequence[Measured]) -> LawFit:
    """A law with its trees fitted on all shapes: what ships, once the shapes held out have measured its error."""
    trees = _corrected(fitted.law, fitted.fitted, fitted.launches, {}, parts)
    return replace(trees, spread=fitted.spread)


def _corrected(
    law: str, fitted: Fitted, launches: dict[str, float], known: dict[str, Correction], parts: Sequence[Measured]
) -> LawFit:
    """A law with the trees that all GPUs share, and the correction of each architecture where it isn't known.

    A run that was slowed down says nothing of another GPU; of its own it is among what is measured there.
    """
    parts = [part for part in parts if not part.rated]
    many = LEAST_PART * float(np.median([p.table.height for p in parts]))
    sets = [_residuals(law, p, fitted, launches) for p in parts]
    unslowed = [_residuals(law, p.unslowed, fitted, launches) for p in parts if p.table.height >= many]
    shared = SHARED_TREES(*_pooled(unslowed))
    taught = sorted(p.gpu for p in parts if p.table.height >= many)
    own = dict(known)
    family = law.split(" ")[0]
    grow = partial(OWN_TREES, **FINE_TREES) if family in FINE_FAMILIES else OWN_TREES
    for architecture in sorted({s.architecture for s in sets} - own.keys()):
        alike = [s for s in sets if s.architecture == architecture]
        if sum(s.target.size for s in alike) >= OWN_LEAST_ROWS:
            trees = grow(*_pooled(alike))
            own[architecture] = Averaged(trees, NETWORK(*_pooled(alike))) if family in SMOOTH_FAMILIES else trees
    return LawFit(law, replace(fitted, taught=taught), launches, shared, own)


def _shape_number() -> pl.Expr:
    """A number that is the same for the same shape on every GPU, in any version of any library."""
    numbers = ("batch", "m", "n", "k", "rows", "cols", "heads", "kv_heads", "q_len", "kv_len", "head_dim", "window",
               "tokens", "hidden", "inter", "topk", "experts", "tp", "ep")  # fmt: skip
    primes = (3, 7, 31, 127, 8191, 131, 137, 139, 149, 151, 157, 163, 167, 173, 179, 181, 191, 193, 197)
    terms = [pl.col(name).fill_null(0.0) * prime for name, prime in zip(numbers, primes, strict=True)]
    mixed = pl.sum_horizontal(terms).cast(pl.UInt64) * 2654435761 % 4294967296
    return mixed // 65536 + mixed % 65536 * 65536


def part_of(measured: Measured, rows: int) -> Part:
    """What a law is fitted to: a sample of so many rows of each framework on one GPU."""
    table = sample(measured.table, min(rows, LAW_ROWS_IN_ALL // measured.table["framework"].n_unique()))
    return Part(
        measured.machine,
        law_columns(table, measured.machine),
        table["share"].to_numpy(),
        table["framework"].to_numpy().astype(object),
        (table["source"] == "eager").to_numpy(),
        table["latency_us"].to_numpy(),
        measured.rated,
    )


def sample(table: pl.DataFrame, rows: int) -> pl.DataFrame:
    """At most so many rows of each framework; GPUs measured on the same shapes get the same ones."""
    return table.filter(pl.int_range(pl.len()).over("framework") < rows)


@dataclass(frozen=True)
class Residuals:
    """What the law misses on one GPU: features (features, rows), log(measured / law) and weights (rows,)."""

    architecture: str
    features: Singles
    target: Floats
    weight: Floats


def _residuals(law: str, measured: Measured, fitted: Fitted, launches: dict[str, float]) -> Residuals:
    table, gpu = sample(measured.table, TREE_ROWS), measured.machine
    named = _residuals_of(law, table, table, gpu, fitted, launches)
    framed = table.filter(pl.col("framework").is_not_null()).gather_every(ANONYMOUS_STEP)
    if framed.is_empty():
        return named
    # A trace doesn't name its framework: some rows teach what all of them have in common.
    nameless = framed.with_columns(framework=pl.lit(None, dtype=pl.String))
    anonymous = _residuals_of(law, framed, nameless, gpu, fitted, launches)
    return Residuals(
        gpu.architecture,
        np.concatenate([named.features, anonymous.features], axis=1),
        np.concatenate([named.target, anonymous.target]),
        np.concatenate([named.weight, anonymous.weight / ANONYMOUS_STEP]),
    )


def _residuals_of(
    law: str, table: pl.DataFrame, shown: pl.DataFrame, gpu: Machine, fitted: Fitted, launches: dict[str, float]
) -> Residuals:
    """Residuals of rows of which the law and the trees are shown those of `shown`, with other frameworks."""
    columns, frameworks = law_columns(table, gpu), sizes(shown).frameworks
    terms = LAWS[law].at(columns, table["share"].to_numpy(), gpu, fitted.constants(gpu, frameworks))
    kernel = kernel_us(table, launches.get(gpu.slug, 0.0))
    share = kernel / table["latency_us"].to_numpy()
    correctable = LAWS[law].correctable(terms)
    share = share * correctable
    target = np.log(kernel / terms.time_us) / correctable
    if LAWS[law].floor_is_exact:
        target = np.clip(target, -MOST_MISSED, MOST_MISSED)
    weight = share**2 / np.sum(share**2)
    return Residuals(gpu.architecture, features(law, frameworks, columns, terms, gpu), target, weight)


def kernel_us(table: pl.DataFrame, launch_us: float) -> Floats:
    """Measured times without the launch: of eager rows at least a tenth is the kernel."""
    latency = table["latency_us"].to_numpy()
    eager = (table["source"] == "eager").to_numpy()
    return np.where(eager, np.maximum(latency - launch_us, 0.1 * latency), latency)


def _pooled(sets: Sequence[Residuals]) -> tuple[Singles, Floats, Floats]:
    """Features, target and weights of several GPUs together."""
    weight = np.concatenate([s.weight for s in sets])
    features = np.concatenate([s.features for s in sets], axis=1)
    return features, np.concatenate([s.target for s in sets]), weight / weight.mean()


def fit_all(data: dict[str, list[Measured]], jobs: int = 2) -> tuple[Weights, pl.DataFrame]:
    """Fits every law, scores it on what was held out, and fits its trees again on all shapes.

    Args:
        data: from `measurements`.
        jobs: processes.

    Returns:
        The weights, and the scored rows of `evaluate.cross_validate`.
    """
    from predictors.training.evaluate import cross_validate
    from predictors.training.widths import summarise

    # Polars' threads don't survive a fork.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        # The laws with the most GPUs take longest: they go first.
        names = sorted(data, key=lambda law: (-len(data[law]), law))
        results = list(pool.map(cross_validate, names, [data[law] for law in names]))
        ships = list(pool.map(refit, [fitted for fitted, _ in results], [data[law] for law in names]))
    scored = pl.concat([rows for _, rows in results], how="diagonal_relaxed")
    intervals, transfer = summarise(scored)
    weights = merge(ships)
    return replace(weights, intervals=intervals, transfer=transfer), scored
