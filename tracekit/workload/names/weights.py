"""Infer the precision that weights are stored in from the names of GEMMs that compute with a wider one.

Marlin's and Machete's types are vLLM's: ``vllm_uint4b8_t``, and numbers that pack bits of exponent and mantissa, sign,
bias and the kind of not-a-number (``ScalarType::id`` in its ``csrc/core/scalar_type.hpp``): input, weights, output and
scales.
"""

import re

_MARLIN_ARGUMENT = r"\(?(?:long\)?)?"
_MARLIN_INPUT = rf"Marlin<{_MARLIN_ARGUMENT}\d+l?, {_MARLIN_ARGUMENT}"
_E2M1, _E4M3 = 562949953487106, 2814749767172868

WEIGHT_DTYPE_RULES = (
    ("nvfp4", rf"{_MARLIN_INPUT}{_E2M1}l?, {_MARLIN_ARGUMENT}\d+l?, {_MARLIN_ARGUMENT}{_E4M3}l?"),
    ("mxfp4", rf"{_MARLIN_INPUT}{_E2M1}l?|w(?:fp)?4_.*mxfp4|MixedInput.*float_e2m1_t|_moe_kernel_mxfp4|"
              r"a(?:8|16)w(?:mx)?fp4|_moe_gemm_a(?:8|16)w4"),
    ("fp8", rf"{_MARLIN_INPUT}{_E4M3}l?|_a16w8_blockscale"),
    ("int8", rf"{_MARLIN_INPUT}(?:1125899923621888|1125899906844672)l?|uint8b128|gptq_8bit"),
    ("int4", rf"{_MARLIN_INPUT}(?:1125899907892224|1125899906843648)l?|u?int4b8_t|u?int4b_t|"
             r"integer_subbyte<(?:\(int\))?4|integer_subbyteILi4E|awq(?!_moe)|gemm_forward_4bit|gptq_4bit|TC_int4|w4a(?:16|8)(?!_fp4)"),
)  # fmt: skip
"""Precision and pattern, tried in order."""
_PATTERNS = tuple((dtype, re.compile(pattern, re.IGNORECASE)) for dtype, pattern in WEIGHT_DTYPE_RULES)
AMBIGUOUS_NAME = re.compile(r"gptq_awq")
"""Kernels of GPTQ and AWQ models alike, with weights of 4 or 8 bits."""


def match_weight_dtype(kernel: str) -> str | None:
    """Match the rules on a GEMM's name; ``None`` if it doesn't name narrower weights."""
    if AMBIGUOUS_NAME.search(kernel):
        return None
    return next((dtype for dtype, pattern in _PATTERNS if pattern.search(kernel)), None)
