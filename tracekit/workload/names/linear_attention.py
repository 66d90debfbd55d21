"""Name rules of linear attention and state-space layers: delta rules, Mamba, and the short convolution before them.

Most are Triton functions of fla-org/flash-linear-attention and state-spaces/mamba, which vLLM, SGLang and aiter copy.
GEMMs inside chunks run on tensor cores; scans, gates and convolutions go through memory once.
"""

import re

from tracekit.workload.names.rule import NameRule

MATRIX_KERNEL = (
    r"^_?bmm_chunk_|^_chunk_state_(?:varlen|fwd|bwd_d[bx])|^_chunk_scan_(?:chunk_state_bwd_dx|fwd|"
    r"bwd_(?:dstates|dcb?|dx|ddAcs_stable))|"
    r"^_?chunk_(?!local_cumsum|global_cumsum|gate|cat|cumsum|cumprod)\w*?(?:fwd|bwd|o_opt)\w*|^_?recompute_w_u_|^wu_fwd_|"
    r"^prepare_\w*wy_repr_|solve_tril|^merge_16x16_to_|^fused_chunk_(?!local)|^parallel_(?:delta|simple_gla|based|rebased)_|"
    r"^_flash_kda_|^kda_\w*intra|lightning_attn|linear_attn_(?:fwd|bwd)|_lightning_indexer_gdn"
)
"""Kernels that multiply matrices inside chunks of tokens."""
PASS_KERNEL = (
    r"gated_?delta|delta_?rule|delta_?net|delta_attn|\b_?kda_|_kda_|\b_?gdn_|_gdn_|gdn2|qkvzba|fused_recurrent_|causal_conv1d|"
    r"short_conv|selective_(?:scan|state_update)|^_chunk_(?:cumsum|scan_bwd_dz)|^_state_passing_|^chunk_\w*(?:cumsum|gate)|"
    r"\bssd_|_ssu_|mamba|\brwkv\d?_|chunk_comba_|_mesa_net_"
)

RULES = (
    NameRule(re.compile(MATRIX_KERNEL), "linear_attention", tensor_core=True),
    NameRule(re.compile(PASS_KERNEL, re.IGNORECASE), "linear_attention", tensor_core=False),
)
