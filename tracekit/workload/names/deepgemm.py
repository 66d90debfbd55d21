"""DeepGEMM, compiled when it first runs, often for the sides of one weight.

``deep_gemm::sm90_fp8_gemm_1d1d_impl<4096u, 2048u, 0u, 32u, 128u, 152u, 128u, ...>``: rows, columns and depth where they
are fixed, groups, tile. Before July 2025 ``deep_gemm::fp8_gemm_kernel<4096u, 7168u, 64u, 160u, 128u, 32u, 4u, 128u,
...>``: columns, depth, tile, groups, stages, threads that load; from May on with two numbers more before the groups.
TensorRT-LLM's and FlashInfer's copies have the former too, and for few rows ``fp8_gemm_kernel_swapAB``, whose tile lies
along the columns first (FlashInfer's csrc/nv_internal/tensorrt_llm/deep_gemm). On Blackwell the majors of both operands
and the scales' granularity come first, groups last.
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

OLDER = rf"{SIDES}, {TILE}, {_named('groups')}, {LOADING_THREADS}"
PADDED = rf"{SIDES}, {TILE}, (?:{NUMBER}, ){{2}}{_named('groups')}, {NUMBER}, "


def _rule(pattern: str, *, column_major: bool = False) -> Rule:
    return Rule(re.compile(pattern), "gemm", dtypes=TYPES, tensor_core=True, column_major=column_major)


RULES = (
    _rule(
        rf"deep_gemm::sm90_(?P<type>fp8|bf16|tf32)_gemm_\w*impl<(?:{MAJOR}){{0,2}}"
        rf"{_named('rows', 'columns', 'depth', 'groups')}, {TILE}"
    ),
    _rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{OLDER}"),
    _rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel_swapAB<{OLDER}", column_major=True),
    _rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{PADDED}"),
    _rule(rf"deep_gemm::sm1\d\d_(?P<type>fp8|bf16)_(?:fp\d_)?gemm_\w*impl<(?:{MAJOR}){{2}}(?:{NUMBER}, ){{5}}{TILE}"),
    _rule(r"deep_gemm::\w*?(?P<type>fp8|bf16|tf32)\w*gemm\w*"),
)
