"""Name rules of NVIDIA: cuBLAS, cuDNN, cuSPARSELt, CUTLASS, DeepGEMM, TensorRT-LLM."""

from functools import partial

from tracekit.workload.names.rule import NameRule

SPLIT = r"(?i)split_?k"
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
GEMV_TYPES = {"__nv_bfloat16": "bf16", "__half": "fp16", "float": "fp32", "double": "fp64"}
GEMV_TYPE = rf"(?P<type>{'|'.join(GEMV_TYPES)})"
OPERAND = rf"cublasGemvTensor\w*<\s*{GEMV_TYPE}"
"""The first operand among a template's arguments; the types in front of it may be the accumulator's."""
SMALL_GEMM = r"\b(?:gemmSN_[NT]{2}_kernel|gemmk1_kernel)"

_cublas = partial(NameRule, family="gemm", column_major=True, split=SPLIT)
_on_vectors = partial(NameRule, family="gemm", tensor_core=False)

MX_RULES = tuple(
    _cublas(
        rf"\bnvjet_sm\d+_{letter}[a-z]{{2,4}}_{TILE}_(?P<k>\d+)x(?P<stages>\d+)_\w+?vec32UE8M0_\w*?"
        r"(?P<layout>[NT]{2})[NT]\b",
        dtype=dtype,
        tensor_core=True,
    )
    for letter, dtype in (("o", "mxfp4"), ("[qr]", "mxfp8"))
)
"""Operands with one byte of scale per 32 elements; nvfp4 has ``vec16UE4M3``."""

CUBLAS_RULES = (
    *MX_RULES,
    _cublas(
        rf"\b(?:volta|turing|ampere|ada|hopper)_(?:[a-z]+\d+_)?[shdi](?P<mma>\d{{3,6}})gemm_"
        rf"(?:(?P<type>fp16|bf16|int8|tf32)_)?(?:[a-z0-9]+_)*?{TILE}(?:_(?!stages)\w+?)?(?:_stages_(?P<k>\d+)x(?P<stages>\d+))?_{LAYOUT}(?:_|$)",
        dtype="fp16",
        dtypes=INPUT_TYPES,
    ),
    _cublas(
        rf"\b(?:maxwell|volta|turing|ampere)_(?P<type>gc|[shdc])gemm_(?:[a-z0-9]+_)*?{TILE}(?:_\w+?)?_{LAYOUT}(?:_|$)",
        dtypes=ACCUMULATOR_TYPES,
        tensor_core=False,
    ),
    _cublas(rf"xmma_gemm_{XMMA_TYPES}_{LAYOUT}_n_{XMMA_TILE}.*ffma", dtypes=XMMA, tensor_core=False),
    _cublas(rf"xmma_gemm_{XMMA_TYPES}_{LAYOUT}_n_{XMMA_TILE}", dtypes=XMMA, tensor_core=True),
    _cublas(
        rf"\bnvjet_(?:sm\d+_)?(?P<type>[a-z])[a-z]{{2,4}}_{TILE}_(?P<k>\d+)x(?P<stages>\d+)_\w+?_(?P<layout>[NT]{{2}})[NT]\b",
        dtypes=NVJET_DTYPES,
        tensor_core=True,
    ),
    _cublas(
        rf"\bnvjet_sm\d+_(?P<type>[a-z])[a-z]{{2,4}}_mma_{TILE}x(?P<k>\d+)_(?P<stages>\d+)_\w+?_(?P<layout>[NT]{{2}})[NT]{{2}}\b",
        dtypes=NVJET_DTYPES,
        tensor_core=True,
    ),
    _on_vectors(rf"\b(?:gemv\w*|gemvx::kernel)<.*?{OPERAND}", dtypes=GEMV_TYPES, rows=1),
    _on_vectors(rf"\b(?:gemv\w*|gemvx::kernel)<.*?{GEMV_TYPE}", dtypes=GEMV_TYPES, rows=1),
    _on_vectors(rf"{SMALL_GEMM}<.*?{OPERAND}", dtypes=GEMV_TYPES),
    _on_vectors(SMALL_GEMM),
)
"""cuBLAS and cuBLASLt: hand-written kernels, xmma, nvjet, and kernels for vectors.

``ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn``: inputs, accumulator and instruction, tile, depth x
stages, layout. ``nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT``: types of input, sum and output, tile, depth x stages,
cluster, then the layouts of both operands and the output. On GeForce Blackwell
``nvjet_sm120_tst_mma_64x64x128_3_32x32x128_tmaAB_alignCD4_bz_TNNN``: tile with its depth, stages, tile of a warp.
"""


