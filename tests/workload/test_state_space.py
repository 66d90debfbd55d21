"""Mamba and Mamba-2: products inside and between chunks, scans and convolutions, worked out by hand."""

import pytest

from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table

BF16, FLOAT, INT = "c10::BFloat16", "float", "Scalar"
BATCH, TOKENS, HEADS, WIDTH, GROUPS, STATE, CHUNK = 2, 512, 8, 64, 2, 32, 128
CHUNKS = BATCH * TOKENS // CHUNK
INNER = HEADS * WIDTH
CONVOLVED = INNER + 2 * GROUPS * STATE

X, FACTOR = 2 * BATCH * TOKENS * INNER, 2 * BATCH * TOKENS * GROUPS * STATE
STEPS, STATES = 4 * BATCH * TOKENS * HEADS, 4 * CHUNKS * HEADS * WIDTH * STATE
SCORES = 4 * CHUNKS * GROUPS * CHUNK * CHUNK


def scanned() -> tuple[list, list, list]:
    """x, dt, A, B, C, chunk, D, z."""
    factor = [BATCH, TOKENS, GROUPS, STATE]
    dims = [[BATCH, TOKENS, HEADS, WIDTH], [BATCH, TOKENS, HEADS], [HEADS], factor, factor, [], [HEADS], []]
    return dims, [BF16, BF16, FLOAT, BF16, BF16, INT, FLOAT, ""], [*[""] * 5, str(CHUNK), "", ""]


def layer() -> tuple[list, list, list]:
    """The whole layer, with a norm behind the scan: a projection with gate, input, factors and steps in one."""
    tensors = [[BATCH, TOKENS, INNER + CONVOLVED + HEADS], [CONVOLVED, 4], [CONVOLVED], [HEADS], [HEADS], [HEADS]]
    dims = [*tensors, *[[]] * 6, [INNER], [], [256, INNER], *[[]] * 5]
    concrete = [*[""] * 6, str(CHUNK), *[""] * 9, str(WIDTH), str(GROUPS), "True", ""]
    return dims, [BF16 if shape else INT for shape in dims], concrete


def rows(op: str, names: list[str], signature: tuple[list, list, list]) -> dict[str, dict]:
    dims, types, concrete = signature
    builder = TraceBuilder().op(op, 0, 900, dims=dims, types=types, concrete=concrete, **{"Sequence number": 5})
    launch, thread = 10, {}
    if op.endswith("Fn") and any("bwd" in name for name in names):
        gradient = {"dims": [[BATCH, TOKENS, INNER]], "types": [BF16], "Sequence number": 5}
        builder.op(f"{op}Backward", 1000, 900, thread=101, **gradient)
        launch, thread = 1010, {"thread": 101}
    for i, name in enumerate(names):
        builder.kernel(name, 3000 + 50 * i, 40, launch=launch + i, **thread)
    return {row["name"]: row for row in build_kernel_table(builder.load().rank()).iter_rows(named=True)}


