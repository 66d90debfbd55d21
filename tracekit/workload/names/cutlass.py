"""Name rules of CUTLASS 2 and 3, as used by PyTorch, cuBLAS and serving engines.

``cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8``: architecture, unit, input, accumulator and
instruction, tile, depth x stages, layout. The names of CUTLASS 3 have all five types, and end the layout with that of
the output (https://github.com/NVIDIA/cutlass/issues/947). If an engine instantiates CUTLASS 3 itself, the name is the
C++ type: main loop with its stages and cluster, tile, types of the operands, which are pairs with their scales if those
are of blocks. Kineto leaves such long names mangled (``kMaxSymbolSize`` of 1,024 characters in
``libkineto/src/Demangle.cpp``). Grouped GEMMs have a ``GroupProblemShape``; TensorRT-LLM's for a mixture of experts
before Hopper are ``MoeFCGemm`` and ``Fused_Moe_Kernel_sm80``, which have the tile first.
"""

import re
from collections.abc import Mapping

from tracekit.workload.names.rule import NameRule

TYPES = {"bf16": "bf16", "f16": "fp16", "fp16": "fp16", "tf32": "tf32", "e4m3": "fp8", "e5m2": "fp8", "f32": "tf32",
         "s8": "int8", "u8": "int8", "f64": "fp64", "d": "fp64", "h": "fp16", "i": "int8", "f8": "fp8",
         "ue4m3xf4": "nvfp4", "ue4m3xe2m1": "nvfp4", "ue8m0xf4": "mxfp4", "ue8m0xe2m1": "mxfp4", "ue8m0xf8": "mxfp8",
         "ue8m0xe4m3": "mxfp8"}  # fmt: skip
CPP_TYPES = {"bfloat16_t": "bf16", "half_t": "fp16", "float_e4m3_t": "fp8", "float_e5m2_t": "fp8", "tfloat32_t": "tf32",
             "int8_t": "int8", "float": "tf32", "fp8": "fp8", "int8": "int8"}  # fmt: skip
INTEGER = r"(?:\(int\))?"
SIDE = rf"(?:cute::)?C<{INTEGER}"
CPP_TILE = rf"tuple<{SIDE}(?P<m>\d+)>, ?{SIDE}(?P<n>\d+)>, ?{SIDE}(?P<k>\d+)> ?>"
MANGLED_TYPES = {"10bfloat16_t": "bf16", "6half_t": "fp16", "12float_e4m3_t": "fp8", "12float_e5m2_t": "fp8",
                 "10tfloat32_t": "tf32"}  # fmt: skip
BLOCK_SCALED_TYPES = {("float_e2m1_t", "float_ue4m3_t"): "nvfp4", ("float_e2m1_t", "float_ue8m0_t"): "mxfp4",
                      ("float_e4m3_t", "float_ue8m0_t"): "mxfp8",
                      ("float_e5m2_t", "float_ue8m0_t"): "mxfp8"}  # fmt: skip
"""Precision by the type of the elements and that of their scales."""
MANGLED_SIDE = r"NS\w{1,2}_ILi"
# Mangling abbreviates repeated types: a side of the tile that isn't written out equals the one before it.
MANGLED_TILES = (
    rf"{MANGLED_SIDE}(?P<m>\d+)EEE{MANGLED_SIDE}(?P<n>\d+)EEE",
    rf"(?={MANGLED_SIDE}(?P<n>\d+)){MANGLED_SIDE}(?P<m>\d+)EEES\w{{1,2}}_",
)
SPLIT = re.compile(r"split_?k|stream_?k", re.IGNORECASE)
TAIL = r"(?:_[a-z0-9]+)*?_(?P<m>\d+)x(?P<n>\d+)(?:_(?P<k>\d+)x(?P<stages>\d+))?_(?:sliced\w+?_)?"
TYPED = r"(?P<type>(?:bf16|f16|fp16|tf32)(?=_)|[dhi](?=\d))?_?[shdi]?\d+"
GROUPED_OR_NOT = (("moe", r"^(?=.*?GroupProblemShape).*?"), ("gemm", ""))
MAIN_LOOP = (
    rf"CollectiveMma<cutlass::gemm::MainloopSm\d+\w*<{INTEGER}(?P<stages>\d+).*?> ?>[^<]*?>?, ?(?:cute::)?{CPP_TILE}, ?"
)
MANGLED_MAIN_LOOPS = tuple(
    rf"CollectiveMmaI\w*?MainloopSm\d+\w*?ILi(?P<stages>\d+)E\w*?IJ{tile}(?:{MANGLED_SIDE}(?P<k>\d+)EEE|S\w{{1,2}}_)EEE"
    for tile in MANGLED_TILES
)
BLOCK_SCALED_OPERANDS = tuple(
    (rf"{loop}{operand}", dtype)
    for (element, scale), dtype in BLOCK_SCALED_TYPES.items()
    for loops, operand in (
        ((MAIN_LOOP,), rf"(?:cute::)?tuple<(?:cutlass::)?{element}, ?(?:cutlass::)?{scale}"),
        (MANGLED_MAIN_LOOPS, rf"NS\w{{0,2}}_IJNS\w{{0,2}}_\d\d{element}ENS\w{{0,2}}_\d\d{scale}E"),
    )
    for loop in loops
)


