"""GPU time by module of the model, as a tree; layers that are alike stand in one row."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import polars as pl

from tracekit.units import ranges

_NUMBERED = re.compile(r"(.+)_([0-9]{1,18})")

Shape = tuple[tuple[str, "Shape"], ...]


@dataclass(frozen=True, slots=True)
class ModuleTime:
    """GPU time of one module, or of several that are alike, with all modules inside.

    Attributes:
        path: Path by class, such as ``Llama.LlamaLayer_{0-31}.LlamaMLP``; ``None`` for what no module launched.
        depth: How many modules it is inside of.
        modules: How many modules are meant.
        time_us: Summed time of their kernels per step.
        share: Of all kernels' summed time, percent.
        backward_us: The part of it in the backward pass, recomputed activations included.
        own_us: The part of it that no module inside launched.
        kernels: Their kernels per step.
    """

    path: str | None
    depth: int
    modules: int
    time_us: float
    share: float
    backward_us: float
    own_us: float
    kernels: float


@dataclass(slots=True)
class _Node:
    time_us: float = 0.0
    backward_us: float = 0.0
    own_us: float = 0.0
    kernels: int = 0
    modules: int = 1
    inside: "dict[str, _Node]" = field(default_factory=dict)

    def add(self, time_us: float, backward_us: float, kernels: int) -> None:
        self.time_us += time_us
        self.backward_us += backward_us
        self.kernels += kernels


def build(kernels: pl.DataFrame, steps: int) -> tuple[ModuleTime, ...]:
    """The tree in depth-first order, modules with most time first; nothing where no kernel has a module.

    Args:
        kernels: The chosen steps' kernels.
        steps: How many steps these are.
    """
    if kernels["module"].null_count() == kernels.height:
        return ()
    backward = pl.col("time_us").filter(pl.col("phase") == "backward").sum()
    summed = kernels.group_by("module").agg(pl.col("time_us").sum(), backward=backward, count=pl.len())
    root = _Node()
    for path, time_us, backward_us, count in summed.sort("module").iter_rows():
        _grow(root, path, time_us, backward_us, count)
    return tuple(_rows(root, steps, summed["time_us"].to_numpy().sum() or 1.0))


def _grow(root: _Node, path: str | None, time_us: float, backward_us: float, kernels: int) -> None:
    node = root
    for label in path.split(".") if path else ("",):
        node = node.inside.setdefault(label, _Node())
        node.add(time_us, backward_us, kernels)
    node.own_us += time_us


def _rows(node: _Node, steps: int, whole_us: float, path: str = "", depth: int = 0) -> Iterator[ModuleTime]:
    merged = _merged(node.inside.items())
    for label, inner in sorted(merged, key=lambda item: (not item[0], -item[1].time_us, item[0])):
        own = f"{path}.{label}" if path else label
        yield ModuleTime(
            path=own or None,
            depth=depth,
            modules=inner.modules,
            time_us=inner.time_us / steps,
            share=100 * inner.time_us / whole_us,
            backward_us=inner.backward_us / steps,
            own_us=inner.own_us / steps,
            kernels=inner.kernels / steps,
        )
        yield from _rows(inner, steps, whole_us, own, depth + 1)


def _merged(siblings: Iterable[tuple[str, _Node]]) -> Iterator[tuple[str, _Node]]:
    """Modules of one class with the same modules inside as one; those with none inside stay apart."""
    groups: dict[tuple[str, Shape], list[tuple[str, _Node]]] = {}
    for label, node in siblings:
        found = _NUMBERED.fullmatch(label)
        alike = found.group(1) if found and node.inside else label
        groups.setdefault((alike, _shape(node)), []).append((label, node))
    for (alike, _), group in groups.items():
        if len(group) == 1:
            yield group[0]
        else:
            numbers = sorted(int(label.rpartition("_")[2]) for label, _ in group)
            yield f"{alike}_{{{','.join(ranges(numbers))}}}", _sum([node for _, node in group])


def _shape(node: _Node) -> Shape:
    return tuple(sorted((label, _shape(inner)) for label, inner in node.inside.items()))


def _sum(nodes: list[_Node]) -> _Node:
    """Modules of one shape together."""
    whole = _Node(modules=sum(node.modules for node in nodes))
    for node in nodes:
        whole.add(node.time_us, node.backward_us, node.kernels)
        whole.own_us += node.own_us
    whole.inside = {label: _sum([node.inside[label] for node in nodes]) for label in nodes[0].inside}
    return whole
