"""Name rules of DeepGEMM, which is compiled at first use, often for the sizes of one weight.

``deep_gemm::sm90_fp8_gemm_1d1d_impl<4096u, 2048u, 0u, 32u, 128u, 152u, 128u, ...>``: rows, columns and depth where they
are fixed, groups, tile. Before July 2025 ``deep_gemm::fp8_gemm_kernel<4096u, 7168u, 64u, 160u, 128u, 32u, 4u, 128u,
...>``: columns, depth, tile, groups, stages, threads that load; from May on with two more numbers before the groups.
The copies in TensorRT-LLM and FlashInfer have the former too, and for few rows ``fp8_gemm_kernel_swapAB``, whose tile
lies along the columns first (FlashInfer's csrc/nv_internal/tensorrt_llm/deep_gemm). On Blackwell the majors of both
operands and the scales' granularity come first, groups last. ``GemmType`` 0 is one GEMM; the others are those of a
mixture of experts.
"""

import re

from tracekit.workload.names.rule import NameRule

TYPES = {"fp8": "fp8", "bf16": "bf16", "tf32": "tf32", "fp4": "mxfp4"}
INTEGER = r"(?:\(unsigned int\))?"
NUMBER = rf"{INTEGER}\d+u?"
MAJOR = r"\(cute::\w+::Major\)\d, "


def _capture_numbers(*names: str) -> str:
    """Build a pattern of consecutive numbers, each a named group."""
    return ", ".join(rf"{INTEGER}(?P<{name}>\d+)u?" for name in names)


TILE = _capture_numbers("m", "n", "k")
SIDES = _capture_numbers("columns", "depth")
LOADING_THREADS = rf"{INTEGER}\d{{1,2}}u?, {INTEGER}128u?, "
"""Numbers after the stages."""

OLDER_ARGUMENTS = rf"{SIDES}, {TILE}, {_capture_numbers('groups')}, {LOADING_THREADS}"
PADDED_ARGUMENTS = rf"{SIDES}, {TILE}, (?:{NUMBER}, ){{2}}{_capture_numbers('groups')}, {NUMBER}, "


GROUPED = r"^(?=.*(?:GemmType\)[1-9]|\wgrouped_)).*?"


def _make_rule(pattern: str, *, family: str = "gemm", column_major: bool = False) -> NameRule:
    return NameRule(
        re.compile(pattern),
        family,
        grouped_family="moe",
        dtypes=TYPES,
        tensor_core=True,
        column_major=column_major,
    )


RULES = (
    _make_rule(
        rf"deep_gemm::sm90_(?P<type>fp8|bf16|tf32)_gemm_\w*impl<(?:{MAJOR}){{0,2}}"
        rf"{_capture_numbers('rows', 'columns', 'depth', 'groups')}, {TILE}"
    ),
    _make_rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{OLDER_ARGUMENTS}"),
    _make_rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel_swapAB<{OLDER_ARGUMENTS}", column_major=True),
    _make_rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{PADDED_ARGUMENTS}"),
    *(
        _make_rule(
            rf"{grouped}deep_gemm::sm1\d\d_(?P<type>fp8|bf16)_(?:(?P<weights>fp4)_)?gemm_\w*impl<(?:{MAJOR}){{2}}"
            rf"(?:{NUMBER}, ){{5}}{TILE}",
            family=family,
        )
        for grouped, family in ((GROUPED, "moe"), ("", "gemm"))
    ),
    _make_rule(rf"{GROUPED}deep_gemm::\w*?(?P<type>fp8|bf16|tf32)\w*gemm\w*", family="moe"),
    _make_rule(r"deep_gemm::\w*?(?P<type>fp8|bf16|tf32)\w*gemm\w*"),
)
