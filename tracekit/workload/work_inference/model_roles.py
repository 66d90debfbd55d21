"""The GEMMs that a model's layers consist of, in the order in which an engine launches them.

Attention divides a batch's kernels into segments. A segment holds the rest of one layer and the beginning of the next::

    segment 0      segment 1                                     ...   segment L
    qkv            output, MLP of layer 0, qkv of layer 1              output, MLP of layer L - 1, logits
          attention 0                            attention 1     ...

Engines differ in which matrices they fuse. Each way is a variant; the counts of GEMMs tell which one a trace has.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import polars as pl

from tracekit.models.llm import LatentAttention, LinearAttention, ModelConfig, TransformerLayer

QKV, OUTPUT, ROUTER, LOGITS = "qkv", "output", "router", "logits"
MLP_IN, MLP_OUT, EXPERTS_IN, EXPERTS_OUT = "mlp in", "mlp out", "experts in", "experts out"
OF_EXPERTS = (EXPERTS_IN, EXPERTS_OUT)
SHARED_IN, SHARED_OUT, SHARED_GATE = "shared in", "shared out", "shared gate"
COMPRESS, QUERY, KEYS_AND_VALUES = "compress", "query", "keys and values"
ABSORB, EXPAND = "absorb", "expand"
"""Of latent attention in a decode batch, a GEMM per head: queries into the space of the cache, the output out of it."""
PER_HEAD = (ABSORB, EXPAND)
LINEAR_IN, LINEAR_GATES = "linear in", "linear gates"
OF_INDEXER = INDEX_QUERY, INDEX_KEY, INDEX_WEIGHTS = "index query", "index key", "index weights"
"""Of what selects the keys of sparse attention."""
BEFORE_MIXER = (QKV, COMPRESS, QUERY, KEYS_AND_VALUES, ABSORB, LINEAR_IN, LINEAR_GATES, *OF_INDEXER)
IN_ROLES = (MLP_IN, SHARED_IN, EXPERTS_IN)
"""GEMMs that an activation follows."""
START, ATTENTION = "start", "attention"
"""What else may come before a kernel: the beginning of a batch, and attention."""
FIRST, AFTER, FUSED = "first", "after", "fused"
"""Where the expert of all tokens comes: before the router, after it, or as one more of the experts."""

ROLE_TYPES = {
    "segment": pl.Int64,
    "place": pl.Int64,
    "role": pl.String,
    "n_of_model": pl.Int64,
    "k_of_model": pl.Int64,
    "layer": pl.Int64,
    "more_experts": pl.Int64,
}


@dataclass(frozen=True, slots=True)
class Fusion:
    """Which matrices an engine fuses into one GEMM.

    Attributes:
        qkv: Query, key and value.
        gate: The gate and the input of an MLP.
        router: Whether the router is a GEMM of its own.
        logits: Whether the batch ends with the output matrix.
        absorbed: Whether latent attention works on the compressed cache, as decode batches do.
        shared: Where the expert of all tokens comes.
        shared_gate: Whether its gate is a GEMM of its own.
    """

    qkv: bool
    gate: bool
    router: bool
    logits: bool
    absorbed: bool = False
    shared: str = AFTER
    shared_gate: bool = False


def list_fusions(model: ModelConfig) -> tuple[Fusion, ...]:
    """List the ways in which an engine may fuse the matrices of a model, the most usual first."""
    both = (True, False)
    latent = any(layer.latent for layer in model.layers)
    shared = any(layer.shared_width for layer in model.layers)
    gated = any(layer.shared_width and layer.is_shared_gated for layer in model.layers)
    choices = (both, both, both, both, both if latent else (False,))
    places = (AFTER, FIRST, FUSED) if shared else (AFTER,)
    return tuple(Fusion(*flags) for flags in product(*choices, places, both if gated else (False,)))


def list_roles(model: ModelConfig, fusion: Fusion, tensor_parallel: int) -> pl.DataFrame:
    """List the GEMMs of a batch.

    ``tensor_parallel`` ranks share each layer.

    Returns:
        ``segment``, ``place`` in it, ``role``, and the sizes of the weight: ``n_of_model`` and ``k_of_model``; of the
        experts those of one. ``layer`` is the layer to which it belongs; ``more_experts`` of all tokens are among its
        experts.
    """
    rows: list[tuple[int | str, ...]] = []
    more = int(fusion.shared == FUSED)
    for segment in range(len(model.layers) + 1):
        found = _iter_segment(model, fusion, tensor_parallel, segment)
        rows += [(segment, place, *role, more) for place, role in enumerate(found)]
    return pl.DataFrame(rows, schema=ROLE_TYPES, orient="row")


def _iter_segment(model: ModelConfig, fusion: Fusion, ranks: int, segment: int) -> Iterator[tuple[str, int, int, int]]:
    hidden, last = model.hidden, len(model.layers)
    if segment > 0:
        before = model.layers[segment - 1]
        if before.latent and fusion.absorbed:
            yield EXPAND, before.latent.value, before.latent.kv_rank, segment - 1
        yield OUTPUT, hidden, get_mixer_width(before, ranks), segment - 1
        for role, n, k in _iter_mlp(before, fusion, hidden, ranks):
            yield role, n, k, segment - 1
    if segment < last:
        for role, n, k in _iter_before(model.layers[segment], fusion, hidden, ranks):
            yield role, n, k, segment
    elif fusion.logits and model.vocabulary:
        yield LOGITS, split(model.vocabulary, ranks), hidden, segment - 1


def _list_qkv_widths(layer: TransformerLayer, fusion: Fusion, ranks: int) -> list[int]:
    query, key = (split(heads, ranks) * layer.head_dim for heads in (layer.heads, layer.kv_heads))
    query *= 2 if layer.is_output_gated else 1
    return [query + 2 * key] if fusion.qkv else [query, key, key]


def _iter_before(layer: TransformerLayer, fusion: Fusion, hidden: int, ranks: int) -> Iterator[tuple[str, int, int]]:
    """Yield role and weight of each GEMM before a layer's attention."""
    if layer.linear:
        for role, width in zip((LINEAR_IN, LINEAR_GATES), list_linear_widths(layer.linear, ranks), strict=False):
            yield role, width, hidden
    elif layer.latent:
        found = [*_iter_latent(layer.latent, split(layer.heads, ranks), fusion, hidden)]
        yield from found[:-1]
        if layer.indexer:
            yield INDEX_QUERY, layer.indexer.heads * layer.indexer.width, layer.latent.query_rank or hidden
            yield INDEX_KEY, layer.indexer.width, hidden
            yield INDEX_WEIGHTS, layer.indexer.heads, hidden
        yield found[-1]
    else:
        for width in _list_qkv_widths(layer, fusion, ranks):
            yield QKV, width, hidden


