"""Name rules of cuBLAS and cuBLASLt: hand-written kernels, xmma, nvjet, and kernels for vectors.

``ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn``: inputs, accumulator and instruction, tile, depth x
stages, layout. ``nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT``: types of input, sum and output, tile, depth x stages,
cluster, then the layouts of both operands and the output. On GeForce Blackwell
``nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN``: tile with its depth, stages, tile of a warp.
"""

import re

from tracekit.workload.names.rule import NameRule

SPLIT = re.compile(r"split_?k", re.IGNORECASE)
# Type by the accumulator's letter, for kernels without matrix instructions.
ACCUMULATOR_TYPES = {"s": "fp32", "d": "fp64", "h": "fp16", "c": "fp32", "gc": "fp32"}
INPUT_TYPES = {"fp16": "fp16", "bf16": "bf16", "tf32": "tf32", "int8": "int8", "s": "tf32", "h": "fp16", "d": "fp64"}
NVJET_DTYPES = {"h": "fp16", "t": "bf16", "s": "tf32", "q": "fp8", "r": "fp8", "d": "fp64", "o": "nvfp4"}
XMMA = {"f16": "fp16", "bf16": "bf16", "tf32": "tf32", "f32": "fp32", "f64": "fp64", "e4m3": "fp8", "e5m2": "fp8",
        "i8": "int8"}  # fmt: skip
TILE = r"(?P<m>\d+)x(?P<n>\d+)"
LAYOUT = r"(?P<layout>[nt]{2})"
XMMA_TYPES = r"[a-z0-9]+_(?P<type>tf32|bf16|f16|f32|f64|e4m3|e5m2|i8)[a-z0-9]*_[a-z0-9]+"
XMMA_TILE = r"tilesize(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:_stage(?P<stages>\d+))?"
TYPES = {"__nv_bfloat16": "bf16", "__half": "fp16", "float": "fp32", "double": "fp64"}
TYPE = rf"(?P<type>{'|'.join(TYPES)})"
OPERAND = rf"cublasGemvTensor\w*<\s*{TYPE}"
"""The first operand among a template's arguments; the types in front of it may be the accumulator's."""
SMALL_GEMM = r"\b(?:gemmSN_[NT]{2}_kernel|gemmk1_kernel)"

MX_RULES = tuple(
    NameRule(
        re.compile(
            rf"\bnvjet_sm\d+_{letter}[a-z]{{2,4}}_{TILE}_(?P<k>\d+)x(?P<stages>\d+)_\w+?vec32UE8M0_\w*?"
            r"(?P<layout>[NT]{2})[NT]\b"
        ),
        "gemm",
        dtype=dtype,
        tensor_core=True,
        column_major=True,
        split=SPLIT,
    )
    for letter, dtype in (("o", "mxfp4"), ("[qr]", "mxfp8"))
)
"""Operands with one byte of scale per 32 elements; nvfp4 has ``vec16UE4M3``."""

RULES = (
    *MX_RULES,
    NameRule(
        re.compile(
            rf"\b(?:volta|turing|ampere|ada|hopper)_(?:[a-z]+\d+_)?[shdi](?P<mma>\d{{3,6}})gemm_"
            rf"(?:(?P<type>fp16|bf16|int8|tf32)_)?(?:[a-z0-9]+_)*?{TILE}(?:_(?!stages)\w+?)?(?:_stages_(?P<k>\d+)x(?P<stages>\d+))?_{LAYOUT}(?:_|$)"
        ),
        "gemm",
        dtype="fp16",
        dtypes=INPUT_TYPES,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(
            rf"\b(?:maxwell|volta|turing|ampere)_(?P<type>gc|[shdc])gemm_(?:[a-z0-9]+_)*?{TILE}(?:_\w+?)?_{LAYOUT}(?:_|$)"
        ),
        "gemm",
        dtypes=ACCUMULATOR_TYPES,
        tensor_core=False,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(rf"xmma_gemm_{XMMA_TYPES}_{LAYOUT}_n_{XMMA_TILE}.*ffma"),
        "gemm",
        dtypes=XMMA,
        tensor_core=False,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(rf"xmma_gemm_{XMMA_TYPES}_{LAYOUT}_n_{XMMA_TILE}"),
        "gemm",
        dtypes=XMMA,
        tensor_core=True,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(
            rf"\bnvjet_(?:sm\d+_)?(?P<type>[a-z])[a-z]{{2,4}}_{TILE}_(?P<k>\d+)x(?P<stages>\d+)_\w+?_(?P<layout>[NT]{{2}})[NT]\b"
        ),
        "gemm",
        dtypes=NVJET_DTYPES,
        tensor_core=True,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(
        re.compile(
            rf"\bnvjet_sm\d+_(?P<type>[a-z])[a-z]{{2,4}}_mma_{TILE}x(?P<k>\d+)_(?P<stages>\d+)_\w+?_(?P<layout>[NT]{{2}})[NT]{{2}}\b"
        ),
        "gemm",
        dtypes=NVJET_DTYPES,
        tensor_core=True,
        column_major=True,
        split=SPLIT,
    ),
    NameRule(re.compile(rf"\b(?:gemv\w*|gemvx::kernel)<.*?{OPERAND}"), "gemm", dtypes=TYPES, tensor_core=False, rows=1),
    NameRule(re.compile(rf"\b(?:gemv\w*|gemvx::kernel)<.*?{TYPE}"), "gemm", dtypes=TYPES, tensor_core=False, rows=1),
    NameRule(re.compile(rf"{SMALL_GEMM}<.*?{OPERAND}"), "gemm", dtypes=TYPES, tensor_core=False),
    NameRule(re.compile(SMALL_GEMM), "gemm", tensor_core=False),
)
