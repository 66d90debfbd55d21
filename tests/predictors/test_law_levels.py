"""Every law's time, of a few kernels on a GPU of each generation; `pytest --update-golden` accepts a change."""

import polars as pl

from predictors import load_gpu
from predictors.columns import build_law_inputs, prepare_kernels
from predictors.hardware import derive_hardware
from predictors.laws.law import LAWS
from predictors.weights_file import load_weights
from tests.levels import check_levels, round_level

GPUS = (
    "p100-sxm",
    "v100-sxm-32gb",
    "t4",
    "a100-sxm-80gb",
    "rtx-3090",
    "l40s",
    "h100-sxm",
    "b200",
    "rtx-5090",
    "mi300x",
)
ROWS = {"rows": 4096, "cols": 1000, "bytes": 4096 * 1000 * 8, "dtype": "fp32"}
LONG_ROWS = {"rows": 64, "cols": 65536, "bytes": 64 * 65536 * 8, "dtype": "fp32"}
IMAGES = {"m": 32 * 28 * 28, "n": 128, "k": 128 * 9, "channels": 128, "height": 28, "width": 28}
FEW_IMAGES = {"m": 3 * 10 * 20, "n": 48, "k": 40 * 9, "channels": 40, "height": 10, "width": 20}
EXPERTS = {"family": "moe", "hidden": 4096, "inter": 14336, "topk": 2, "experts": 8}
HEADS = {"family": "attention", "batch": 4, "heads": 32, "kv_heads": 8, "head_dim": 128}
QUERIES = HEADS | {"q_len": 2048, "kv_len": 2048}
LOOKUPS = {
    "family": "embedding", "dtype": "fp32", "rows": 1e6, "cols": 128, "bytes": 3e8, "accessed_bytes": 6e8,
    "reuse_bytes": 1e7, "warp_clocks": 2e9, "serial_clocks": 20_000,
}  # fmt: skip
DELTA_RULE = {
    "family": "linear_attention", "dtype": "bf16", "batch": 4, "heads": 32, "kv_heads": 16, "head_dim": 128,
    "cols": 128,
}  # fmt: skip
KERNELS: dict[str, dict[str, object]] = {
    **{
        f"product {m}x{n}x{k} {dtype}": {"family": "gemm", "m": m, "n": n, "k": k, "dtype": dtype}
        for dtype in ("fp32", "bf16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4afp8")
        for m, n, k in ((4096, 4096, 4096), (16, 4096, 11008), (1000, 1001, 515))
    },
    "product by a vector": {"family": "gemm", "m": 1, "n": 4096, "k": 4096, "dtype": "fp32"},
    "batched product": {"family": "gemm", "batch": 64, "m": 512, "n": 512, "k": 64, "dtype": "bf16"},
    "deep product": {"family": "gemm", "m": 256, "n": 256, "k": 65536, "dtype": "bf16"},
    "product of an engine": {"family": "gemm", "m": 512, "n": 4096, "k": 4096, "dtype": "fp8", "framework": "vllm"},
    **{
        f"convolution {dtype}": {"family": "conv", "dtype": dtype, **IMAGES}
        for dtype in ("fp32", "bf16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4afp8")
    },
    "convolution of few odd images": {"family": "conv", "dtype": "fp32", **FEW_IMAGES},
    "gradient of few odd images": {"family": "conv", "dtype": "fp32", "direction": "dgrad", **FEW_IMAGES},
    "gradient of filters": {
        "family": "conv", "dtype": "fp32", "direction": "wgrad",
        **IMAGES, "m": 128, "n": 128 * 9, "k": 32 * 28 * 28,
    },
    "convolution of narrow images, not on matrix units": {
        "family": "conv", "dtype": "fp32", "tensor_core": False,
        "m": 64 * 8 * 4, "n": 256, "k": 256 * 9, "channels": 256, "height": 8, "width": 4,
    },
    "convolution of groups": {
        "family": "conv", "dtype": "fp16", "batch": 32,
        **IMAGES, "n": 4, "k": 4 * 9, "channels": 4, "bytes": 2 * 2 * 32 * 28 * 28 * 128,
    },
    "gradient of a depthwise convolution": {
        "family": "conv", "dtype": "fp16", "direction": "dgrad", "batch": 128,
        **IMAGES, "n": 9, "k": 1, "channels": 1, "bytes": 2 * 2 * 32 * 28 * 28 * 128,
    },
    "convolution without Winograd": {"family": "conv", "dtype": "fp32", "winograd": False, **IMAGES},
    **{
        f"{tokens} tokens to experts {dtype}": EXPERTS | {"tokens": tokens, "dtype": dtype}
        for tokens in (16, 4096)
        for dtype in ("fp32", "bf16", "fp8", "fp8_block", "nvfp4", "int4_wo", "w4afp8")
    },
    "experts of two ranks, unevenly": EXPERTS | {"tokens": 512, "dtype": "bf16", "ep": 2, "routing": "power 1.2"},
    "prefill": QUERIES | {"dtype": "bf16", "causal": True, "paged": True},
    "prefill in a window": QUERIES | {"dtype": "bf16", "causal": True, "paged": True, "window": 256},
    "encoder": QUERIES | {"dtype": "bf16", "paged": True},
    "encoder of few keys in fp32": QUERIES | {"dtype": "fp32", "q_len": 50, "kv_len": 50, "paged": True},
    "sequence": QUERIES | {"dtype": "bf16", "causal": True, "paged": False},
    "sequence backward": QUERIES | {"dtype": "bf16", "causal": True, "direction": "backward"},
    "decode": HEADS | {"dtype": "bf16", "q_len": 1, "kv_len": 4097, "causal": True},
    "decode of few keys": HEADS | {"dtype": "bf16", "batch": 64, "q_len": 1, "kv_len": 65, "causal": True},
    "latent decode": HEADS
    | {"dtype": "bf16", "heads": 128, "kv_heads": 1, "q_len": 1, "kv_len": 4097, "head_dim": 544, "cache_width": 576},
    "decode, heads one by one": HEADS | {
        "dtype": "bf16", "q_len": 1, "kv_len": 2048, "causal": True, "framework": "vllm",
    },
    **{
        f"{family} of {size:.0e} bytes": {"family": family, "bytes": size, "dtype": "bf16"}
        for family in ("elementwise", "copy", "embedding", "optimizer", "memset", "reduction", "quantise")
        for size in (1e5, 1e9)
    },
    "look-ups in tables": LOOKUPS,
    "look-ups in the host's memory": LOOKUPS | {"host_bytes": 1e8},
    "broadcast sum": {"family": "elementwise", "bytes": 1e8, "dtype": "bf16", "indexed": True},
    "transposition": {"family": "copy", "bytes": 1e8, "dtype": "bf16", "indexed": True, "across": True},
    "depthwise convolution": {"family": "conv", "batch": 96, "m": 32 * 56 * 56, "n": 1, "k": 9, "dtype": "bf16"},
    "sums of a norm": {"family": "norm", "part": "sums", "blocks": 64, **ROWS},
    "generated reduction of long rows": {"family": "reduction", "part": "fused", **LONG_ROWS},
    "short rows summed": {"family": "reduction", "part": "tree", "blocks": 4096, "threads_per_block": 512, **ROWS},
    **{
        f"{family}{said}": {"family": family, **shape, **more}
        for family in ("softmax", "norm")
        for said, shape, more in (
            ("", ROWS, {}),
            (" of uneven rows", ROWS, {"cols": 999}),
            (" of long rows", LONG_ROWS, {}),
            (" backward", ROWS, {"direction": "backward"}),
            (", generated", LONG_ROWS, {"part": "fused"}),
        )
    },
    "PyTorch's layer norm": {"family": "norm", "part": "rows", **ROWS},
    "PyTorch's RMS norm": {"family": "norm", "part": "squares", **ROWS},
    "a library's norm, backward": {"family": "norm", "part": "library", "direction": "backward", **ROWS},
    "delta rule over prompts": DELTA_RULE | {
        "q_len": 2048, "part": "chunks", "rows": 8192, "bytes": 1.3e8, "flops": 6.4e10,
    },
    "delta rule, a token each": DELTA_RULE | {"q_len": 1, "part": "step", "rows": 4, "bytes": 1.7e7, "flops": 1.3e7},
    "short convolution": DELTA_RULE | {
        "q_len": 2048, "part": "convolution", "rows": 8192, "cols": 8192, "bytes": 2.7e8, "flops": 5.4e8,
    },
    "keys that an indexer selects": {
        "family": "gemm", "part": "indexer", "dtype": "fp8", "batch": 1, "m": 65536, "n": 4096, "k": 128,
        "bytes": 2.5e7,
    },
    "attention to selected keys": HEADS | {
        "part": "sparse", "dtype": "bf16", "q_len": 1024, "kv_len": 8192, "window": 2048, "kv_heads": 1,
        "head_dim": 544, "cache_width": 576, "causal": False,
    },
    "streams mixed into a layer": ROWS | {"family": "norm", "part": "hyper in", "dtype": "bf16"},
    **{
        f"copy {kind}": {"family": "memcpy", "bytes": 1e7, "copy_kind": kind}
        for kind in ("HtoD", "DtoH", "DtoD", "PtoP")
    },
}  # fmt: skip