def _make_gemm_rule(pattern: str, family: str, dtypes: Mapping[str, str], dtype: str | None = None) -> NameRule:
    return NameRule(re.compile(pattern), family, dtype=dtype, dtypes=dtypes, tensor_core=True, split=SPLIT)


RULES = (
    NameRule(
        re.compile(
            r"MoeFCGemm\w*?GemmShapeILi(?P<m>\d+)ELi(?P<n>\d+)ELi(?P<k>\d+)E"
            r"(?=\w*?_(?P<type>10bfloat16_t|6half_t|12float_e4m3_t))(?=\w*?(?P<weights>integer_subbyteILi4E)|)"
        ),
        "moe",
        dtypes=MANGLED_TYPES | {"integer_subbyteILi4E": "int4"},
        tensor_core=True,
    ),
    NameRule(
        re.compile(
            r"Fused_Moe_Kernel_sm\d+<(?:cutlass::)?(?P<type>bfloat16_t|half_t)(?:, [\w:]+){2}, (?P<m>\d+), (?P<n>\d+), "
            r"(?P<k>\d+), (?P<stages>\d+)"
        ),
        "moe",
        dtypes=CPP_TYPES,
        tensor_core=True,
    ),
    NameRule(
        re.compile(
            r"cutlass3x_sm\d+_(?:bs)?tensorop_(?:[a-z]\d+x\d+x\d+)?gemm_(?:grouped_)?(?:block_scaled_)?"
            r"(?P<type>bf16|f16|tf32|f32|e4m3|e5m2|f8|s8|u8|f64|ue4m3xf4|ue4m3xe2m1|ue8m0xf4|ue8m0xe2m1|ue8m0xf8|ue8m0xe4m3)_"
            r"(?:\w+?_){4}(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_(?:\d+x\d+x\d+_)?(?:\d+_)?(?P<layout>[nt]{2})[nt]"
        ),
        "gemm",
        dtypes=TYPES,
        tensor_core=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(
            r"cutlass3x_sm\d+_simt_(?P<type>[shdc])gemm_(?:\w+?_){5}(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_\d+x\d+x\d+_"
            r"(?P<stages>\d+)_(?P<layout>[nt]{2})[nt]"
        ),
        "gemm",
        dtypes={"s": "fp32", "h": "fp16", "d": "fp64", "c": "fp32"},
        tensor_core=False,
        split=SPLIT,
    ),
    *(
        _make_gemm_rule(f"{grouped}{pattern}", family, {}, dtype)
        for family, grouped in GROUPED_OR_NOT
        for pattern, dtype in BLOCK_SCALED_OPERANDS
    ),
    *(
        _make_gemm_rule(f"{grouped}{pattern}", family, dtypes)
        for family, grouped in GROUPED_OR_NOT
        for pattern, dtypes in (
            (
                rf"{MAIN_LOOP}(?:cutlass::)?(?P<type>bfloat16_t|half_t|float_e4m3_t|float_e5m2_t|tfloat32_t|int8_t|float)\b",
                CPP_TYPES,
            ),
            *(
                (rf"{loop}NS\w{{0,2}}_(?P<type>{'|'.join(MANGLED_TYPES)})E", MANGLED_TYPES)
                for loop in MANGLED_MAIN_LOOPS
            ),
        )
    ),
    NameRule(
        re.compile(rf"cutlass_3x_gemm_(?:sm\d+_)?(?P<type>fp8|int8)\w*<.*?{CPP_TILE}"),
        "gemm",
        dtypes=CPP_TYPES,
        tensor_core=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(rf"cutlass_(?:\d+_)?(?:wmma_)?tensorop_s\d+gemm_(?P<type>bf16|f16){TAIL}(?P<layout>[nt]{{2}})_"),
        "gemm",
        dtypes=TYPES,
        tensor_core=True,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(rf"cutlass_(?:\d+_)?(?:wmma_)?tensorop_{TYPED}gemm{TAIL}(?P<layout>[nt]{{2}})_"),
        "gemm",
        dtype="tf32",
        dtypes=TYPES,
        tensor_core=True,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(rf"cutlass_(?:\d+_)?(?:wmma_)?tensorop_{TYPED}(?:fprop|dgrad|wgrad)(?:_[a-z]+)*{TAIL}"),
        "conv",
        dtype="tf32",
        dtypes=TYPES,
        tensor_core=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(rf"cutlass_\d+_simt_(?P<type>[shdc])gemm{TAIL}(?P<layout>[nt]{{2}})_"),
        "gemm",
        dtypes={"s": "fp32", "h": "fp16", "d": "fp64", "c": "fp32"},
        tensor_core=False,
        column_major=True,
        split=SPLIT,
    ),
)
