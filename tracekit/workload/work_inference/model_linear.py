"""Kernels of linear attention in an engine's batch: the gated delta rule of Qwen3-Next, Mamba-2 of Nemotron-H, Granite.

Before it a convolution sees the last few tokens of each channel. A decode batch then reads and writes the state of each
sequence, a matrix for each head. A prefill cuts sequences into chunks and multiplies inside and between them,
a kernel each; of pairs of tokens inside a chunk half count, as they are causal::

    delta rule   key x key -> inverse -> w, u -> states, one after another -> output
    Mamba-2      scores -> state of each chunk -> states, one after another -> output

States are kept in 16 or 32 bits, as the engine is set, which no trace tells.
"""

from collections.abc import Iterator, Mapping

import polars as pl

from tracekit.models.llm import DELTA_RULE_FLOPS, STATE_SPACE_FLOPS
from tracekit.workload.work_inference import model_roles as roles
from tracekit.workload.work_inference.gemms import get_item_bytes

CONVOLUTION = r"conv1d|short_conv"
NARROW = r"(?i)cumsum|gating|gate_fwd|gate_kernel"
"""Kernels on a few numbers for each head."""
STATE_BYTES = 2
WIDE_STATE_FACTOR = 2.0
"""States in fp32 in place of 16 bits."""
DTYPE, ITEM_BYTES, FP32_BYTES = "bf16", 2, 4
"""Engines run linear attention in 16 bits; names of Triton's kernels have no precision."""
UPDATE = r"(?i)recurrent|(?:state|scan|rule)_update|_ssu_|decode"
"""Kernels that handle one token after another."""

LINEAR_TYPES = {
    "linear_key_heads": pl.Int64,
    "linear_heads": pl.Int64,
    "linear_key_width": pl.Int64,
    "linear_value_width": pl.Int64,
    "linear_taps": pl.Int64,
    "linear_chunk": pl.Int64,
    "linear_is_delta": pl.Boolean,
    "linear_in": pl.Int64,
}
"""Sizes of linear attention in a layer on one rank: ``linear_in`` are the columns of its GEMMs, the rest as in
``LinearAttention``."""


def list_linear_changes() -> Iterator[tuple[pl.Expr, Mapping[str, pl.Expr]]]:
    """List which kernels of linear attention get which columns; the first that fits counts."""
    name, delta = pl.col("name"), pl.col("linear_is_delta")
    yield name.str.contains(CONVOLUTION), _build_convolution()
    yield name.str.contains("qkvz"), _build_pass(pl.col("linear_in"), tensors=2)
    yield name.str.contains(UPDATE), _build_update()
    yield name.str.contains(NARROW), _build_pass(pl.col("linear_heads"), tensors=3)
    for of_delta, pattern, columns in _list_chunk_kernels():
        yield (delta == of_delta) & name.str.contains(pattern), columns
    yield pl.lit(value=True), _build_pass(_get_values(), tensors=3)


def _get_values() -> pl.Expr:
    return pl.col("linear_heads") * pl.col("linear_value_width")


def _get_keys() -> pl.Expr:
    return pl.col("linear_key_heads") * pl.col("linear_key_width")


def _get_state() -> pl.Expr:
    """Elements of a sequence's state."""
    return _get_values() * pl.col("linear_key_width")


def _build_pass(cols: pl.Expr, *, tensors: int) -> dict[str, pl.Expr]:
    rows = pl.col("tokens")
    return {
        "rows": rows,
        "cols": cols,
        "flops": tensors * rows * cols,
        "bytes": tensors * rows * cols * ITEM_BYTES,
        "work_low": pl.lit(0.5),
        "work_high": pl.lit(1.5),
    }


def _build_convolution() -> dict[str, pl.Expr]:
    """Build the convolution of queries, keys and values, which also reads and writes its last inputs."""
    rows, taps = pl.col("tokens"), pl.col("linear_taps")
    cols = 2 * _get_keys() + _get_values()
    kept = 2 * pl.col("sequences") * (taps - 1)
    return {
        "rows": rows,
        "cols": cols,
        "flops": 2 * taps * rows * cols,
        "bytes": (2 * rows + kept) * cols * ITEM_BYTES,
        "work_low": pl.lit(1.0),
        "work_high": pl.lit(1.0),
    }


def _build_update() -> dict[str, pl.Expr]:
    """Build one token after another, from the state that the last one left."""
    rows, cols = pl.col("tokens"), _get_values()
    per_element = pl.when("linear_is_delta").then(DELTA_RULE_FLOPS).otherwise(STATE_SPACE_FLOPS)
    states = 2 * pl.col("sequences") * _get_state() * STATE_BYTES
    tokens = rows * (2 * _get_keys() + 2 * cols) * ITEM_BYTES
    return {
        "rows": rows,
        "cols": cols,
        "flops": per_element * rows * _get_state(),
        "bytes": states + tokens,
        "work_low": pl.lit(1.0),
        "work_high": (WIDE_STATE_FACTOR * states + tokens) / (states + tokens),
    }


