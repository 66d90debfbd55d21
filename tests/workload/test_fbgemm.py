"""FBGEMM's backward passes and moves, worked out by hand."""

import pytest

from tracekit.models.lookups import USUAL_ALPHA, get_distribution
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import build_kernel_table
from tracekit.workload.ops.table_lookups import LOADING_CLOCKS, UPDATING_CLOCKS

# 1792 indices into 3 tables, summed for 128 samples: 384 sums, 16 wide.
INDICES, TABLES, SAMPLES, WIDTH = 1792, 3, 128, 16
FORWARD_TYPES = ["float", "c10::Half", *["float"] * 2, "int", "long int", "int", "", "", "long int", "", "long int"]


def lookup(builder, start, kind="rowwise_adagrad", indices=INDICES, sums=TABLES * SAMPLES):
    dims = [
        [0],
        [640_000],
        [0],
        [0, 0],
        [TABLES],
        [TABLES],
        [TABLES + 1],
        [],
        [],
        [TABLES + 1],
        [],
        [indices],
        [sums + 1],
    ]
    name = f"fbgemm::split_embedding_codegen_lookup_{kind}_function"
    return builder.op(name, start, 20, dims=dims, types=[*FORWARD_TYPES, "long int"])


def backward(builder, kernels, kind="rowwise_adagrad", samples=SAMPLES):
    name = f"torch::autograd::CppNode<SplitLookupFunction_{kind}_Op>"
    builder.op(name, 200, 90, dims=[[samples, TABLES * WIDTH]], types=["float"])
    for i, kernel in enumerate(kernels):
        builder.kernel(kernel, 300 + 40 * i, 10 * (i + 1), launch=210 + 5 * i)
    return [row for row in build_kernel_table(builder.load().rank()).iter_rows(named=True) if row["name"] in kernels]


UPDATES = [
    f"void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_{part}_per_row_1<c10::Half, float>()"
    for part in ("cta", "warp")
]


# A gradient in fp32, the index and its place; of each different row, halves and a number of the optimizer, both ways.
READ, CHANGED = WIDTH * 4 + 12, 2 * 2 * WIDTH + 8


