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

from tracekit.model_config import ModelConfig, TransformerLayer

QKV, OUTPUT, ROUTER, LOGITS = "qkv", "output", "router", "logits"
MLP_IN, MLP_OUT, EXPERTS_IN, EXPERTS_OUT = "mlp in", "mlp out", "experts in", "experts out"
OF_EXPERTS = (EXPERTS_IN, EXPERTS_OUT)
SHARED_IN, SHARED_OUT = "shared in", "shared out"
START, ATTENTION = "start", "attention"
"""What else may come before a kernel: the beginning of a batch, and attention."""

ROLE_TYPES = {
    "segment": pl.Int64,
    "place": pl.Int64,
    "role": pl.String,
    "n_of_model": pl.Int64,
    "k_of_model": pl.Int64,
    "layer": pl.Int64,
}


@dataclass(frozen=True, slots=True)
class Fusion:
    """Which matrices an engine fuses into one GEMM.

    Attributes:
        qkv: Query, key and value.
        gate: The gate and the input of an MLP.
        router: Whether the router is a GEMM of its own.
        logits: Whether the batch ends with the output matrix.
    """

    qkv: bool
    gate: bool
    router: bool
    logits: bool


FUSIONS = tuple(Fusion(*flags) for flags in product((True, False), repeat=4))


def list_roles(model: ModelConfig, fusion: Fusion, tensor_parallel: int) -> pl.DataFrame:
    """List the GEMMs of a batch.

    Args:
        model: The model.
        fusion: Which matrices are fused.
        tensor_parallel: Ranks that share each layer.

    Returns:
        ``segment``, ``place`` in it, ``role``, and the sizes of the weight: ``n_of_model`` and ``k_of_model``; of the
        experts those of one. ``layer`` is the layer to which it belongs.
    """
    rows = []
    for segment in range(len(model.layers) + 1):
        found = _iter_segment(model, fusion, tensor_parallel, segment)
        rows += [(segment, place, *role) for place, role in enumerate(found)]
    return pl.DataFrame(rows, schema=ROLE_TYPES, orient="row")


def _iter_segment(model: ModelConfig, fusion: Fusion, ranks: int, segment: int) -> Iterator[tuple[str, int, int, int]]:
    hidden, last = model.hidden, len(model.layers)
    if segment > 0:
        before = model.layers[segment - 1]
        yield OUTPUT, hidden, split(before.heads, ranks) * before.head_dim, segment - 1
        for role, n, k in _iter_mlp(before, fusion, hidden, ranks):
            yield role, n, k, segment - 1
    if segment < last:
        layer = model.layers[segment]
        for width in _list_qkv_widths(layer, fusion, ranks):
            yield QKV, width, hidden, segment
    elif fusion.logits and model.vocabulary:
        yield LOGITS, split(model.vocabulary, ranks), hidden, segment - 1


def _list_qkv_widths(layer: TransformerLayer, fusion: Fusion, ranks: int) -> list[int]:
    query, key = (split(heads, ranks) * layer.head_dim for heads in (layer.heads, layer.kv_heads))
    return [query + 2 * key] if fusion.qkv else [query, key, key]


def _iter_mlp(layer: TransformerLayer, fusion: Fusion, hidden: int, ranks: int) -> Iterator[tuple[str, int, int]]:
    """Yield role and weight of each GEMM of an MLP, or of a router and its experts."""
    width, shared = split(layer.mlp_width, ranks), split(layer.shared_width, ranks)
    if not layer.experts:
        yield from _iter_two_layers((MLP_IN, MLP_OUT), width, hidden, layer.is_gated, fusion.gate)
        return
    if fusion.router:
        yield ROUTER, layer.experts, hidden
    if shared:
        yield from _iter_two_layers((SHARED_IN, SHARED_OUT), shared, hidden, layer.is_gated, fusion.gate)
    yield EXPERTS_IN, (2 if layer.is_gated else 1) * width, hidden
    yield EXPERTS_OUT, hidden, width


def _iter_two_layers(
    roles: tuple[str, str], width: int, hidden: int, is_gated: bool, is_fused: bool
) -> Iterator[tuple[str, int, int]]:
    first, second = roles
    for columns in ([2 * width] if is_fused else [width, width]) if is_gated else [width]:
        yield first, columns, hidden
    yield second, hidden, width


def split(size: int, ranks: int) -> int:
    """Return a rank's part of heads or columns; all ranks have at least one head."""
    return max(size // ranks, 1) if size else 0