PER_HEAD, PER_GROUP = CHUNKS * HEADS, CHUNKS * GROUPS
PRODUCTS = {
    "_bmm_chunk_fwd_kernel": (PER_GROUP, CHUNK, CHUNK, STATE, 2 * FACTOR + SCORES),
    "_chunk_state_fwd_kernel": (PER_HEAD, WIDTH, STATE, CHUNK, FACTOR + X + 2 * STEPS + STATES),
    # The other tokens of a chunk up to each one, and the state before it.
    "_chunk_scan_fwd_kernel": (
        PER_HEAD,
        CHUNK,
        WIDTH,
        STATE + CHUNK // 2,
        SCORES + 2 * X + 2 * STEPS + FACTOR + STATES // 2,
    ),
}
GRADIENTS = {
    "_chunk_scan_bwd_dstates_kernel": (PER_HEAD, WIDTH, STATE, CHUNK, FACTOR + X + 2 * STEPS + STATES),
    "_chunk_scan_chunk_state_bwd_dx_kernel": (
        PER_HEAD,
        CHUNK,
        WIDTH,
        STATE + CHUNK // 2,
        SCORES + 3 * X + 3 * STEPS + FACTOR + STATES // 2,
    ),
    "_chunk_state_bwd_db_kernel": (PER_HEAD, CHUNK, STATE, WIDTH, X + 2 * STEPS + STATES // 2 + 3 * FACTOR),
    "_chunk_scan_bwd_dc_kernel": (PER_HEAD, CHUNK, STATE, WIDTH, X + 2 * STEPS + STATES // 2 + 3 * FACTOR),
    "_chunk_scan_bwd_dcb_kernel": (PER_HEAD, CHUNK, CHUNK // 2, WIDTH, 2 * X + 2 * STEPS + SCORES),
    "_chunk_scan_bwd_ddAcs_stable_kernel": (PER_HEAD, CHUNK, CHUNK // 2, WIDTH, 2 * X + 2 * STEPS + SCORES),
    "_bmm_chunk_bwd_kernel": (PER_GROUP, CHUNK, STATE, CHUNK, 4 * FACTOR + SCORES),
}


@pytest.mark.parametrize(
    ("op", "signature"), [("MambaChunkScanCombinedFn", scanned()), ("MambaSplitConv1dScanCombinedFn", layer())]
)
@pytest.mark.parametrize("expected", [PRODUCTS, GRADIENTS], ids=["forward", "backward"])
def test_products_of_mamba_2(op, signature, expected):
    found = rows(op, list(expected), signature)
    columns = ("batch", "m", "n", "k", "bytes")
    assert {name: tuple(row[column] for column in columns) for name, row in found.items()} == expected
    assert {(row["family"], row["dtype"], row["share"]) for row in found.values()} == {
        ("linear_attention", "bf16", 1.0)
    }


def test_passes_of_mamba_2():
    names = ["_chunk_cumsum_fwd_kernel", "_state_passing_fwd_kernel", "_layer_norm_fwd_1pass_kernel"]
    found = rows("MambaSplitConv1dScanCombinedFn", names, layer())
    assert [found[name]["bytes"] for name in names] == [2 * STEPS + STEPS // 2, STATES + STATES // 2, 3 * X]


def test_a_gate_in_the_scan_and_a_rest_of_a_chunk():
    dims, types, concrete = scanned()
    dims = [[BATCH, 300, *shape[2:]] if len(shape) > 2 else shape for shape in dims]
    dims[7], types[7] = dims[0], BF16
    row = rows("MambaChunkScanCombinedFn", ["_chunk_scan_fwd_kernel"], (dims, types, concrete))[
        "_chunk_scan_fwd_kernel"
    ]
    # 300 tokens are 3 chunks of 100; the gate is read and the output before it written too.
    assert (row["batch"], row["m"], row["k"]) == (BATCH * 3 * HEADS, 100, STATE + 50)
    x, factor, steps = (size * 300 // TOKENS for size in (X, FACTOR, STEPS))
    scores, states = 4 * BATCH * 3 * GROUPS * 100**2, 2 * BATCH * 3 * HEADS * WIDTH * STATE
    assert row["bytes"] == scores + 4 * x + 2 * steps + factor + states


def test_what_was_not_recorded_leaves_the_work_open():
    dims, types, _ = layer()
    row = rows("MambaSplitConv1dScanCombinedFn", ["_bmm_chunk_fwd_kernel"], (dims, types, []))["_bmm_chunk_fwd_kernel"]
    assert (row["family"], row["m"]) == ("linear_attention", None)


FORWARD_SCAN = "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, true, true>>(SSMParamsBase)"
BACKWARD_SCAN = "void selective_scan_bwd_kernel<Selective_Scan_bwd_kernel_traits<128, 16, true, true>>(SSMParamsBwd)"
ELEMENTS, FACTORS = 2 * 64 * 100, 2 * 2 * 16 * 100


@pytest.mark.parametrize(
    ("op", "kernel", "dims", "moved", "flops"),
    [
        # 2 sequences of 100 tokens, 64 channels, 16 states: input, steps, output; both factors.
        ("SelectiveScanFn", FORWARD_SCAN, [[2, 64, 100], [2, 64, 100], [64, 16]], 3, 9),
        ("SelectiveScanFn", BACKWARD_SCAN, [[2, 64, 100], [2, 64, 100], [64, 16]], 5, 27),
        # With a gate, and the output behind it.
        ("_C::selective_scan_fwd", FORWARD_SCAN, [[64, 200], [64, 200], [64, 16], [], [], [], [64, 200]], 5, 9),
        ("MambaInnerFn", FORWARD_SCAN, [[2, 128, 100], [64, 1, 4], *[[]] * 5, [64, 16]], 5, 9),
    ],
)
def test_scans_of_mamba(op, kernel, dims, moved, flops):
    row = rows(op, [kernel], (dims, [BF16 if shape else "" for shape in dims], []))[kernel]
    gradients = 4 * FACTORS if kernel == BACKWARD_SCAN else 0
    assert row["bytes"] == 2 * (moved * ELEMENTS + FACTORS) + gradients
    assert row["flops"] == flops * ELEMENTS * 16


@pytest.mark.parametrize(
    ("op", "dims", "direction", "passes"),
    [
        ("DaoAILab::_causal_conv1d_fwd_cpp", [[2, 64, 100], [64, 4]], "fwd", 2),
        ("DaoAILab::_causal_conv1d_bwd_cpp", [[2, 64, 100], [64, 4]], "bwd", 3),
        ("MambaInnerFn", [[2, 128, 100], [64, 1, 4]], "fwd", 2),
        ("MambaSplitConv1dScanCombinedFn", [[2, 100, 999], [64, 4]], "fwd", 2),
        ("_C::causal_conv1d_fwd", [[64, 200], [64, 4]], "fwd", 2),
    ],
)
def test_the_convolution_before_it(op, dims, direction, passes):
    kernel = f"void causal_conv1d_{direction}_kernel<Causal_conv1d_{direction}_kernel_traits<128, 4, true>>(ConvParams)"
    row = rows(op, [kernel], (dims, [BF16, BF16], []))[kernel]
    assert (row["family"], row["bytes"], row["flops"]) == (
        "linear_attention",
        passes * 2 * ELEMENTS,
        2 * 4 * ELEMENTS * (passes - 1),
    )
