"""NCCL, RCCL and the all-reduces that serving engines bring along."""

import re

from tracekit.workload.names.rule import Rule

TYPES = {"f32": "fp32", "float": "fp32", "f16": "fp16", "half": "fp16", "__half": "fp16", "bf16": "bf16",
         "__nv_bfloat16": "bf16", "c10::BFloat16": "bf16", "f64": "fp64", "double": "fp64", "u8": "int8",
         "int8_t": "int8", "f8e4m3": "fp8", "f8e5m2": "fp8"}  # fmt: skip
TYPE = r"(?P<type>f8e4m3|f8e5m2|f32|f16|bf16|f64|u8)"

RULES = (
    Rule(
        re.compile(rf"nccl(?:Sym)?DevKernel_\w+?_(?:Sum|Prod|Min|Max|MinMax|PreMulSum|SumPostDiv)_{TYPE}"),
        "collective",
        dtypes=TYPES,
        tensor_core=False,
    ),
    Rule(
        re.compile(r"ncclKernel_\w+?_(?:Sum|Prod|Min|Max)_(?P<type>float|half|__nv_bfloat16|double|int8_t)\b"),
        "collective",
        dtypes=TYPES,
        tensor_core=False,
    ),
    Rule(re.compile(r"^(?:void )?(?:nccl|rccl)(?:Dev)?Kernel|rccl_main_kernel"), "collective", tensor_core=False),
    Rule(
        re.compile(
            r"(?:cross_device_reduce_\dstage|multimem_\w+_kernel|(?:one|two)_?shot_all_?reduce\w*|all_reduce_one_shot\w*|"
            r"allreduce_fusion_kernel\w*)<(?:\([\w:]+\)\d+, )?(?P<type>float|__half|half|__nv_bfloat16|c10::BFloat16)?"
        ),
        "collective",
        dtypes=TYPES,
        tensor_core=False,
    ),
)