def list_linear_widths(linear: LinearAttention, ranks: int) -> list[int]:
    """List the columns of the GEMMs into linear attention.

    Of the gated delta rule one has queries, keys, values and the output's gate, the other two numbers a head; that of
    Mamba-2 has all, with one number a head.
    """
    heads = split(linear.heads, ranks)
    keys, values = split(linear.key_heads, ranks) * linear.key_width, heads * linear.value_width
    return [2 * keys + 2 * values, 2 * heads] if linear.is_delta_rule else [2 * keys + 2 * values + heads]


def _iter_latent(latent: LatentAttention, heads: int, fusion: Fusion, hidden: int) -> Iterator[tuple[str, int, int]]:
    query = heads * (latent.plain + latent.rotated)
    if not latent.query_rank:
        yield QUERY, query, hidden
        yield COMPRESS, latent.cached, hidden
    else:
        together = [latent.query_rank + latent.cached] if fusion.qkv else [latent.query_rank, latent.cached]
        for width in together:
            yield COMPRESS, width, hidden
        yield QUERY, query, latent.query_rank
    if fusion.absorbed:
        yield ABSORB, latent.kv_rank, latent.plain
    else:
        yield KEYS_AND_VALUES, heads * (latent.plain + latent.value), latent.kv_rank


def _iter_mlp(layer: TransformerLayer, fusion: Fusion, hidden: int, ranks: int) -> Iterator[tuple[str, int, int]]:
    """Yield role and weight of each GEMM of an MLP, or of a router and its experts."""
    width, shared = split(layer.mlp_width, ranks), split(layer.shared_width, ranks)
    if not layer.experts:
        if width:
            yield from _iter_two_layers((MLP_IN, MLP_OUT), width, hidden, layer.is_gated, fusion.gate)
        return
    if shared and fusion.shared == FIRST:
        yield from _iter_shared(layer, fusion, hidden, shared)
    if fusion.router:
        yield ROUTER, layer.experts, hidden
    if shared and fusion.shared == AFTER:
        yield from _iter_shared(layer, fusion, hidden, shared)
    yield EXPERTS_IN, (2 if layer.is_gated else 1) * width, hidden
    yield EXPERTS_OUT, hidden, width


def _iter_shared(layer: TransformerLayer, fusion: Fusion, hidden: int, width: int) -> Iterator[tuple[str, int, int]]:
    yield from _iter_two_layers((SHARED_IN, SHARED_OUT), width, hidden, layer.is_gated, fusion.gate)
    if layer.is_shared_gated and fusion.shared_gate:
        yield SHARED_GATE, 1, hidden


def _iter_two_layers(
    roles: tuple[str, str], width: int, hidden: int, is_gated: bool, is_fused: bool
) -> Iterator[tuple[str, int, int]]:
    first, second = roles
    for columns in ([2 * width] if is_fused else [width, width]) if is_gated else [width]:
        yield first, columns, hidden
    yield second, hidden, width


def get_mixer_width(layer: TransformerLayer, ranks: int) -> int:
    """Return the columns of what attention, or what stands in its place, gives a rank."""
    if layer.linear:
        return split(layer.linear.heads, ranks) * layer.linear.value_width
    return split(layer.heads, ranks) * (layer.latent.value if layer.latent else layer.head_dim)


def split(size: int, ranks: int) -> int:
    """Return a rank's part of heads or columns; all ranks have at least one head."""
    return max(size // ranks, 1) if size else 0
