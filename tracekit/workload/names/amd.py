"""Name rules of AMD: hipBLASLt and rocBLAS (Tensile), Composable Kernel, MIOpen.

``Cijk_Alik_Bljk_BBS_BH_..._MT128x192x64_MI16x16x1_...``: the index that comes first is contiguous, so ``Alik`` is a
transposed operand; types of input, output and sum; macro tile; matrix instruction. A mangled Composable Kernel name has
block size, then rows, columns and depth of the tile (https://github.com/ROCm/composable_kernel, device_gemm_*.hpp).
"""

from functools import partial

from tracekit.workload.names.rule import NameRule

TENSILE_DTYPES = {
    "S_MX": "tf32",
    "B": "bf16",
    "H": "fp16",
    "S": "fp32",
    "D": "fp64",
    "F8": "fp8",
    "B8": "fp8",
    "I8": "int8",
    "4xi8": "int8",
}
CK_DTYPES = {"t": "bf16", "DF16b": "bf16", "DF16_": "fp16", "f": "fp32", "a": "int8"}
CK_MOE_DTYPES = {"unsigned short": "bf16", "__bf16": "bf16", "_Float16": "fp16", "signed char": "int8",
                 "_BitInt(8)": "fp8", "ck::f8_ocp_t": "fp8", "ck::f4x2_pk_t": "mxfp4"}  # fmt: skip
IGEMM_DTYPES = {"fp16": "fp16", "bf16": "bf16", "fp32": "fp32"}
TILE = r"ELi\d+ELi(?P<m>\d+)ELi(?P<n>\d+)ELi(?P<k>\d+)E"
AITER = r"(?:\baiter::|_ZN5aiter\d+|^)"
ASSEMBLY_DTYPES = {
    **dict.fromkeys(("bf16", "Bf16"), "bf16"),
    **dict.fromkeys(("fp16", "Fp16"), "fp16"),
    **dict.fromkeys(("fp8", "Fp8"), "fp8"),
    **dict.fromkeys(("i8", "I8", "Int8"), "int8"),
    **dict.fromkeys(("f4", "MXfp4"), "mxfp4"),
}
GLOBAL_SPLIT = r"_GSU(?:[2-9]|\d{2,})_|gkgs|_SK[1-9]"

_conv = partial(NameRule, family="conv")
_moe = partial(NameRule, family="moe", tensor_core=True, dtypes=ASSEMBLY_DTYPES)

RULES = (
    NameRule(
        r"Cijk_(?P<layout>A[il]{2}k_B[jl]{2}k)_(?P<type>S_MX|F8|B8|I8|4xi8|[BHSD])\w*?_MT(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)"
        r"(?:_(?P<mma>MI\d+x\d+x\d+))?",
        "gemm",
        dtypes=TENSILE_DTYPES,
        layouts={"Ailk_Bljk": "nn", "Ailk_Bjlk": "nt", "Alik_Bljk": "tn", "Alik_Bjlk": "tt"},
        column_major=True,
        split=GLOBAL_SPLIT,
    ),
    NameRule(
        rf"{AITER}(?P<type>bf16|fp8|[iI]8|f4)gemm_\w*?(?:_(?P<layout>[nt]{{2}}))?_(?P<m>\d+)x(?P<n>\d+)(?![0-9x])",
        "gemm",
        dtypes=ASSEMBLY_DTYPES,
        tensor_core=True,
        split="(?i)splitk",
    ),
    *(
        _moe(rf"{AITER}fmoe_{types}\w*?_(?P<m>\d+)x(?P<n>\d+)(?![0-9x])")
        for types in (
            r"\w*?(?:noquant|pertoken|blockscale)(?P<type>Bf16|Fp16|Fp8|Int8|MXfp4)",
            r"(?:stage1_)?(?P<type>bf16|fp16)_noquant",
        )
    ),
    NameRule(
        r"ck::kernel_moe\w*gemm\w*<.*?Major, (?P<type>unsigned short|__bf16|_Float16|signed char|_BitInt\(8\)|"
        r"ck::f8_ocp_t|ck::f4x2_pk_t), .*?GemmSpecialization\)\d+, \d+, (?P<m>\d+), (?P<n>\d+), (?P<k>\d+),",
        "moe",
        dtypes=CK_MOE_DTYPES,
        tensor_core=True,
    ),
    _conv(
        r"igemm_(?:fwd|bwd|wrw)_gtc\w*?_(?P<type>fp16|bf16|fp32)_\w*?bt(?P<m>\d+)x(?P<n>\d+)x(?P<k>\d+)_(?P<mma>wt\d+)",
        dtypes=IGEMM_DTYPES,
        split=GLOBAL_SPLIT,
    ),
    _conv(
        rf"kernel_grouped_conv\w*?S\d_(?P<type>DF16b|DF16_|t)(?=t|DF16)\w*?GemmSpecializationE\d{TILE}",
        dtypes=CK_DTYPES,
        tensor_core=True,
    ),
    _conv(
        r"kernel_grouped_conv\w*INS_\d+Gridwise\w*?I(?P<type>DF16b|DF16_|t)(?=[tD]).*?PassThrough\w*?_"
        rf"(?:LNS_\d+InMemoryDataOperationEnumE\dE)?Li\d+{TILE}",
        dtypes=CK_DTYPES,
        tensor_core=True,
    ),
    _conv(
        r"kernel_batched_gemm_xdlops_bwd_weight\w*?ILi\d+E(?P<type>DF16b|DF16_|t)(?=t|DF16)",
        dtypes=CK_DTYPES,
        tensor_core=True,
    ),
    NameRule(
        r"ck_tile6kentry\w*?TileGemmShapeINS_8sequenceIJLi(?P<m>\d+)ELi(?P<n>\d+)ELi(?P<k>\d+)E",
        "gemm",
        tensor_core=True,
    ),
    _conv(
        r"naive_conv_\w*?_(?P<type>half|float|ushort)_",
        dtypes={"half": "fp16", "float": "fp32", "ushort": "bf16"},
        tensor_core=False,
    ),
    _conv(r"miopenSp3AsmConv\w*?_(?P<type>fp16|bf16|fp32)_", dtypes=IGEMM_DTYPES, tensor_core=False),
)