CONVOLUTION = r"xmma_(?:fprop|dgrad|wgrad)(?:_indexed)?_implicit_gemm(?:_indexed)?"
SCALAR_DTYPES = {"float": "fp32", "__half": "fp16", "half": "fp16", "__nv_bfloat16": "bf16", "double": "fp64"}

_cudnn = partial(NameRule, family="conv", split=SPLIT)

CUDNN_RULES = (
    _cudnn(rf"{CONVOLUTION}_{XMMA_TYPES}_\w+?_{XMMA_TILE}.*ffma", dtypes=XMMA, tensor_core=False),
    _cudnn(rf"{CONVOLUTION}_{XMMA_TYPES}_\w+?_{XMMA_TILE}", dtypes=XMMA, tensor_core=True),
    _cudnn(
        r"\b(?:volta|turing|ampere)_(?:(?P<type>fp16|bf16)_)?[sh](?P<mma>\d{3,6})cudnn_(?:[a-z0-9]+_)*?"
        r"(?P<m>\d+)x(?P<n>\d+)_(?:\w+_)?(?P<layout>[nt]{2})_v\d",
        dtype="fp16",
        dtypes={"fp16": "fp16", "bf16": "bf16"},
    ),
    _cudnn(
        r"\b(?:cudnn_)?(?:maxwell|volta|turing|ampere)_scudnn_(?:winograd_)?(?P<m>\d+)x(?P<n>\d+)_(?:\w+_)?"
        r"(?P<layout>[nt]{2})_v\d",
        dtype="fp32",
        tensor_core=False,
    ),
    NameRule(
        r"(?:implicit_convolve_sgemm|explicit_convolve_sgemm|wgrad_alg\d_engine|dgrad_engine|dgrad2d_\w+|winograd\w*)"
        r"(?:<|::\w+<)(?P<type>float|__half|half|__nv_bfloat16|double)",
        "conv",
        dtypes=SCALAR_DTYPES,
        tensor_core=False,
    ),
    NameRule(
        r"\bRNN_blockPersist_[fb]p_[A-Z]+(?P<mma>_HMMA)?<(?P<type>float|__half|half|double)",
        "gemm",
        dtypes=SCALAR_DTYPES,
    ),
)
"""cuDNN: convolutions (hand-written kernels, xmma, older C++ engines) and recurrent layers."""


CUSPARSELT_RULES = (
    NameRule(
        rf"xmma_sparse_gemm_{XMMA_TYPES}_{LAYOUT}_[nt]_{XMMA_TILE}", "gemm", dtypes=XMMA, tensor_core=True, split=SPLIT
    ),
)
"""GEMMs with a 2:4 sparse operand, named like cuBLAS's xmma kernels."""


CUTLASS_TYPES = {"bf16": "bf16", "f16": "fp16", "fp16": "fp16", "tf32": "tf32", "e4m3": "fp8", "e5m2": "fp8",
                 "f32": "tf32", "s8": "int8", "u8": "int8", "f64": "fp64", "d": "fp64", "h": "fp16", "i": "int8",
                 "f8": "fp8", "ue4m3xf4": "nvfp4", "ue4m3xe2m1": "nvfp4", "ue8m0xf4": "mxfp4",
                 "ue8m0xe2m1": "mxfp4", "ue8m0xf8": "mxfp8", "ue8m0xe4m3": "mxfp8"}  # fmt: skip
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
CUTLASS_SPLIT = r"(?i)split_?k|stream_?k"
CUTLASS_TAIL = r"(?:_[a-z0-9]+)*?_(?P<m>\d+)x(?P<n>\d+)(?:_(?P<k>\d+)x(?P<stages>\d+))?_(?:sliced\w+?_)?"
CUTLASS_TYPED = r"(?P<type>(?:bf16|f16|fp16|tf32)(?=_)|[dhi](?=\d))?_?[shdi]?\d+"
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


