"""DeepGEMM, compiled when it first runs, often for the sides of one weight.

``deep_gemm::sm90_fp8_gemm_1d1d_impl<4096u, 2048u, 0u, 32u, 128u, 152u, 128u, ...>``: rows, columns and depth where they
are fixed, groups, tile. Before July 2025 ``deep_gemm::fp8_gemm_kernel<4096u, 7168u, 64u, 160u, 128u, 32u, 4u, 128u,
...>``: columns, depth, tile, groups, stages, threads that load; from May on with two numbers more before the groups. On
Blackwell the majors of both factors and the scales' granularity come first, groups last.
"""

import re

from tracekit.workload.names.rule import Rule

TYPES = {"fp8": "fp8", "bf16": "bf16", "tf32": "tf32"}
INTEGER = r"(?:\(unsigned int\))?"
NUMBER = rf"{INTEGER}\d+u?"
MAJOR = r"\(cute::\w+::Major\)\d, "


def _named(*names: str) -> str:
    """Numbers in a row, each a group."""
    return ", ".join(rf"{INTEGER}(?P<{name}>\d+)u?" for name in names)


TILE = _named("m", "n", "k")
SIDES = _named("columns", "depth")
LOADING_THREADS = rf"{INTEGER}\d{{1,2}}u?, {INTEGER}128u?, "
"""Behind the stages."""

RULES = tuple(
    Rule(re.compile(pattern), "gemm", dtypes=TYPES, tensor_core=True)
    for pattern in (
        rf"deep_gemm::sm90_(?P<type>fp8|bf16|tf32)_gemm_\w*impl<(?:{MAJOR}){{0,2}}"
        rf"{_named('rows', 'columns', 'depth', 'groups')}, {TILE}",
        rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{SIDES}, {TILE}, {_named('groups')}, {LOADING_THREADS}",
        rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{SIDES}, {TILE}, (?:{NUMBER}, ){{2}}{_named('groups')}, {NUMBER}, ",
        rf"deep_gemm::sm1\d\d_(?P<type>fp8|bf16)_(?:fp\d_)?gemm_\w*impl<(?:{MAJOR}){{2}}(?:{NUMBER}, ){{5}}{TILE}",
        r"deep_gemm::\w*?(?P<type>fp8|bf16|tf32)\w*gemm\w*",
    )
)
