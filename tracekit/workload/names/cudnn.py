"""Name rules of cuDNN: convolutions (hand-written kernels, xmma, older C++ engines) and recurrent layers."""

import re

from tracekit.workload.names.cublas import SPLIT, XMMA, XMMA_TILE, XMMA_TYPES
from tracekit.workload.names.rule import NameRule

CONVOLUTION = r"xmma_(?:fprop|dgrad|wgrad)(?:_indexed)?_implicit_gemm(?:_indexed)?"
SCALAR_DTYPES = {"float": "fp32", "__half": "fp16", "half": "fp16", "__nv_bfloat16": "bf16", "double": "fp64"}

RULES = (
    NameRule(
        re.compile(rf"{CONVOLUTION}_{XMMA_TYPES}_\w+?_{XMMA_TILE}.*ffma"),
        "conv",
        dtypes=XMMA,
        tensor_core=False,
        split=SPLIT,
    ),
    NameRule(
        re.compile(rf"{CONVOLUTION}_{XMMA_TYPES}_\w+?_{XMMA_TILE}"), "conv", dtypes=XMMA, tensor_core=True, split=SPLIT
    ),
    NameRule(
        re.compile(
            r"\b(?:volta|turing|ampere)_(?:(?P<type>fp16|bf16)_)?[sh](?P<mma>\d{3,6})cudnn_(?:[a-z0-9]+_)*?"
            r"(?P<m>\d+)x(?P<n>\d+)_(?:\w+_)?(?P<layout>[nt]{2})_v\d"
        ),
        "conv",
        dtype="fp16",
        dtypes={"fp16": "fp16", "bf16": "bf16"},
        split=SPLIT,
    ),
    NameRule(
        re.compile(
            r"\b(?:cudnn_)?(?:maxwell|volta|turing|ampere)_scudnn_(?:winograd_)?(?P<m>\d+)x(?P<n>\d+)_(?:\w+_)?"
            r"(?P<layout>[nt]{2})_v\d"
        ),
        "conv",
        dtype="fp32",
        tensor_core=False,
        split=SPLIT,
    ),
    NameRule(
        re.compile(
            r"(?:implicit_convolve_sgemm|explicit_convolve_sgemm|wgrad_alg\d_engine|dgrad_engine|dgrad2d_\w+|winograd\w*)"
            r"(?:<|::\w+<)(?P<type>float|__half|half|__nv_bfloat16|double)"
        ),
        "conv",
        dtypes=SCALAR_DTYPES,
        tensor_core=False,
    ),
    NameRule(
        re.compile(r"\bRNN_blockPersist_[fb]p_[A-Z]+(?P<mma>_HMMA)?<(?P<type>float|__half|half|double)"),
        "gemm",
        dtypes=SCALAR_DTYPES,
    ),
)
