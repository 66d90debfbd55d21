"""Name rules of collectives: NCCL, RCCL, DeepEP, and the custom all-reduces of serving engines.

NCCL builds one kernel for the ring and one for the tree of a collective, both named after the protocol LL. They run all
protocols, and the ring's kernel also runs CollNet, NVLS and PAT (NVIDIA/nccl, src/device/generate.py, ``best_kernel``).
A name therefore distinguishes a tree from everything else, and no protocols. NCCL's kernel of sends and receives was
once the kernel of all collectives. Kernels for symmetric memory name what they do: LDMC and STMC load and store by
NVLink's multicast. DeepEP's kernels exchange tokens between experts. Names: the projects' sources of 2025 and 2026.
"""

from functools import partial

from tracekit.workload.names.rule import NameRule

TYPES = {"f32": "fp32", "float": "fp32", "f16": "fp16", "half": "fp16", "__half": "fp16", "bf16": "bf16",
         "__nv_bfloat16": "bf16", "__hip_bfloat16": "bf16", "hip_bfloat16": "bf16",
         "c10::BFloat16": "bf16", "f64": "fp64", "double": "fp64", "u8": "int8",
         "int8_t": "int8", "f8e4m3": "fp8", "f8e5m2": "fp8"}  # fmt: skip
TYPE = r"(?P<type>f8e4m3|f8e5m2|f32|f16|bf16|f64|u8)"
ALGORITHMS = {"RING": "ring", "TREE": "tree", "1stage": "one_shot", "one_shot": "one_shot", "oneshot": "one_shot",
              "2stage": "two_shot", "two_shot": "two_shot", "twoshot": "two_shot", "multimem": "multimem",
              "LDMC": "multimem", "STMC": "multimem"}  # fmt: skip
ALGORITHM = r"(?P<algorithm>RING|TREE)_LL"

EXPERT_EXCHANGE = (
    r"hybrid_?ep::(?:dispatch|combine)\w*|nccl_ep_jit_\w*(?:dispatch|combine)\w*|"
    r"(?:mori::moe::)?\bEp(?:Dispatch|Combine)(?:Int(?:ra|er)Node|LowLatency|Async|Sync)\w*|"
    r"moeA2A\w*Kernel|\ba2a_(?:dispatch|combine)_(?:send|recv)_kernel|"
    r"pplx::\w*(?:all_?to_?all|dispatch|combine)\w*|"
    r"\bkernel_(?:dispatch|combine)_token\w*|(?i:moe_?all_?to_?all)\w*"
)
"""Kernels that exchange tokens between experts: of HybridEP and NCCL EP (NVIDIA), MORI (AMD; it copies to its buffers
and adds up what it received in kernels of their own), TensorRT-LLM, FlashInfer, pplx, and Triton-distributed."""
DEEP_EP = (
    r"(?:deep_ep|dpsk::ep|uccl|nccl_ep)::(?:legacy::)?int(?:ra|er)node\w*::|"
    r"deep_ep::elastic::(?:hybrid_)?(?:dispatch|combine)_impl"
)
"""DeepEP's kernels and those of its derivatives (UCCL, NCCL EP). The prologues of DeepEP 2 communicate nothing."""
ALL_GATHERS = r"\ballgather_(?:lastdim|vec|naive)\b"
"""aiter's all-gathers."""
BARRIER = r"barrier_on_stream_kernel_threadgroup"
"""NVSHMEM's barrier between ranks, beside DeepEP's kernels."""

_collective = partial(NameRule, family="collective", tensor_core=False)

RULES = (
    _collective(
        rf"(?:{EXPERT_EXCHANGE}|{BARRIER}|{ALL_GATHERS}|reduce_scatter_cross_device_store)"
        r"(?:<[^>]*?(?P<type>__nv_bfloat16|__hip_bfloat16|hip_bfloat16|bf16))?",
        dtypes=TYPES,
    ),
    _collective(
        r"ncclSymk?DevKernel_(?:All|Reduce)[A-Za-z]+_(?:\w*?(?P<algorithm>LDMC|STMC)\w*?|\w*?)"
        rf"(?:_(?:[Ss]um|avg|prod|min|max)_{TYPE})?\b",
        dtypes=TYPES,
        algorithms=ALGORITHMS,
    ),
    _collective(
        rf"ncclDevKernel_\w+?_(?:Sum|Prod|Min|Max|MinMax|PreMulSum|SumPostDiv)_{TYPE}(?:_{ALGORITHM})?",
        dtypes=TYPES,
        algorithms=ALGORITHMS,
    ),
    _collective(rf"(?:{DEEP_EP})\w*(?:<(?:(?:\(int\))?\w+, )*?(?P<type>__nv_bfloat16))?", dtypes=TYPES),
    _collective(
        rf"ncclKernel_\w+?_(?:{ALGORITHM}_)?(?:Sum|Prod|Min|Max)_(?P<type>float|half|__nv_bfloat16|double|int8_t)\b",
        dtypes=TYPES,
        algorithms=ALGORITHMS,
    ),
    _collective(
        rf"^(?:void )?(?:nccl|rccl)(?:Dev)?Kernel(?:_[A-Za-z]+_{ALGORITHM})?|rccl_main_kernel", algorithms=ALGORITHMS
    ),
    _collective(
        r"(?=cross_|multimem_|one_?shot|two_?shot|all_?reduce)"
        r"(?=\w*?(?P<algorithm>[12]stage|one_?shot|two_?shot|multimem)|)"
        r"(?:cross_device_reduce_\dstage|multimem_\w+_kernel|(?:one|two)_?shot_?[aA]ll_?reduce\w*|"
        r"all_reduce_one_shot\w*|allreduce_fusion_kernel\w*)"
        r"<(?:\([\w:]+\)\d+, )?(?P<type>float|__half|half|__nv_bfloat16|c10::BFloat16)?",
        dtypes=TYPES,
        algorithms=ALGORITHMS,
    ),
)
