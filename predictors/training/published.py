"""Read published measurements of GPUs: three tables beside this file.

**Rates of large square GEMMs**: TFLOP/s of ``torch.mm`` on one GPU, the best of several sizes from 1,024 to 10,240 for
each dtype. Source 'svcfusion': zzc0721/torch-performance-test-data at 9d828276, database.md and issues 126, 131, 160,
162, 184, 185 and 195 (30 GEMMs timed by events; the median where several people published a GPU). Source 'chsasank':
chsasank/device-benchmarks, README.md (ten GEMMs, each timed by the host). Left out are laptops,
overclocked and rebuilt boards, GPUs that are a measured one by another name, and rates above the printed peak of a GPU
that is no GeForce.

**Times of vector kernels** in PyTorch, of GPUs and dtypes that no other source measured. ``tensors`` counts the tensors
of ``rows`` and ``cols`` that a kernel reads and writes. By source:

- 'liger': layer and RMS norm, softmax. linkedin/Liger-Kernel at ead96b61, benchmark/data/all_benchmark_data.csv and, of
  the B200, _cutile.csv, providers torch and huggingface; the A100 of 40 GB by that file before 6a2c4913.
- 'olmo': layer norm. allenai/OLMo issue 258 (2 bytes an element).
- 'rms': RMS norm on a B200, by the host, in whole microseconds. pytorch/pytorch pull request 159682. A later table by
  its author, of 177553, has times 1.7 times as long; a GB200 and a GB300 (tests/validation, 'cudnn') agree
  with the quicker.
- 'vectors': ``relu``, times after. pytorch/pytorch pull request 145746, on "Hopper H100": by its rates an SXM.
- 'bytes': a sum of a byte and a number, with the longer loads. pytorch/pytorch pull request 174553.
- 'relu6', 'silu', 'sum', 'softmax': in place; forward; of rows; softmax and, backward, log-softmax. flagos-ai/FlagGems
  pull requests 6514, 4311, 5761, 5578 and 5250, on an "H20": by the 4.2 TB/s that it reaches one of 141 GB.
- 'sums': of all elements, and of rows of 128. pytorch/pytorch issue 132964, pull requests 135397 and 160466 (after).

Timed by events or by Triton's ``do_bench``, 'vectors', 'bytes' and 'rms' by the host over many calls in a row. Times
under 19 us, of 'vectors' under 90, are left out, because much of them is the launch. So are sizes that would fit a
cache that was emptied before, where a kernel mostly waits for the memory.

**Times of attention over whole sequences**, not by serving engines: one call in bf16, fp16 or, '3xtf32', in fp32 by
three GEMMs in TF32. Rates count 4 FLOPs for each query, key and element of a head, half of them where causal, 2.5 times
as many backward. Timed by events or ``do_bench`` unless stated. By source:

- 'fa3': FlashAttention-3 (arXiv:2407.08608), figures 5 and 6, rates of 16,384 tokens and 2,048 columns.
- 'fa-2605', 'fa-2605b': Dao-AILab/flash-attention pull request 2605, two versions; which GPU a table is of follows from
  the peak in its utilization. 'h20', 'b200', 'fa-1777': its issues 1310, 1589 and 1777 (PCIe, whole TFLOP/s).
- 'tlx-3582': facebookexperimental/triton pull request 3582; by its rates an H100 SXM.
- 'rocm-fa-27', 'rocm-fa-44', 'rocm-fa-142': ROCm/flash-attention issues, by the host. 'rocm-triton-507': ROCm/triton
  issue 507, by the host, on an "A100", taken for one of 80 GB.
- 'hipkittens': HazyResearch/HipKittens at f09e968, analysis/attn: AITER forward, CK both ways.
- 'xformers-434', 'xformers-587': facebookresearch/xformers pull requests, the CUTLASS op, by the host; the "A100" taken
  for one of 40 GB, as the V100 beside it is of AWS.
- 'sglang-36494', 'sglang-36525': sgl-project/sglang pull requests. 'a5000': gpu-mode/ring-attention issue 10.
- 'learn-cuda', 'learn-cuda-sdpa': gau-nernst/learn-cuda at 1454f8b, on an RTX 5090 at 400 W. 'leetcuda':
  xlite-dev/LeetCUDA at cb6a049, by the host. 'fa-triton-turing': rationalism/flash-attn-triton, its Triton kernels.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl

from predictors.kernels import DTYPE_BYTES

RATES_TABLE = Path(__file__).with_name("published.csv")
"""What the weights that ship are fitted on, beside measured kernels."""
KERNELS_TABLE = Path(__file__).with_name("published_kernels.csv")
"""The same of vector kernels."""
ATTENTION_TABLE = Path(__file__).with_name("published_attention.csv")
"""The same of attention over whole sequences."""
FLOPS_PER_ELEMENT = {"norm": 8, "softmax": 5, "elementwise": 1, "reduction": 1}
"""Of an element, as tracekit counts them in a trace."""
RATE_GEMM_SIDE = 8192
"""Rows, columns and depth of the product that a figure is taken for: near the best size of most GPUs."""
RATE_SOURCE = "rate"
"""`source` of rates: of GPUs that were idle before, and so cool."""


def load(path: Path) -> pl.DataFrame:
    """Read the kernels in the columns of ``predictors.kernels``, with ``gpu``, ``source`` and ``latency_us``.

    Args:
        path: One of the tables.
    """
    table = pl.read_csv(path)
    if "tflops" in table.columns:
        return _convert_rates(table)
    return _convert_attention(table) if "heads" in table.columns else _convert_kernels(table)


def _convert_rates(table: pl.DataFrame) -> pl.DataFrame:
    return table.select(
        "gpu",
        "dtype",
        family=pl.lit("gemm"),
        source=pl.lit(RATE_SOURCE),
        **{side: pl.lit(RATE_GEMM_SIDE) for side in ("m", "n", "k")},
        batch=pl.lit(1),
        latency_us=2.0 * RATE_GEMM_SIDE**3 / pl.col("tflops") / 1e6,
    )


def _convert_attention(table: pl.DataFrame) -> pl.DataFrame:
    return table.select(
        *("gpu", "dtype", "direction", "causal", "batch", "heads", "kv_heads", "window"),
        family=pl.lit("attention"),
        source=pl.lit("graph"),
        framework="stack",
        paged=pl.lit(False),
        q_len="tokens",
        kv_len="kv_tokens",
        head_dim="width",
        latency_us=pl.col("us").cast(pl.Float64),
    )


def _convert_kernels(table: pl.DataFrame) -> pl.DataFrame:
    size = pl.col("dtype").replace_strict(DTYPE_BYTES, return_dtype=pl.Int64)
    return table.select(
        *("gpu", "dtype", "family", "direction", "rows", "cols", "part"),
        source=pl.lit("published"),
        flops=pl.col("rows")
        * pl.col("cols")
        * pl.col("family").replace_strict(FLOPS_PER_ELEMENT, return_dtype=pl.Int64),
        bytes=pl.col("tensors") * pl.col("rows") * pl.col("cols") * size,
        latency_us=pl.col("us").cast(pl.Float64),
    )
