"""A step with another batch: hand-worked kernels, and a model that was really run on twice the batch."""

from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from predictors import load_gpu, predict
from tracekit.parallelism.batch_size import scale_batch
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.relayout import add_measured_times, relayout_kernels
from tracekit.prediction.kernel_times import KernelTimePredictor
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

TOKENS, WIDTH, WIDE = 512, 1024, 4096
GEMM, VECTOR = "ampere_bf16_s16816gemm_bf16_128x128", "vectorized_elementwise_kernel"
BF16 = "c10::BFloat16"


def training() -> TraceBuilder:
    """A layer forward, its two products backward, a gradient that is added up, and the optimizer."""
    weight = [WIDTH, WIDE]
    calls = (
        ("aten::mm", [[TOKENS, WIDTH], weight], GEMM),
        ("aten::gelu", [[TOKENS, WIDE]], VECTOR),
        ("aten::mm", [[TOKENS, WIDE], weight[::-1]], GEMM),
        ("aten::mm", [[WIDTH, TOKENS], [TOKENS, WIDE]], GEMM),
        ("aten::add_", [weight, weight], VECTOR),
        ("aten::_fused_adamw_", [weight], "multi_tensor_apply_kernel"),
    )
    builder = TraceBuilder().op("autograd::engine::evaluate_function: MmBackward0", 40, 60)
    for number, (op, dims, kernel) in enumerate(calls):
        start = 20.0 * number
        builder.op(op, start, 10, dims=dims, types=[BF16] * len(dims))
        builder.kernel(kernel, 200 + 50 * number, 40, launch=start + 2)
    return builder


def grown(run: MeasuredRun, factor: float = 2.0) -> pl.DataFrame:
    return scale_batch(run.kernels, run.trace.ops, factor)


def test_what_is_no_parameter_grows():
    table = grown(prepare_run(training().load()))
    products = table.filter(family="gemm").select("m", "n", "k").rows()
    assert products == [(2 * TOKENS, WIDE, WIDTH), (2 * TOKENS, WIDTH, WIDE), (WIDTH, WIDE, 2 * TOKENS)]
    assert table["changed"].to_list() == [True, True, True, True, False, False]
    assert table["rows"][1] == 2 * TOKENS


def test_the_gradient_of_a_convolution_s_weight_gets_deeper_and_that_of_its_input_longer():
    """8 images of 64 channels, 56 by 56, to 128 channels by 3 by 3: twice as many pixels, as many weights."""
    builder = TraceBuilder().op("autograd::engine::evaluate_function: ConvolutionBackward0", 0, 30)
    dims = [[8, 128, 56, 56], [8, 64, 56, 56], [128, 64, 3, 3]]
    builder.op("aten::convolution_backward", 1, 20, dims=dims, types=[BF16] * 3)
    for number, side in enumerate(("dgrad", "wgrad")):
        builder.kernel(f"sm80_xmma_{side}_implicit_gemm_bf16", 100 + 50 * number, 40, launch=2 + 5 * number)
    pixels, weights = 8 * 56 * 56, 128 * 64 * 9
    run = prepare_run(builder.load())
    sides = pl.col("direction", "m", "n", "k")
    assert run.kernels.select(sides).rows() == [("dgrad", pixels, 576, 128), ("wgrad", 128, 576, pixels)]
    table = grown(run)
    assert table.select(sides).rows() == [("dgrad", 2 * pixels, 576, 128), ("wgrad", 128, 576, 2 * pixels)]
    assert (table["bytes"] - run.kernels["bytes"]).to_list() == [2 * pixels * (128 + 64)] * 2
    assert run.kernels["bytes"].to_list() == [2 * (pixels * (128 + 64) + weights)] * 2


def test_experts_stay_as_many_and_each_gets_more_tokens():
    experts, pairs = 8, 1024
    builder = TraceBuilder().op("autograd::engine::evaluate_function: GroupedMmBackward0", 20, 45)
    builder.op("torch::autograd::AccumulateGrad", 62, 2, dims=[[experts, WIDTH, WIDE]], types=[BF16])
    products = (
        [[pairs, WIDTH], [experts, WIDTH, WIDE]],
        [[pairs, WIDE], [experts, WIDE, WIDTH]],
        [[WIDTH, pairs], [pairs, WIDE]],
    )
    for number, dims in enumerate(products):
        start = 20.0 * number
        builder.op("aten::_grouped_mm", start, 10, dims=[*dims, [experts]], types=[BF16] * 3)
        builder.kernel("cutlass::device_kernel<GroupedProblemShape>", 200 + 50 * number, 40, launch=start + 2)
    run = prepare_run(builder.load())
    sides = pl.col("batch", "m", "n", "k")
    assert run.kernels.select(sides).rows() == [(8, 128, WIDE, WIDTH), (8, 128, WIDTH, WIDE), (8, WIDTH, WIDE, 128)]
    assert grown(run).select(sides).rows() == [(8, 256, WIDE, WIDTH), (8, 256, WIDTH, WIDE), (8, WIDTH, WIDE, 256)]


