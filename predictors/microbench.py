"""Measures about 160 kernels on this machine's GPU, in about a minute. Needs PyTorch and nothing else.

    python tracekit_bench.py -o RESULT.json     # on the machine with the GPU, otherwise idle
    tracekit calibrate RESULT.json              # wherever tracekit is

Each operator is captured in a CUDA graph several times over, so that no launch is in its time; the graph is replayed
between two CUDA events, and the median over the replays is kept. Inputs stay in the cache where they fit.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

FORMAT = 1
REPLAY_MS = 1.0
"""A replay holds as many calls as fit this."""
MAX_CASE_MS = 200.0
"""What the replays of one operator may take together; at least three are made."""
MAX_REPLAYS = 15
UNSUPPORTED_ERRORS = (RuntimeError, TypeError, AttributeError, NotImplementedError, ValueError)
"""What operators raise that this GPU or this PyTorch doesn't have."""

BenchmarkRow = dict[str, Any]
BenchmarkCase = tuple[BenchmarkRow, Callable[[], Callable[[], Any]]]

DTYPES = {"fp32": torch.float32, "tf32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}
PRODUCTS = (
    (2048, 8192, 2048), (16, 4096, 2048), (4096, 14336, 5120), (16, 14336, 5120), (1024, 3072, 1536), (4096, 4096, 512),
    (2048, 2048, 14336), (3000, 1700, 520), (4, 1024, 4096), (128, 3072, 8192), (8192, 14336, 768), (16, 28672, 11008),
    (32, 28672, 768), (256, 3072, 1536), (4, 3072, 11008), (16384, 5120, 8192), (256, 11008, 8192), (8192, 2048, 8192),
    (512, 1024, 14336), (2048, 8192, 64), (4096, 1024, 4096), (128, 768, 8192), (1024, 50304, 5120), (1, 11008, 2048),
    (512, 50304, 768),
)  # fmt: skip
"""m, n, k of models' layers. These GEMMs and the attention below say most about all others. ``select_most_informative``
in predictors/training/calibration.py selected them from a grid, one after the other; only a few were set by hand."""
FEW_PRODUCTS = PRODUCTS[:8]
BATCHED = ((128, 1024, 64, 1024), (128, 1024, 1024, 64), (32, 512, 512, 512))
ATTENTION = (
    (4, 24, 512, 512, 80, True), (8, 24, 512, 512, 256, True), (4, 24, 1024, 1024, 128, True),
    (4, 24, 2048, 2048, 64, True), (4, 16, 256, 256, 64, True), (4, 24, 4096, 4096, 80, True),
    (2, 24, 4096, 4096, 256, True), (4, 24, 128, 128, 128, True), (4, 16, 4096, 4096, 128, True),
    (2, 24, 128, 128, 256, True), (2, 24, 8192, 8192, 64, True), (2, 24, 128, 128, 80, True),
    (4, 24, 1024, 1024, 72, False), (4, 24, 1024, 1024, 128, False), (4, 24, 1024, 1024, 256, False),
    (8, 24, 256, 256, 64, False), (8, 24, 197, 197, 80, False), (4, 24, 4096, 4096, 64, False),
    (4, 24, 4096, 4096, 80, False), (4, 16, 197, 197, 128, False), (4, 16, 197, 197, 256, False),
    (1, 12, 2048, 2048, 64, False),
    (16, 24, 1, 2048, 128, False), (4, 16, 1, 1024, 64, False), (64, 24, 1, 4096, 128, False),
    (4, 16, 1, 1024, 256, False), (64, 24, 1, 1024, 64, False), (8, 24, 1, 8192, 256, False),
    (8, 24, 1, 16384, 64, False), (64, 24, 1, 512, 256, False), (16, 24, 1, 256, 128, False),
    (1, 16, 1, 512, 128, False), (4, 16, 1, 8192, 64, False), (128, 24, 1, 4096, 64, False),
)  # fmt: skip
"""Sequences, heads, queries, keys, head dimension, causal: prefill, encoder, decode."""
CONVOLUTIONS = (
    (64, 256, 56, 64, 1, 1), (64, 64, 56, 64, 3, 1), (64, 128, 28, 128, 3, 1), (64, 512, 14, 512, 3, 1),
    (64, 1024, 14, 256, 1, 1), (64, 3, 224, 64, 7, 2), (16, 320, 64, 320, 3, 1), (8, 1280, 16, 1280, 3, 1),
)  # fmt: skip
"""Images, channels, side of the image, filters, side of the window, stride."""
VECTORS = ((512, 1024), (4096, 1024), (8192, 4096), (16384, 8192), (131072, 256))
"""Rows, columns."""
TABLES = ((50304, 1024, 8192), (128256, 4096, 8192), (32000, 4096, 512))
"""Entries, width, lookups."""
OPTIMIZED = (1 << 20, 1 << 24, 1 << 26)


def generate_cases(device: str, precisions: list[str]) -> Iterator[BenchmarkCase]:
    """Every operator to measure: what it is to tracekit, and how to make it ready to call."""
    yield from _generate_gemms(device, precisions)
    main = precisions[0]
    for attention in ATTENTION:
        yield _build_attention(device, main, *attention)
    for convolution in CONVOLUTIONS:
        yield _build_convolution(device, main, *convolution)
    for rows, cols in VECTORS:
        for dtype in dict.fromkeys((main, "fp32")):
            yield from _generate_vector_kernels(device, dtype, rows, cols)
    for table in TABLES:
        yield _build_embedding(device, main, *table)
    for size in OPTIMIZED:
        yield _build_optimizer(device, size)


def _generate_gemms(device: str, precisions: list[str]) -> Iterator[BenchmarkCase]:
    """Most in the precision that jobs mostly run in; in fp8 PyTorch takes multiples of 16 only."""
    for dtype in precisions:
        for m, n, k in PRODUCTS if dtype == precisions[0] else FEW_PRODUCTS:
            if dtype != "fp8" or n % 16 == k % 16 == 0:
                yield _build_gemm(device, dtype, 1, m, n, k)
    for batch, m, n, k in BATCHED:
        yield _build_gemm(device, precisions[0], batch, m, n, k)


def _build_gemm(device: str, dtype: str, batch: int, m: int, n: int, k: int) -> BenchmarkCase:
    row = {"family": "gemm", "dtype": dtype, "batch": batch, "m": m, "n": n, "k": k}
    if dtype == "fp8":
        return row, lambda: _build_fp8_gemm(device, m, n, k)

    def ready() -> Callable[[], Any]:
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        lead = (batch,) if batch > 1 else ()
        a = torch.randn(*lead, m, k, device=device, dtype=DTYPES[dtype])
        b = torch.randn(*lead, n, k, device=device, dtype=DTYPES[dtype]).transpose(-1, -2)
        return lambda: a @ b

    return row, ready


def _build_fp8_gemm(device: str, m: int, n: int, k: int) -> Callable[[], Any]:
    # AMD's MI300 series has a format of its own, which is older than the standard's.
    dtype = torch.float8_e4m3fnuz if capability().startswith("gfx94") else torch.float8_e4m3fn
    a = torch.randn(m, k, device=device).to(dtype)
    b = torch.randn(n, k, device=device).to(dtype).t()
    one = torch.ones((), device=device)
    return lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def _build_attention(
    device: str, dtype: str, batch: int, heads: int, q: int, kv: int, dim: int, causal: bool
) -> BenchmarkCase:
    # PyTorch would choose, by version and GPU, among kernels that are up to twice as fast as others.
    flash = dtype == "bf16" and torch.version.hip is None
    row = {
        "family": "attention", "dtype": dtype, "batch": batch, "heads": heads, "kv_heads": heads, "q_len": q,
        "kv_len": kv, "head_dim": dim, "causal": causal, "paged": False, "framework": "fa2" if flash else None,
    }  # fmt: skip

    def ready() -> Callable[[], Any]:
        query = torch.randn(batch, heads, q, dim, device=device, dtype=DTYPES[dtype])
        key, value = torch.randn(2, batch, heads, kv, dim, device=device, dtype=DTYPES[dtype])

        def call() -> torch.Tensor:
            attention = torch.nn.attention
            with attention.sdpa_kernel(attention.SDPBackend.FLASH_ATTENTION) if flash else nullcontext():
                return F.scaled_dot_product_attention(query, key, value, is_causal=causal)

        return call

    return row, ready


def _build_convolution(
    device: str, dtype: str, images: int, channels: int, edge: int, filters: int, k: int, s: int
) -> BenchmarkCase:
    out = (edge + 2 * (k // 2) - k) // s + 1
    numel = images * channels * edge**2 + filters * channels * k**2 + images * filters * out**2
    row = {
        "family": "conv", "dtype": dtype, "direction": "forward", "batch": 1, "m": images * out**2, "n": filters,
        "k": channels * k**2, "bytes": BYTES[dtype] * numel,
        "channels": channels, "height": out, "width": out, "winograd": k in (3, 5) and s == 1,
    }  # fmt: skip

    def ready() -> Callable[[], Any]:
        last = torch.channels_last if dtype != "fp32" else torch.contiguous_format
        x = torch.randn(images, channels, edge, edge, device=device, dtype=DTYPES[dtype]).to(memory_format=last)
        w = torch.randn(filters, channels, k, k, device=device, dtype=DTYPES[dtype]).to(memory_format=last)
        return lambda: F.conv2d(x, w, stride=s, padding=k // 2)

    return row, ready


def _generate_vector_kernels(device: str, dtype: str, rows: int, cols: int) -> Iterator[BenchmarkCase]:
    """Operators that move memory: family, tensors' worth of traffic, operations per element, the call.

    The elements of the copy are strided: PyTorch copies contiguous ones as elementwise kernels do.
    """
    kinds: tuple[tuple[str, int, int, Callable[..., Any]], ...] = (
        ("elementwise", 3, 1, torch.add),
        ("elementwise", 2, 1, lambda x, y: F.gelu(x)),
        ("norm", 2, 8, lambda x, y: F.layer_norm(x, (cols,))),
        ("softmax", 2, 5, lambda x, y: F.softmax(x, dim=-1)),
        ("reduction", 1, 1, lambda x, y: x.sum(dim=-1)),
        ("copy", 2, 0, lambda x, y: x.view(rows // 2, 2, cols).transpose(0, 1).contiguous()),
    )
    for family, passes, flops, call in kinds:
        numel = rows * cols
        row = {"family": family, "dtype": dtype, "rows": rows, "cols": cols, "flops": flops * numel}
        row["indexed"] = family == "copy"
        row["bytes"] = BYTES[dtype] * (passes * numel + (rows if family == "reduction" else 0))

        def ready(call: Callable[..., Any] = call) -> Callable[[], Any]:
            x, y = torch.randn(2, rows, cols, device=device, dtype=DTYPES[dtype])
            return lambda: call(x, y)

        yield row, ready


def _build_embedding(device: str, dtype: str, entries: int, width: int, lookups: int) -> BenchmarkCase:
    row = {
        "family": "embedding", "dtype": dtype, "rows": lookups, "cols": width, "flops": 0,
        "bytes": lookups * (2 * width * BYTES[dtype] + 8),
    }  # fmt: skip

    def ready() -> Callable[[], Any]:
        table = torch.randn(entries, width, device=device, dtype=DTYPES[dtype])
        index = torch.randint(entries, (lookups,), device=device)
        return lambda: F.embedding(index, table)

    return row, ready


def _build_optimizer(device: str, size: int) -> BenchmarkCase:
    row = {"family": "optimizer", "dtype": "fp32", "rows": 1, "cols": size, "flops": 15 * size, "bytes": 28 * size}

    def ready() -> Callable[[], Any]:
        parameter = torch.zeros(size, device=device, requires_grad=True)
        parameter.grad = torch.ones_like(parameter)
        return torch.optim.AdamW([parameter], fused=True, capturable=True).step

    return row, ready


def measure_us(call: Callable[[], Any]) -> tuple[float, float]:
    """Microseconds of one call, median over replays, and half the spread between quartiles over it."""
    graph, calls = capture_calls(call)
    batch = max(_measure_ms(graph.replay), 1e-3)
    replays = min(max(math.ceil(MAX_CASE_MS / batch), 3), MAX_REPLAYS)
    times = sorted(_measure_ms(graph.replay) * 1e3 / calls for _ in range(replays))
    middle = statistics.median(times)
    return middle, (times[3 * len(times) // 4] - times[len(times) // 4]) / 2 / middle


def capture_calls(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, int]:
    """A CUDA graph of as many calls as last about ``REPLAY_MS``, and how many these are."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
        once = max(_measure_ms(call), 1e-3)
        calls = min(max(int(REPLAY_MS / once), 1), 200)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            call()
    return graph, calls


def _measure_ms(call: Callable[[], Any]) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def list_precisions(major: int, minor: int, amd: bool) -> list[str]:
    """Number formats worth measuring, the one that jobs mostly run in first."""
    if amd:
        return ["bf16", "fp32", "fp8"]
    if major < 7:
        return ["fp32"]
    if major < 8:
        return ["fp16", "fp32"]
    return ["bf16", "tf32", "fp32", *(["fp8"] if (major, minor) >= (8, 9) else [])]


def measure(
    all_cases: Iterator[BenchmarkCase], timer: Callable[[Callable[[], Any]], tuple[float, float]]
) -> dict[str, Any]:
    """Rows of what could be measured, and why the rest could not."""
    kernels: list[BenchmarkRow] = []
    skipped: dict[str, str] = {}
    for row, ready in all_cases:
        try:
            with torch.no_grad():
                measured_us, spread = timer(ready())
        except UNSUPPORTED_ERRORS as error:
            skipped[f"{row['family']} {row['dtype']}"] = str(error).split("\n", 1)[0]
            continue
        kernels.append({**row, "measured_us": round(measured_us, 3), "spread": round(spread, 4)})
        print(f"\r{len(kernels)} kernels", end="", file=sys.stderr)  # noqa: T201
    print(file=sys.stderr)  # noqa: T201
    return {"kernels": kernels, "skipped": skipped}


def capability() -> str:
    """Return the compute capability of this machine's GPU, such as '9.0'; on AMD its target, such as 'gfx942'."""
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return getattr(gpu, "gcnArchName", "").split(":")[0] if torch.version.hip else f"{gpu.major}.{gpu.minor}"


def describe_machine() -> dict[str, Any]:
    """The GPU, the software and, where nvidia-smi tells them, the clocks right after the load."""
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    return {
        "gpu": {
            "name": gpu.name, "sms": gpu.multi_processor_count, "memory_bytes": gpu.total_memory,
            "compute_capability": capability(),
        },
        "software": {"torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip},
        "clocks": _query_clocks(str(getattr(gpu, "uuid", ""))),
    }  # fmt: skip


def _query_clocks(uuid: str) -> dict[str, str]:
    asked = ("driver_version", "clocks.sm", "clocks.max.sm", "clocks.mem", "power.limit", "temperature.gpu")
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    which = [f"--id=GPU-{uuid}"] if uuid else []
    command = [tool, *which, f"--query-gpu={','.join(asked)}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    values = done.stdout.strip().split("\n", 1)[0].split(", ")
    return dict(zip(asked, values, strict=True)) if done.returncode == 0 and len(values) == len(asked) else {}


def main() -> None:
    """Measure the kernels and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, default=Path("RESULT.json"), help="default: RESULT.json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU here: run this on the machine whose GPU is to be calibrated")
    gpu = torch.cuda.get_device_properties(torch.cuda.current_device())
    precisions = list_precisions(gpu.major, gpu.minor, torch.version.hip is not None)
    result = measure(generate_cases("cuda", precisions), measure_us)
    args.output.write_text(json.dumps({"format": FORMAT, **describe_machine(), **result}, indent=1) + "\n")
    print(f"{len(result['kernels'])} kernels of {gpu.name} in {args.output}: tracekit calibrate {args.output}")  # noqa: T201


if __name__ == "__main__":
    main()