def compute_levels() -> dict[str, dict[str, float]]:
    weights, levels = load_weights(), {name: {} for name in KERNELS}
    table = pl.DataFrame(list(KERNELS.values()), infer_schema_length=None).with_columns(kernel=pl.Series([*KERNELS]))
    for slug in GPUS:
        gpu = derive_hardware(load_gpu(slug))
        prepared = prepare_kernels(table.drop("kernel"), gpu).with_columns(table["kernel"])
        for (law,), rows in prepared.group_by("law"):
            inputs = build_law_inputs(rows)
            constants = weights.get_law(law).compute_constants(gpu, inputs.frameworks)
            terms = LAWS[law].evaluate(inputs.to_columns(gpu), inputs.share, gpu, constants)
            for kernel, time_us in zip(rows["kernel"], terms.time_us.tolist(), strict=True):
                levels[kernel][slug] = round_level(time_us)
    return levels


def test_every_law_has_a_level():
    """Of some GPU: convolutions in fp32 run as tf32 where there is that."""
    kernels = pl.DataFrame(list(KERNELS.values()), infer_schema_length=None)
    laws = {law for slug in GPUS for law in prepare_kernels(kernels, derive_hardware(load_gpu(slug)))["law"]}
    assert laws == set(LAWS)


def test_times_stay_within_a_percent(request):
    check_levels("laws", compute_levels(), request)