def _list_chunk_kernels() -> Iterator[tuple[bool, str, dict[str, pl.Expr]]]:
    """List the kernels of chunks: whether of the delta rule, the pattern of their names, their columns."""
    chunk, heads, groups = pl.col("linear_chunk"), pl.col("linear_heads"), pl.col("linear_key_heads")
    key, value, tokens = pl.col("linear_key_width"), pl.col("linear_value_width"), pl.col("tokens")
    rows = pl.min_horizontal(chunk, "queries")
    chunks = pl.col("sequences") * ((pl.col("queries") + chunk - 1) // chunk)
    half = (rows + 1) // 2
    keys, values, pairs = tokens * _get_keys() * ITEM_BYTES, tokens * _get_values() * ITEM_BYTES, tokens * heads * rows
    keys_of_all = tokens * heads * key * ITEM_BYTES
    states = chunks * _get_state() * ITEM_BYTES

    def gemm(batch: pl.Expr, n: pl.Expr, k: pl.Expr, moved: pl.Expr, m: pl.Expr = rows) -> dict[str, pl.Expr]:
        sizes = {"batch": chunks * batch, "m": m, "n": n, "k": k, "bytes": moved}
        return sizes | {"dtype": pl.coalesce("dtype", pl.lit(DTYPE)), "work_low": pl.lit(1.0), "work_high": pl.lit(1.0)}

    inverse = _build_pass(heads * rows, tensors=3)
    output = half + key + (half * key + value - 1) // value  # the state's part, and the pairs' scores and values
    yield True, "kkt", gemm(heads, half, key, keys + FP32_BYTES * pairs)
    yield True, "solve_tril|inverse", inverse
    yield (
        True,
        "recompute_w_u|wy_repr|wu_fwd",
        gemm(heads, key + value, rows, keys + keys_of_all + 2 * values + ITEM_BYTES * pairs),
    )
    yield True, r"fwd_kernel_h|fwd_h\b", gemm(heads, 2 * value, key, keys + keys_of_all + 2 * values + states)
    yield True, r"fwd_kernel_o|fwd_o\b", gemm(heads, value, output, 2 * keys + 2 * values + states)
    scores = chunks * groups * rows * rows * FP32_BYTES
    yield False, "bmm_chunk", gemm(groups, rows, key, 2 * keys + scores)
    yield False, "chunk_state", gemm(heads, key, rows, keys + values + FP32_BYTES * states // ITEM_BYTES, value)
    yield False, "chunk_scan", gemm(heads, value, key + half, scores + keys + 2 * values + states)
    yield False, "state_passing", _build_pass(chunks * _get_state() // tokens, tensors=3)


NORM_KERNEL = r"(?i)norm|rsqrt"
WORK_LOW, WORK_HIGH = 0.5, 1.5
"""Bounds on the bytes of a pass: one of two tensors is not touched, or one more is."""
FLOPS_PER_ELEMENT = 2
RESIDUAL_NORM_TENSORS, PASS_TENSORS = 4, 2


def build_pass_columns() -> dict[str, pl.Expr]:
    """Build the columns of a pass over the activations behind ``role_before``.

    The table has ``mixer_in`` and ``mixer_out``, the columns before and behind attention, ``token_width``,
    ``vocabulary``, ``tokens``, ``rows_of_logits``, ``experts``, ``top_k``, ``wide`` and ``inner`` of its experts or
    its MLP.
    """
    before, hidden = pl.col("role_before"), pl.col("token_width")
    is_norm = (pl.col("family") == "norm") | pl.col("name").str.contains(NORM_KERNEL)
    is_copy = pl.col("family") == "copy"
    is_activation = before.is_in(roles.IN_ROLES)
    gathered = hidden * (1 + pl.col("top_k"))
    inner_rows = pl.when(before == roles.EXPERTS_IN).then("top_k").otherwise(1)
    cols = (
        pl.when(before == roles.LOGITS).then("vocabulary")
        .when(before.is_in(roles.BEFORE_MIXER)).then("mixer_in")
        .when(before.is_in([roles.ATTENTION, roles.EXPAND])).then("mixer_out")
        .when(is_activation).then(pl.col("inner") * inner_rows)
        .when((before == roles.ROUTER) & is_copy).then(gathered)
        .when((before == roles.ROUTER) & (pl.col("family") != "elementwise")).then("experts")
        .when((before == roles.EXPERTS_OUT) & ~is_norm & ~is_copy).then(gathered)
        .otherwise(hidden)
    )  # fmt: skip
    tensors = (
        pl.when(is_norm & ~before.is_in(roles.BEFORE_MIXER)).then(RESIDUAL_NORM_TENSORS)
        .when(is_activation).then(1 + pl.col("wide") / pl.col("inner"))
        .when(cols.eq(gathered)).then(1)
        .otherwise(PASS_TENSORS)
    )  # fmt: skip
    rows = pl.when(before == roles.LOGITS).then("rows_of_logits").otherwise("tokens")
    return {
        "rows": rows,
        "cols": cols,
        "flops": FLOPS_PER_ELEMENT * rows * cols,
        "bytes": (rows * cols * tensors * get_item_bytes()).cast(pl.Int64),
        "work_low": pl.lit(WORK_LOW),
        "work_high": pl.lit(WORK_HIGH),
    }
