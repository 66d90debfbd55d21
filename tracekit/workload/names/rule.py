"""What a kernel's name can tell, and the rules that read it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

LONGEST_NUMBER = 9
"""Digits of a number in a name; longer ones are no tiles or sizes."""


@dataclass(frozen=True, slots=True)
class KernelName:
    """What a library wrote into a kernel's name; ``None`` where it says nothing.

    Attributes:
        library: Who wrote the kernel.
        family: Kernel family.
        dtype: Precision that it computes in.
        tile_m: Rows of the output (queries, for attention) that one block computes.
        tile_n: Columns of the output (keys, for attention).
        tile_k: Depth of one pass (the head's size, for attention).
        stages: Passes that are loaded ahead.
        split_k: Whether several blocks share one output tile's depth.
        layout: Of the two operands, ``n`` or ``t`` each, as BLAS means it.
        tensor_core: Whether it runs on tensor cores.
        algorithm: How a collective goes about it.
        batch: GEMMs of equal sides that it computes.
        m: Rows of its output, where it was compiled for them.
        n: Columns of its output.
        k: Length of its dot products.
    """

    library: str
    family: str
    dtype: str | None = None
    tile_m: int | None = None
    tile_n: int | None = None
    tile_k: int | None = None
    stages: int | None = None
    split_k: bool | None = None
    layout: str | None = None
    tensor_core: bool | None = None
    algorithm: str | None = None
    batch: int | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern whose named groups are what it tells, and what all names that match have in common.

    Attributes:
        pattern: Searched for in the whole name. Groups ``m``, ``n``, ``k``, ``stages``, ``layout`` are taken as they
            are; ``groups``, ``rows``, ``columns`` and ``depth`` too, but for 0, which is any number; ``type`` is looked
            up in ``dtypes``.
        family: Of all names that match.
        dtype: Of all names that match, where no group ``type`` tells it.
        dtypes: What the library's words for precisions mean.
        layouts: What the library's words for layouts mean, where they aren't two letters.
        tensor_core: Whether all names that match run on tensor cores; else a group ``mma`` tells it by being there.
        column_major: The library computes the transposed GEMM, as BLAS does for PyTorch: the first side of its tile
            lies along the columns.
        split: What in the name tells that depth is split over blocks.
        algorithms: What the library's words for algorithms mean, a group ``algorithm`` of the pattern.
        rows: Of the output, in all names that match: 1 where they multiply a matrix by a vector.
    """

    pattern: re.Pattern[str]
    family: str
    dtype: str | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    tensor_core: bool | None = None
    column_major: bool = False
    split: re.Pattern[str] | None = None
    algorithms: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None

    def read(self, library: str, name: str) -> KernelName | None:
        """What ``name`` tells; ``None`` if the rule doesn't know it."""
        found = self.pattern.search(name)
        if found is None:
            return None
        groups = found.groupdict()
        layout = groups.get("layout")
        first, second = _number(groups.get("m")), _number(groups.get("n"))
        return KernelName(
            library=library,
            family=self.family,
            dtype=self.dtypes.get(groups.get("type") or "", self.dtype),
            tile_m=self.rows or (second if self.column_major else first),
            tile_n=first if self.column_major else second,
            tile_k=_number(groups.get("k")),
            stages=_number(groups.get("stages")),
            split_k=None if self.split is None else self.split.search(name) is not None,
            layout=None if layout is None else self.layouts.get(layout, layout.lower()),
            tensor_core="mma" in groups and groups["mma"] is not None if self.tensor_core is None else self.tensor_core,
            algorithm=self.algorithms.get(groups.get("algorithm") or ""),
            batch=_number(groups.get("groups")),
            m=_number(groups.get("rows")) or None,
            n=_number(groups.get("columns")) or None,
            k=_number(groups.get("depth")) or None,
        )


def _number(text: str | None) -> int | None:
    return None if text is None or len(text) > LONGEST_NUMBER else int(text)