def test_a_parameter_with_a_side_that_no_gpu_holds_is_no_weight_of_a_product():
    builder = training()
    builder.op("autograd::engine::evaluate_function: FarBackward0", 50, 4)
    builder.op("torch::autograd::AccumulateGrad", 51, 2, dims=[[2**33, WIDTH]], types=[BF16])
    assert grown(prepare_run(builder.load()))["changed"].to_list() == [True, True, True, True, False, False]


def test_a_table_of_positions_is_no_weight_of_a_product():
    """Here the gradient of what the layer got is as large as that table, and its product's depth is no batch."""
    builder = training().op("aten::embedding", 12, 2, dims=[[TOKENS, WIDTH], [1, TOKENS]], types=[BF16, "long int"])
    builder.op("torch::autograd::AccumulateGrad", 92, 2, dims=[[TOKENS, WIDTH]], types=[BF16])
    products = grown(prepare_run(builder.load())).filter(family="gemm").select("m", "n", "k").rows()
    assert products == [(2 * TOKENS, WIDE, WIDTH), (2 * TOKENS, WIDTH, WIDE), (WIDTH, WIDE, 2 * TOKENS)]


@pytest.mark.parametrize(
    ("name", "dims", "factor"),
    [
        ("Memcpy HtoD (Pinned -> Device)", [[TOKENS, WIDTH]] * 2, 2),
        ("Memcpy DtoD (Device -> Device)", [[TOKENS, WIDTH]] * 2, 2),
        ("Memcpy DtoD (Device -> Device)", [[WIDTH, WIDE]] * 2, 1),
        ("Memcpy DtoH (Device -> Pageable)", [[TOKENS, WIDTH]] * 2, 1),
    ],
)
def test_copies_of_what_is_no_parameter_grow_but_for_those_to_the_host(name, dims, factor):
    builder = training().op("aten::copy_", 130, 10, dims=dims, types=[BF16] * 2)
    run = prepare_run(builder.kernel(name, 600, 5, kind="memcpy", launch=132, bytes=4096).load())
    assert grown(run).filter(kind="memcpy")["bytes"].to_list() == [4096 * factor]


def test_the_same_batch_changes_nothing():
    run = prepare_run(training().load())
    assert grown(run, 1.0).drop("changed").equals(run.kernels)


def test_time_follows_the_work_by_the_law_and_has_an_interval_on_the_gpu_of_the_trace():
    trace = training().load()
    doubled = tk.predict(trace, gpu="a100-sxm-80gb", source_gpu="a100-sxm-80gb", batch=2)["a100-sxm-80gb"].kernels
    sizes = {"family": "gemm", "dtype": "bf16", "framework": "cublas", "batch": 1, "n": WIDE, "k": WIDTH}
    law = predict(pl.DataFrame([{**sizes, "m": m} for m in (TOKENS, 2 * TOKENS)]), load_gpu("a100-sxm-80gb"))["time_us"]
    assert doubled["time_us"][0] == pytest.approx(40 * law[1] / law[0])
    assert doubled["low_us"][0] < doubled["time_us"][0] < doubled["high_us"][0]
    assert doubled["time_us"].to_list()[4:] == [40, 40]
    assert doubled["high_us"].to_list()[4:] == [40, 40]


def test_another_batch_is_no_surer_on_a_board_of_the_same_die_or_on_another_gpu():
    found = tk.predict(training().load(), gpu=["a100-sxm-80gb", "a800-sxm-80gb", "h100-sxm"], batch=2)
    own, same, other = (one.kernels.row(0, named=True) for one in found.values())
    assert same["time_us"] == pytest.approx(own["time_us"])
    assert own["high_us"] <= same["high_us"] < 1.05 * own["high_us"]
    assert other["high_us"] / other["time_us"] > own["high_us"] / own["time_us"]
    measured = tk.predict(training().load(), gpu="h100-sxm")["h100-sxm"].kernels.row(0, named=True)
    assert other["high_us"] / other["time_us"] > measured["high_us"] / measured["time_us"]