def count_update_bytes(weights: int = 640_000, indices: int = INDICES, alpha: float = USUAL_ALPHA) -> int:
    """Return the bytes of an update with as many different rows as a distribution draws from each table."""
    unique = TABLES * get_distribution(weights // (WIDTH * TABLES), alpha).expect_unique(indices / TABLES)
    return round(indices * READ + unique * CHANGED)


def test_each_index_reads_a_gradient_and_each_different_row_is_changed():
    rows = backward(lookup(TraceBuilder(), 0), UPDATES)
    bytes_ = count_update_bytes()
    assert [(row["family"], row["bytes"]) for row in rows] == [("optimizer", bytes_)] * 2
    for row in rows:
        assert row["work_low"] * bytes_ == pytest.approx(count_update_bytes(alpha=1.2), rel=1e-4)
        assert row["work_high"] * bytes_ == pytest.approx(count_update_bytes(alpha=0.0), rel=1e-4)
    assert [row["share"] for row in rows] == [pytest.approx(1 / 3), pytest.approx(2 / 3)]


@pytest.mark.parametrize(("indices", "blocks"), [(60, 0), (3 * 597, 2)])
def test_a_block_updates_rows_only_if_some_are_drawn_often(indices, blocks):
    most = get_distribution(640_000 // (WIDTH * TABLES)).expect_most_frequent(indices / TABLES)
    assert (most > 32) == (blocks > 0)
    cta, warp = (row["serial_clocks"] for row in backward(lookup(TraceBuilder(), 0, indices=indices), UPDATES))
    assert warp == UPDATING_CLOCKS
    assert cta == (blocks * UPDATING_CLOCKS + round(most / 32) * LOADING_CLOCKS if blocks else None)


@pytest.mark.parametrize("flags", [[], [[]]])
def test_a_backward_pass_that_names_its_indices_needs_no_lookup(flags):
    # Gradient, weights in three places, placements, offsets of weights and of widths, widest, hash sizes, bits.
    dims = [[SAMPLES, TABLES * WIDTH], [640_000], [0], [0, 0], [TABLES], [TABLES], [TABLES + 1], [], *flags,
            [TABLES + 1], [], [INDICES], [TABLES * SAMPLES + 1], []]  # fmt: skip
    types = ["float", "c10::Half", "c10::Half", "float", "int", "long int", "int", "", *[""] * len(flags), "long int",
             "", "long int", "long int", ""]  # fmt: skip
    name = "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda"
    builder = TraceBuilder().op(name, 200, 90, dims=dims, types=types).kernel(UPDATES[0], 300, 10, launch=210)
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    assert (row["family"], row["bytes"]) == ("optimizer", count_update_bytes())


def test_a_lookup_as_an_op_of_its_own():
    dims = [[640_000], [0], [0, 0], [TABLES], [TABLES], [TABLES + 1], [], [], [INDICES], [TABLES * SAMPLES + 1], []]
    types = ["c10::Half", "c10::Half", "float", "int", "long int", "int", "", "", "long int", "long int", ""]
    concrete = ["", "", "", "", "", "", str(TABLES * WIDTH), "16", "", "", "0"]
    name = "fbgemm::split_embedding_codegen_forward_unweighted_cuda"
    builder = TraceBuilder().op(name, 0, 50, dims=dims, types=types, concrete=concrete)
    kernel = "void split_embedding_codegen_forward_unweighted_kernel<c10::Half, float, float, long, 4ul, 32ul>"
    row = build_kernel_table(builder.kernel(kernel, 60, 30, launch=10).load().rank()).row(0, named=True)
    summed = TABLES * SAMPLES * WIDTH * 4
    unique = TABLES * get_distribution(640_000 // (WIDTH * TABLES)).expect_unique(INDICES / TABLES)
    assert (row["family"], row["bytes"]) == (
        "embedding", round(unique * WIDTH * 2) + summed + 8 * (INDICES + TABLES * SAMPLES + 1),
    )  # fmt: skip


def test_kernels_that_sort_go_over_the_indices():
    kernels = [
        "void linearize_index_kernel<long>(at::GenericPackedTensorAccessor<long, 1ul>)",
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false, long>",
        "void cub::DeviceReduceByKeyKernel<cub::DispatchReduceByKey<long*, long*>>",
        "void cub::DeviceCompactInitKernel<cub::ReduceByKeyScanTileState<int, int, true>, int*>",
        "void split_embedding_codegen_grad_indice_weights_kernel<c10::Half, float, c10::Half, 2ul>",
    ]
    rows = backward(lookup(TraceBuilder(), 0), kernels)  # the fourth only clears a few words
    weights = INDICES * (2 * WIDTH + 12) + 4 * SAMPLES * TABLES * WIDTH
    assert [row["bytes"] for row in rows] == [INDICES * 20, INDICES * 24, INDICES * 8, 4096, weights]
    assert {row["share"] for row in rows} == {1.0}


def test_the_latest_lookup_that_fits_is_meant():
    builder = lookup(lookup(lookup(TraceBuilder(), 0, indices=10), 30), 60, indices=20, sums=7)
    lookup(lookup(builder, 90, kind="adagrad", indices=30), 400, indices=40)
    assert backward(builder, UPDATES[:1])[0]["rows"] == INDICES


def test_a_backward_pass_goes_the_way_back():
    builder = lookup(lookup(TraceBuilder(), 0, indices=10), 30, indices=20)
    name = "torch::autograd::CppNode<SplitLookupFunction_rowwise_adagrad_Op>"
    for i in (0, 1):
        builder.op(name, 200 + 100 * i, 90, dims=[[SAMPLES, TABLES * WIDTH]], types=["float"])
        builder.kernel(UPDATES[i], 500 + 40 * i, 10, launch=210 + 100 * i)
    assert build_kernel_table(builder.load().rank())["rows"].to_list() == [20, 10]


def test_a_lookup_without_indices_updates_nothing():
    assert backward(lookup(TraceBuilder(), 0, indices=0), UPDATES[:1])[0]["bytes"] is None


@pytest.mark.parametrize(("samples", "kind"), [(64, "rowwise_adagrad"), (SAMPLES, "rmsprop")])
def test_without_a_lookup_that_fits_nothing_is_told(samples, kind):
    assert backward(lookup(TraceBuilder(), 0, kind=kind), UPDATES[:1], kind=kind, samples=samples)[0]["bytes"] is None


@pytest.mark.parametrize(
    ("op", "kernel", "dims", "types", "family", "bytes_"),
    [
        ("torch::autograd::CppNode<fbgemm_gpu::PermutePooledEmbsFunction<&fbgemm_gpu::permute_pooled_embs_gpu> >",
         "void permute_pooled_embs_kernel<float>(float const*)", [[4096, 768]], ["float"], "copy", 2 * 4 * 4096 * 768),
        ("fbgemm::FloatToFP8RowwiseQuantized",
         "void fbgemm_gpu::(anonymous namespace)::_compute_FP8_quantize_cuda_kernel<float>(float const*)",
         [[100, 256], []], ["float", "Scalar"], "elementwise", 5 * 25600),
        ("fbgemm::FP8RowwiseQuantizedToFloat",
         "void fbgemm_gpu::(anonymous namespace)::_FP8rowwise_to_float_cuda_kernel<float>(unsigned char const*)",
         [[100, 264], []], ["unsigned char", "Scalar"], "elementwise", 5 * 26400),
    ],
)  # fmt: skip
def test_what_fbgemm_moves(op, kernel, dims, types, family, bytes_):
    builder = TraceBuilder().op(op, 0, 50, dims=dims, types=types).kernel(kernel, 60, 30, launch=10)
    row = build_kernel_table(builder.load().rank()).row(0, named=True)
    assert (row["family"], row["bytes"]) == (family, bytes_)


@pytest.mark.parametrize(
    ("widest", "pooling", "row_bytes", "elements"),
    [
        # 3 tables, 64 wide on average, 50 bags of each, 600 indices: 8 bits, scale and offset; results in fp16.
        ({9: "64"}, "0", [64 + 4], 50 * 192),
        ({8: "64"}, "0", [32 + 4], 50 * 192),
        ({10: "64"}, "2", [128], 600 * 64),
        # Of two types: their mean, and both in the bracket.
        ({8: "64", 10: "64"}, "0", [36, 128], 50 * 192),
    ],
)
def test_lookups_in_quantised_tables(widest, pooling, row_bytes, elements):
    dims = [[10**6], [0], [3], [3], [3], [4], *[[]] * 6, [600], [151], *[[]] * 9]
    types = [*["unsigned char"] * 2, "int", "long", "unsigned char", "int", *["Scalar"] * 6, "int", "int"]
    concrete = [*[""] * 6, "192", *["0"] * 5, "", "", pooling, "", "1", *[""] * 3, "0", "-1", "-1"]
    for index, value in widest.items():
        concrete[index] = value
    builder = TraceBuilder().op(
        "fbgemm::int_nbit_split_embedding_codegen_lookup_function",
        0,
        50,
        dims=dims,
        types=[*types, *[""] * (len(dims) - len(types))],
        concrete=concrete,
    )
    name = "void nbit::INT8_split_embedding_codegen_forward_unweighted_kernel_small_L<int, c10::Half, 4u, 4u, 8u>"
    row = build_kernel_table(builder.kernel(name, 60, 5, launch=10).load().rank()).row(0, named=True)
    size = sum(row_bytes) / len(row_bytes)
    bags = 150 if pooling == "0" else 600
    fixed = elements * 2 + 4 * (600 + bags) + 8

    def moved(size: float, alpha: float = USUAL_ALPHA, rows: int = int(10**6 / (3 * size))) -> float:
        return 3 * get_distribution(rows, alpha).expect_unique(200) * size + fixed

    assert (row["family"], row["bytes"]) == ("embedding", pytest.approx(moved(size), abs=1))
    assert row["work_low"] * row["bytes"] <= moved(min(row_bytes)) + 1
    assert row["work_high"] * row["bytes"] >= max(moved(max(row_bytes)), moved(size, 0.0)) - 1


def test_scans_of_segments_go_over_all_indices():
    """They read and write numbers of 4 bytes; long segments are only looked for. Counters are next to nothing."""
    kernels = (
        "void cub::DeviceScanKernel<int>(int*)",
        "split_embedding_backward_codegen_rowwise_adagrad_unweighted_find_long_segments(int*)",
        "void cub::DeviceCompactInitKernel<int>(int*)",
        "void cub::DeviceRadixSortExclusiveSumKernel<int>(int*)",
    )
    found = backward(lookup(TraceBuilder(), 0), kernels)
    assert [row["bytes"] for row in found] == [8 * INDICES, 4 * INDICES, 4096, 4096]
