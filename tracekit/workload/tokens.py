"""How many tokens GEMMs and experts without shapes worked on, which decides whether they wait for their weights.

Serving engines decode in CUDA graphs, which record no shapes. But the engine marks its batches, and in a graph some
kernels run a block for each token: norms, and what writes into the cache of keys. A norm over heads has more blocks
than one over tokens, so the fewest count.
"""

import polars as pl

from tracekit.ingest import batches
from tracekit.ingest.captured import LAUNCHES_GRAPH
from tracekit.trace import RankTrace

FAMILIES = ("gemm", "moe")
A_BLOCK_A_TOKEN = (
    r"vllm::(?:fused_add_)?rms_norm_kernel|flashinfer::norm::\w*RMSNormKernel|^_rms_norm_fwd_fused$|"
    r"reshape_and_cache|concat_and_cache|_destindex_copy_kv"
)
"""Of vLLM, SGLang (FlashInfer) and LightLLM."""


def fill(kernels: pl.DataFrame, trace: RankTrace) -> pl.DataFrame:
    """``kernels`` with ``tokens``, null where the work is known or nothing tells.

    Args:
        kernels: With the columns of ``schema.KERNELS``; null in ``work_from`` where the work isn't known.
        trace: What the rank recorded.
    """
    lacks = pl.col("family").is_in(FAMILIES) & pl.col("work_from").is_null()
    if not kernels.select(lacks.any()).item():
        return kernels
    graphs = trace.calls.filter(pl.col("name").str.contains(LAUNCHES_GRAPH))
    by_token = pl.col("name").str.contains(A_BLOCK_A_TOKEN)
    blocks = (
        kernels.join(graphs, on="correlation", how="semi")
        .filter(by_token)
        .group_by("correlation")
        .agg(pl.col("blocks").min())
    )
    told = batches.sizes(trace, trace.calls).join(blocks, on="correlation", how="full", coalesce=True)
    tokens = told.select("correlation", tokens=pl.coalesce("blocks", "size")).filter(pl.col("tokens") > 0)
    return kernels.join(tokens, on="correlation", how="left", maintain_order="left").with_columns(
        tokens=pl.when(lacks).then("tokens")
    )
