"""GPU time by family of kernels, phase of a training step, module of the model, and by what is known of the work."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import numpy as np
import polars as pl

from tracekit.arrays import IN_ORDER, Floats
from tracekit.format import format_ranges
from tracekit.reporting.columns import Column
from tracekit.workload.step_kinds import compute_time_share, compute_time_shares


@dataclass(frozen=True, slots=True)
class FamilyTime:
    """GPU time of one kernel family in the median step.

    Attributes:
        family: Kernel family.
        time_us: Summed time of its kernels per step.
        share: Percent of all kernels' summed time.
        kernels: Kernels per step.
    """

    family: str
    time_us: float
    share: float
    kernels: float


def build_family_times(kernels: pl.DataFrame, steps: int) -> tuple[FamilyTime, ...]:
    """Build the families, longest first."""
    whole = kernels["time_us"].sum() or 1.0
    rows = kernels.lazy().group_by("family").agg(time=pl.col("time_us").sum(), count=pl.len())
    return tuple(
        FamilyTime(family, time / steps, 100 * time / whole, count / steps)
        for family, time, count in rows.sort("time", "family", descending=[True, False])
        .collect(engine=IN_ORDER)
        .iter_rows()
    )


PHASE_ORDER = ("forward", "backward", "optimizer")

# Kernels without an op count as forward. Above this fraction of a training step's time that would be a guess: with
# extensions that PyTorch doesn't see, or graphs without a capture.
MAX_UNKNOWN_FRACTION = 0.25


@dataclass(frozen=True, slots=True)
class PhaseTime:
    """GPU time of one phase in the median step."""

    phase: Annotated[str, Column("Forward, backward or optimizer.", "phase")]
    time_us: Annotated[float, Column("Summed time of its kernels per step.", "time")]
    share: Annotated[float, Column("Of all kernels' summed time, percent.", "of kernel time")]
    kernels: Annotated[float, Column("Kernels per step.", "kernels")]


def build_phase_times(kernels: pl.DataFrame, steps: int) -> tuple[PhaseTime, ...]:
    """Build the phases that have kernels, in order; empty if the phase of too much of a training step is unknown."""
    whole = kernels["time_us"].sum() or 1.0
    unknown = pl.col("time_us").filter(pl.col("op").is_null()).sum()
    rows = kernels.group_by("phase").agg(time=pl.col("time_us").sum(), count=pl.len(), unknown=unknown).rows()
    found = {phase: (time, count) for phase, time, count, _ in rows}
    unknown_us = {phase: time for phase, _, _, time in rows}
    if len(found) > 1 and unknown_us.get(PHASE_ORDER[0], 0.0) > MAX_UNKNOWN_FRACTION * float(whole):
        return ()
    return tuple(
        PhaseTime(phase, time / steps, 100 * time / whole, count / steps)
        for phase in PHASE_ORDER
        if phase in found
        for time, count in [found[phase]]
    )


_NUMBERED_PATTERN = re.compile(r"(.+)_([0-9]{1,18})")

ModuleShape = tuple[tuple[str, "ModuleShape"], ...]


@dataclass(frozen=True, slots=True)
class ModuleTime:
    """GPU time of one module, or of several similar ones, including all modules inside."""

    path: Annotated[
        str | None, Column("Path by class; numbers in braces: modules that are alike. Blank: no module.", "module")
    ]
    depth: Annotated[int, Column("How many modules it is inside of.")]
    modules: Annotated[int, Column("How many modules are meant.", "alike")]
    time_us: Annotated[float, Column("Summed time of their kernels per step, of modules inside too.", "time")]
    share: Annotated[float, Column("Of all kernels' summed time, percent.", "of kernel time")]
    backward_us: Annotated[
        float, Column("The part of it in the backward pass, with recomputed activations.", "backward")
    ]
    own_us: Annotated[float, Column("The part of it that no module inside launched.", "its own")]
    kernels: Annotated[float, Column("Kernels per step.", "kernels")]


@dataclass(slots=True)
class _ModuleNode:
    """A module in the tree of modules.

    Attributes:
        sums: Of it and all modules inside; modules with more of the first come first.
        own: The first of these, of what no module inside launched.
    """

    sums: Floats
    own: float = 0.0
    modules: int = 1
    inside: "dict[str, _ModuleNode]" = field(default_factory=dict)


class ModuleSums(NamedTuple):
    """Sums of one module, or of several similar ones, including all modules inside; the path is None of no module."""

    path: str | None
    depth: int
    modules: int
    sums: Floats
    own: float


def build_module_times(kernels: pl.DataFrame, steps: int) -> tuple[ModuleTime, ...]:
    """Build the tree in depth-first order, modules with most time first; empty if no kernel has a module."""
    if kernels["module"].null_count() == kernels.height:
        return ()
    backward = pl.col("time_us").filter(pl.col("phase") == "backward").sum()
    summed = kernels.group_by("module").agg(pl.col("time_us").sum(), backward=backward, count=pl.len()).sort("module")
    sums = summed[:, 1:].to_numpy().astype(np.float64)
    whole_us = summed["time_us"].to_numpy().sum() or 1.0
    return tuple(
        ModuleTime(
            path=one.path,
            depth=one.depth,
            modules=one.modules,
            time_us=float(one.sums[0]) / steps,
            share=float(100 * one.sums[0] / whole_us),
            backward_us=float(one.sums[1]) / steps,
            own_us=float(one.own) / steps,
            kernels=float(one.sums[2]) / steps,
        )
        for one in sum_by_module(summed["module"].to_list(), sums)
    )


def sum_by_module(paths: Iterable[str | None], sums: Floats) -> Iterator[ModuleSums]:
    """Sum quantities over each module and all inside it, and over modules that are alike, in depth-first order.

    Args:
        paths: The modules' paths, in order.
        sums: A row of quantities for each.
    """
    root = _ModuleNode(np.zeros(sums.shape[1]))
    for path, own in zip(paths, sums, strict=True):
        node = root
        for label in path.split(".") if path else ("",):
            node = node.inside.setdefault(label, _ModuleNode(np.zeros_like(own)))
            node.sums += own
        node.own += own[0]
    return _iter_module_sums(root)


def _iter_module_sums(node: _ModuleNode, path: str = "", depth: int = 0) -> Iterator[ModuleSums]:
    merged = _merge_siblings(node.inside.items())
    for label, inner in sorted(merged, key=lambda item: (not item[0], -item[1].sums[0], item[0])):
        own = f"{path}.{label}" if path else label
        yield ModuleSums(own or None, depth, inner.modules, inner.sums, inner.own)
        yield from _iter_module_sums(inner, own, depth + 1)


def _merge_siblings(siblings: Iterable[tuple[str, _ModuleNode]]) -> Iterator[tuple[str, _ModuleNode]]:
    """Merge modules of one class with the same modules inside; those without inner modules stay separate."""
    groups: dict[tuple[str, ModuleShape], list[tuple[str, _ModuleNode]]] = {}
    for label, node in siblings:
        found = _NUMBERED_PATTERN.fullmatch(label)
        alike = found.group(1) if found and node.inside else label
        groups.setdefault((alike, _get_shape(node)), []).append((label, node))
    for (alike, _), group in groups.items():
        if len(group) == 1:
            yield group[0]
        else:
            numbers = sorted(int(label.rpartition("_")[2]) for label, _ in group)
            yield f"{alike}_{{{','.join(format_ranges(numbers))}}}", _sum_nodes([node for _, node in group])


def _get_shape(node: _ModuleNode) -> ModuleShape:
    return tuple(sorted((label, _get_shape(inner)) for label, inner in node.inside.items()))


def _sum_nodes(nodes: list[_ModuleNode]) -> _ModuleNode:
    """Sum modules of the same shape."""
    whole = _ModuleNode(
        np.sum([node.sums for node in nodes], axis=0),
        own=sum(node.own for node in nodes),
        modules=sum(node.modules for node in nodes),
    )
    whole.inside = {label: _sum_nodes([node.inside[label] for node in nodes]) for label in nodes[0].inside}
    return whole


# Sources of work other than the op that launched the kernel: other kernels or other ops.
INFERRED_SOURCES = ("repeat", "gradients", "model", "projection", "geometry")


@dataclass(frozen=True, slots=True)
class WorkCoverage:
    """GPU time by what is known of the work, in percent.

    Attributes:
        work: The work is known: dimensions, bytes, or a collective's message size.
        inferred: Part of ``work`` that was inferred: from the same kernel elsewhere in the trace, from the gradients
            that an all-reduce sums, or from the launch.
        family: Only the family is known.
        unknown: Not even the family is known.
    """

    work: float
    inferred: float
    family: float
    unknown: float


def build_work_coverage(kernels: pl.DataFrame) -> WorkCoverage:
    """Build the coverage of the chosen steps' kernels."""
    known, other = pl.col("work_from").is_not_null(), pl.col("family") == "other"
    work, family, unknown = compute_time_shares(kernels, "time_us", known, ~known & ~other, ~known & other)
    inferred = compute_time_share(kernels, "time_us", pl.col("work_from").is_in(INFERRED_SOURCES))
    return WorkCoverage(work=work, inferred=inferred, family=family, unknown=unknown)
