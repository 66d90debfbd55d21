"""Rules that parse a kernel's name, and their result."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from tracekit.bounds import MAX_NAME_DIGITS


@dataclass(frozen=True, slots=True)
class KernelName:
    """Facts that a library wrote into a kernel's name; ``None`` where the name has none.

    Attributes:
        dtype: Precision that it computes in.
        weight_dtype: Precision that its weights are stored in, where that isn't ``dtype``.
        tile_m: Rows of the output (queries, for attention) that one block computes.
        tile_n: Columns of the output (keys, for attention).
        tile_k: Depth of one pass (the head's size, for attention).
        stages: Passes that are loaded ahead.
        split_k: Whether several blocks split the depth of one output tile.
        layout: Layouts of the two operands, ``n`` or ``t`` each, as in BLAS.
        tensor_core: Whether it runs on tensor cores.
        algorithm: Algorithm of a collective.
        batch: GEMMs of equal sizes that it computes.
        m: Rows of its output, if it was compiled for them.
        n: Columns of its output.
        k: Length of its dot products.
    """

    family: str
    dtype: str | None = None
    weight_dtype: str | None = None
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
class NameRule:
    """A pattern with named groups, and the facts that all matching names have in common.

    Attributes:
        pattern: Searched for in the whole name. Groups ``m``, ``n``, ``k``, ``stages``, ``layout`` are taken as they
            are; ``groups``, ``rows``, ``columns`` and ``depth`` too, except for 0, which means any number; ``type`` and
            ``weights`` are looked up in ``dtypes``.
        family: Family of all matching names.
        grouped_family: Family of matching names with several ``groups``, if it is another.
        dtype: Precision of all matching names without a group ``type``.
        dtypes: Precision by the library's word for it.
        layouts: Layout by the library's word for it, if that isn't two letters.
        tensor_core: Whether all matching names run on tensor cores; if None, those with a group ``mma`` do.
        column_major: Whether the library computes the transposed GEMM, as BLAS does for PyTorch: then the first side of
            its tile lies along the columns.
        split: Pattern of names whose depth is split over blocks.
        algorithms: Algorithm by the library's word for it, a group ``algorithm`` of the pattern.
        rows: Rows of the output of all matching names: 1 if they multiply a matrix by a vector.
        contained: Text in all matching names. The pattern is compiled at the first name with it: that takes longer than
            all of a small trace's searches.
    """

    pattern: str
    family: str
    grouped_family: str | None = None
    dtype: str | None = None
    dtypes: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, str] = field(default_factory=dict)
    tensor_core: bool | None = None
    column_major: bool = False
    split: str | None = None
    algorithms: Mapping[str, str] = field(default_factory=dict)
    rows: int | None = None
    contained: str = ""

    def parse(self, name: str) -> KernelName | None:
        """Parse ``name``; return ``None`` if the rule doesn't match."""
        found = _compile(self.pattern).search(name) if self.contained in name else None
        if found is None:
            return None
        groups = found.groupdict()
        layout, batch = groups.get("layout"), _parse_number(groups.get("groups"))
        dtype = self.dtypes.get(groups.get("type") or "", self.dtype)
        weight_dtype = self.dtypes.get(groups.get("weights") or "", dtype)
        first, second = _parse_number(groups.get("m")), _parse_number(groups.get("n"))
        return KernelName(
            family=self.grouped_family if self.grouped_family and (batch or 0) > 1 else self.family,
            dtype=dtype,
            weight_dtype=None if weight_dtype == dtype else weight_dtype,
            tile_m=self.rows or (second if self.column_major else first),
            tile_n=first if self.column_major else second,
            tile_k=_parse_number(groups.get("k")),
            stages=_parse_number(groups.get("stages")),
            split_k=None if self.split is None else re.search(self.split, name) is not None,
            layout=None if layout is None else self.layouts.get(layout, layout.lower()),
            tensor_core="mma" in groups and groups["mma"] is not None if self.tensor_core is None else self.tensor_core,
            algorithm=self.algorithms.get(groups.get("algorithm") or ""),
            batch=batch,
            m=_parse_number(groups.get("rows")) or None,
            n=_parse_number(groups.get("columns")) or None,
            k=_parse_number(groups.get("depth")) or None,
        )


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _parse_number(text: str | None) -> int | None:
    return None if text is None or len(text) > MAX_NAME_DIGITS else int(text)