def test_a_batch_norms_channels_stay_as_many_and_others_get_more_blocks():
    """As elementwise kernels of ParticleTransformer did: 256 blocks with 2 samples, 65,536 with 512."""
    grid = {"grid": (64, 1, 1), "block": (256, 1, 1)}
    builder = TraceBuilder().op("autograd::engine::evaluate_function: MmBackward0", 40, 60)
    norms = (
        ("aten::native_batch_norm", [[8, 64, 16, 16], [64], [64]], "batch_norm_collect_statistics_kernel"),
        ("aten::native_layer_norm", [[64, 512], [], [512], [512]], "vectorized_layer_norm_kernel"),
        ("aten::gelu", [[64, 512]], VECTOR),
    )
    for number, (op, dims, kernel) in enumerate(norms):
        builder.op(op, 20.0 * number, 10, dims=dims, types=["float"] * len(dims))
        builder.kernel(kernel, 200 + 50 * number, 40, launch=20.0 * number + 2, **grid)
    run = prepare_run(builder.load())
    sums, layer, each = grown(run).select("rows", "cols", "blocks").rows()
    assert sums == (64, 2 * 8 * 256, 64)
    assert layer == each == (128, 512, 128)


def test_without_the_gpu_of_the_trace_another_batch_is_as_unsure_as_the_law():
    run = prepare_run(training().load(), source_gpu="a100-sxm-80gb")
    table = add_measured_times(run.program).with_columns(derived=pl.lit(value=True), most=pl.lit(1.0))
    doubted = KernelTimePredictor(table, None).predict(load_gpu("h100-sxm"), {})
    alone = KernelTimePredictor(table.with_columns(derived=pl.lit(value=False)), None).predict(load_gpu("h100-sxm"), {})
    assert doubted["high_us"].to_list() == pytest.approx(alone["high_us"].to_list())


def test_kernels_without_shapes_are_refused():
    builder = TraceBuilder().op("aten::mm", 0, 10).kernel(GEMM, 20, 40, launch=2)
    with pytest.raises(LayoutError, match=r"100 % of kernel time has no known work.*record_shapes"):
        tk.predict(builder.load(), gpu="h100-sxm", batch=2)


def test_a_product_of_unknown_work_keeps_its_time_and_the_tokens_that_it_was_measured_with():
    builder = training().annotation("execute_context_0(0)_generation_8(8)", 150, 20)
    run = prepare_run(builder.kernel(GEMM, 600, 2, launch=160).load())
    table = relayout_kernels(run.program, run.gpu, load_gpu("h100-sxm"), Layout(), Layout(batch=2))
    (row,) = table.filter(pl.col("tokens") > 0).to_dicts()
    assert (row["tokens"], row["measured_us"]) == (8, 2)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[MeasuredRun]:
    """A transformer's training on two batches, as the synthetic samples are made."""
    pytest.importorskip("torch")
    from sample_traces import synthesize
    from sample_traces.record import save
    from sample_traces.synthetic.models import Shape, train

    runs = []
    for batch in (3, 6):
        path = Path(tmp_path_factory.mktemp("batch"), "trace.json.gz")
        step = train(Shape(layers=1, width=64, heads=2, vocabulary=320, batch=batch, tokens=16), "cpu")
        save(synthesize.synthesize(synthesize.record_cpu_steps(step), path.name).to_dict(), path)
        runs.append(prepare_run(tk.load(path)))
    return runs


@pytest.mark.parametrize("column", ["batch", "m", "n", "k", "q_len", "kv_len", "heads", "rows"])
def test_a_model_on_twice_the_batch_has_these_sizes(recorded: list[MeasuredRun], column: str):
    small, large = recorded
    table = grown(small)
    assert table["name"].equals(large.kernels["name"])
    assert table[column].equals(large.kernels[column])


def test_and_moves_so_many_bytes(recorded: list[MeasuredRun]):
    small, large = recorded
    grew = grown(small).select(ours=pl.col("bytes"), real=large.kernels["bytes"]).drop_nulls()
    assert grew.filter(pl.col("ours") < pl.col("real")).is_empty()
    assert grew["ours"].sum() == pytest.approx(grew["real"].sum(), rel=0.02)


def test_updates_of_embedding_tables_grow_as_their_look_ups():
    dims = [[64, 48], [32_000], [0], [0], [3], [3], [3], [], [3], [], [384], [193]]
    types = ["float", "float", "float", "float", "int", "long int", "int", "", "long int", "", "long int", "long int"]
    builder = TraceBuilder().op(
        "fbgemm::split_embedding_backward_codegen_rowwise_adagrad_unweighted_exact_cuda", 0, 50, dims=dims, types=types
    )
    kernel = "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1"
    run = prepare_run(builder.kernel(kernel, 60, 30, launch=10).load())
    assert run.kernels["family"].to_list() == ["optimizer"]
    assert grown(run)["bytes"][0] == 2 * run.kernels["bytes"][0]