_cutlass = partial(NameRule, split=CUTLASS_SPLIT, tensor_core=True)
_cutlass_moe = partial(NameRule, family="moe", tensor_core=True)
_cutlass_3 = partial(_cutlass, contained="CollectiveMma")
_simt = partial(NameRule, family="gemm", tensor_core=False, split=CUTLASS_SPLIT)

CUTLASS_RULES = (
    _cutlass_moe(
        r"MoeFCGemm\w*?GemmShapeILi(?P<m>\d+)ELi(?P<n>\d+)ELi(?P<k>\d+)E"
        r"(?=\w*?_(?P<type>10bfloat16_t|6half_t|12float_e4m3_t))(?=\w*?(?P<weights>integer_subbyteILi4E)|)",
        dtypes=MANGLED_TYPES | {"integer_subbyteILi4E": "int4"},
    ),
    _cutlass_moe(
        r"Fused_Moe_Kernel_sm\d+<(?:cutlass::)?(?P<type>bfloat16_t|half_t)(?:, [\w:]+){2}, (?P<m>\d+), (?P<n>\d+), "
        r"(?P<k>\d+), (?P<stages>\d+)",
        dtypes=CPP_TYPES,
    ),
    _cutlass(
        r"cutlass3x_sm\d+_(?:bs)?tensorop_(?:[a-z]\d+x\d+x\d+)?gemm_(?:grouped_)?(?:block_scaled_)?"
        r"(?P<type>bf16|f16|tf32|f32|e4m3|e5m2|f8|s8|u8|f64|ue4m3xf4|ue4m3xe2m1|ue8m0xf4|ue8m0xe2m1|ue8m0xf8|ue8m0xe4m3)_"
        r"(?:\w+?_){4}(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_(?:\d+x\d+x\d+_)?(?:\d+_)?(?P<layout>[nt]{2})[nt]",
        family="gemm",
        dtypes=CUTLASS_TYPES,
    ),
    _simt(
        r"cutlass3x_sm\d+_simt_(?P<type>[shdc])gemm_(?:\w+?_){5}(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_\d+x\d+x\d+_"
        r"(?P<stages>\d+)_(?P<layout>[nt]{2})[nt]",
        dtypes={"s": "fp32", "h": "fp16", "d": "fp64", "c": "fp32"},
    ),
    *(
        _cutlass_3(f"{grouped}{pattern}", family=family, dtype=dtype)
        for family, grouped in GROUPED_OR_NOT
        for pattern, dtype in BLOCK_SCALED_OPERANDS
    ),
    *(
        _cutlass_3(f"{grouped}{pattern}", family=family, dtypes=dtypes)
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
    _cutlass(rf"cutlass_3x_gemm_(?:sm\d+_)?(?P<type>fp8|int8)\w*<.*?{CPP_TILE}", family="gemm", dtypes=CPP_TYPES),
    _cutlass(
        rf"cutlass_(?:\d+_)?(?:wmma_)?tensorop_s\d+gemm_(?P<type>bf16|f16){CUTLASS_TAIL}(?P<layout>[nt]{{2}})_",
        family="gemm",
        dtypes=CUTLASS_TYPES,
        column_major=True,
    ),
    _cutlass(
        rf"cutlass_(?:\d+_)?(?:wmma_)?tensorop_{CUTLASS_TYPED}gemm{CUTLASS_TAIL}(?P<layout>[nt]{{2}})_",
        family="gemm",
        dtype="tf32",
        dtypes=CUTLASS_TYPES,
        column_major=True,
    ),
    _cutlass(
        rf"cutlass_(?:\d+_)?(?:wmma_)?tensorop_{CUTLASS_TYPED}(?:fprop|dgrad|wgrad)(?:_[a-z]+)*{CUTLASS_TAIL}",
        family="conv",
        dtype="tf32",
        dtypes=CUTLASS_TYPES,
    ),
    _simt(
        rf"cutlass_\d+_simt_(?P<type>[shdc])gemm{CUTLASS_TAIL}(?P<layout>[nt]{{2}})_",
        dtypes={"s": "fp32", "h": "fp16", "d": "fp64", "c": "fp32"},
        column_major=True,
    ),
)
"""CUTLASS 2 and 3, as used by PyTorch, cuBLAS and serving engines.

``cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x6_tn_align8``: architecture, unit, input, accumulator and
instruction, tile, depth x stages, layout. The names of CUTLASS 3 have all five types, and end the layout with that of
the output (https://github.com/NVIDIA/cutlass/issues/947). If an engine instantiates CUTLASS 3 itself, the name is the
C++ type: main loop with its stages and cluster, tile, types of the operands, which are pairs with their scales if those
are of blocks. Kineto leaves such long names mangled (``kMaxSymbolSize`` of 1,024 characters in
``libkineto/src/Demangle.cpp``). Grouped GEMMs have a ``GroupProblemShape``; TensorRT-LLM's for a mixture of experts
before Hopper are ``MoeFCGemm`` and ``Fused_Moe_Kernel_sm80``, which have the tile first.
"""


DEEPGEMM_TYPES = {"fp8": "fp8", "bf16": "bf16", "tf32": "tf32", "fp4": "mxfp4"}
UNSIGNED = r"(?:\(unsigned int\))?"
NUMBER = rf"{UNSIGNED}\d+u?"
MAJOR = r"\(cute::\w+::Major\)\d, "


def _capture_numbers(*names: str) -> str:
    """Build a pattern of consecutive numbers, each a named group."""
    return ", ".join(rf"{UNSIGNED}(?P<{name}>\d+)u?" for name in names)


DEEPGEMM_TILE = _capture_numbers("m", "n", "k")
SIDES = _capture_numbers("columns", "depth")
LOADING_THREADS = rf"{UNSIGNED}\d{{1,2}}u?, {UNSIGNED}128u?, "
"""Numbers after the stages."""

OLDER_ARGUMENTS = rf"{SIDES}, {DEEPGEMM_TILE}, {_capture_numbers('groups')}, {LOADING_THREADS}"
PADDED_ARGUMENTS = rf"{SIDES}, {DEEPGEMM_TILE}, (?:{NUMBER}, ){{2}}{_capture_numbers('groups')}, {NUMBER}, "


GROUPED_DEEPGEMM = r"^(?=.*(?:GemmType\)[1-9]|\wgrouped_)).*?"


def _make_deepgemm_rule(pattern: str, *, family: str = "gemm", column_major: bool = False) -> NameRule:
    return NameRule(
        pattern,
        family,
        grouped_family="moe",
        dtypes=DEEPGEMM_TYPES,
        tensor_core=True,
        column_major=column_major,
        contained="deep_gemm::",
    )


DEEPGEMM_RULES = (
    _make_deepgemm_rule(
        rf"deep_gemm::sm90_(?P<type>fp8|bf16|tf32)_gemm_\w*impl<(?:{MAJOR}){{0,2}}"
        rf"{_capture_numbers('rows', 'columns', 'depth', 'groups')}, {DEEPGEMM_TILE}"
    ),
    _make_deepgemm_rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{OLDER_ARGUMENTS}"),
    _make_deepgemm_rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel_swapAB<{OLDER_ARGUMENTS}", column_major=True),
    _make_deepgemm_rule(rf"deep_gemm::(?P<type>fp8)_gemm_kernel<{PADDED_ARGUMENTS}"),
    *(
        _make_deepgemm_rule(
            rf"{grouped}deep_gemm::sm1\d\d_(?P<type>fp8|bf16)_(?:(?P<weights>fp4)_)?gemm_\w*impl<(?:{MAJOR}){{2}}"
            rf"(?:{NUMBER}, ){{5}}{DEEPGEMM_TILE}",
            family=family,
        )
        for grouped, family in ((GROUPED_DEEPGEMM, "moe"), ("", "gemm"))
    ),
    _make_deepgemm_rule(rf"{GROUPED_DEEPGEMM}deep_gemm::\w*?(?P<type>fp8|bf16|tf32)\w*gemm\w*", family="moe"),
    _make_deepgemm_rule(r"deep_gemm::\w*?(?P<type>fp8|bf16|tf32)\w*gemm\w*"),
)
"""DeepGEMM, which is compiled at first use, often for the sizes of one weight.

``deep_gemm::sm90_fp8_gemm_1d1d_impl<4096u, 2048u, 0u, 32u, 128u, 152u, 128u, ...>``: rows, columns and depth where they
are fixed, groups, tile. Before July 2025 ``deep_gemm::fp8_gemm_kernel<4096u, 7168u, 64u, 160u, 128u, 32u, 4u, 128u,
...>``: columns, depth, tile, groups, stages, threads that load; from May on with two more numbers before the groups.
The copies in TensorRT-LLM and FlashInfer have the former too, and for few rows ``fp8_gemm_kernel_swapAB``, whose tile
lies along the columns first (FlashInfer's csrc/nv_internal/tensorrt_llm/deep_gemm). On Blackwell the majors of both
operands and the scales' granularity come first, groups last. ``GemmType`` 0 is one GEMM; the others are those of a
mixture of experts.
"""


TRTLLM_TYPES = {"E4m3": "fp8", "E2m1": "nvfp4", "MxE4m3": "mxfp8", "MxE2m1": "mxfp4", "MxInt4": "int4",
                "Bfloat16": "bf16", "Fp16": "fp16"}  # fmt: skip
TRTLLM_LAYOUTS = {"BN": "tn"}
TRTLLM_TYPE = "|".join(sorted(TRTLLM_TYPES, key=len, reverse=True))
WEIGHTS_FIRST = rf"(?P<weights>{TRTLLM_TYPE})(?P<type>{TRTLLM_TYPE})"
INPUT_FIRST = rf"(?P<type>{TRTLLM_TYPE})(?P<weights>{TRTLLM_TYPE})"
TRTLLM_SHAPE = (
    r"_Fp32_(?:[A-Za-z]\w+?_)?t(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)(?:u\d+)?_s(?P<stages>\d+)(?:x\d+)*_\w*?_"
    r"(?P<layout>[BTN]{2})"
)

TRTLLM_RULES = tuple(
    NameRule(
        rf"^{prefix}_[A-Za-z0-9]+_{types}{TRTLLM_SHAPE}{output}",
        family,
        dtypes=TRTLLM_TYPES,
        layouts=TRTLLM_LAYOUTS,
        tensor_core=True,
        column_major=column_major,
    )
    for prefix, family in (("bmm", "moe"), ("gemm", "gemm"))
    for types, output, column_major in (
        (WEIGHTS_FIRST, "_transOut(?:_|$)", True),
        (INPUT_FIRST, "(?:_(?!trans)|$)", False),
    )
)
"""TensorRT-LLM's generated GEMMs, which FlashInfer and vLLM ship too.

``bmm_MxE4m3_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_..._TN_transOut_...``: types of output, weights and input, accumulator,
tile with its depth, stages, layouts (``B``: as ``T``, in blocks). ``transOut``: the first side of the tile lies along
the output's columns; without it the types of input and weights come in that order. ``Mx``: one byte of scale per 32
elements; ``E2m1`` without it has an fp8 scale per 16.
"""

RULES = (*TRTLLM_RULES, *DEEPGEMM_RULES, *CUDNN_RULES, *CUSPARSELT_RULES, *CUTLASS_RULES, *CUBLAS_RULES)
