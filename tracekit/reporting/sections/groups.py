"""GPU time by family of kernels, phase of a training step, module of the model, and by what is known of the work."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Annotated

import polars as pl

from tracekit.arrays import IN_ORDER
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
    time_us: float = 0.0
    backward_us: float = 0.0
    own_us: float = 0.0
    kernels: int = 0
    modules: int = 1
    inside: "dict[str, _ModuleNode]" = field(default_factory=dict)

    def add(self, time_us: float, backward_us: float, kernels: int) -> None:
        self.time_us += time_us
        self.backward_us += backward_us
        self.kernels += kernels


def build_module_times(kernels: pl.DataFrame, steps: int) -> tuple[ModuleTime, ...]:
    """Build the tree in depth-first order, modules with most time first; empty if no kernel has a module."""
    if kernels["module"].null_count() == kernels.height:
        return ()
    backward = pl.col("time_us").filter(pl.col("phase") == "backward").sum()
    summed = kernels.group_by("module").agg(pl.col("time_us").sum(), backward=backward, count=pl.len())
    root = _ModuleNode()
    for path, time_us, backward_us, count in summed.sort("module").iter_rows():
        _add_path(root, path, time_us, backward_us, count)
    return tuple(_iter_module_times(root, steps, summed["time_us"].to_numpy().sum() or 1.0))


def _add_path(root: _ModuleNode, path: str | None, time_us: float, backward_us: float, kernels: int) -> None:
    node = root
    for label in path.split(".") if path else ("",):
        node = node.inside.setdefault(label, _ModuleNode())
        node.add(time_us, backward_us, kernels)
    node.own_us += time_us


def _iter_module_times(
    node: _ModuleNode, steps: int, whole_us: float, path: str = "", depth: int = 0
) -> Iterator[ModuleTime]:
    merged = _merge_siblings(node.inside.items())
    for label, inner in sorted(merged, key=lambda item: (not item[0], -item[1].time_us, item[0])):
        own = f"{path}.{label}" if path else label
        yield ModuleTime(
            path=own or None,
            depth=depth,
            modules=inner.modules,
            time_us=inner.time_us / steps,
            share=float(100 * inner.time_us / whole_us),
            backward_us=inner.backward_us / steps,
            own_us=inner.own_us / steps,
            kernels=inner.kernels / steps,
        )
        yield from _iter_module_times(inner, steps, whole_us, own, depth + 1)


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
    whole = _ModuleNode(modules=sum(node.modules for node in nodes))
    for node in nodes:
        whole.add(node.time_us, node.backward_us, node.kernels)
        whole.own_us += node.own_us
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
