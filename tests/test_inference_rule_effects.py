"""What each inference rule changes, on small traces: with the rule and without it. Times in microseconds."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import tracekit as tk
from tests.graph.test_replays import replays
from tests.graph.test_stalls import stalled
from tests.graphs import edges, play
from tests.ingest.test_correlations import OPS, Events, build
from tests.jobs import gradient_step, job
from tests.workload.test_projections import TENSILE, WHOLE, layer
from tests.workload.test_repeats import grid, product
from tracekit.graph.edges import EdgeKind
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder

AUTOGRAD = 1
HALF = ["c10::Half"] * 3
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "at::detail::Array<char*, 3> >(int)"
)
ADAM = "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>"
SOFTMAX = (
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>"
    "(float*, float const*, int, int)"
)


def measure(builder: TraceBuilder, rule: str) -> tuple[MeasuredRun, MeasuredRun]:
    """Measure a trace with all rules, and without one."""
    trace = builder.load()
    return prepare_run(trace), prepare_run(trace, without_rules=[rule])


def list_starts(run: MeasuredRun, *durations: float) -> list[float]:
    """List when the activities start in a replay, with other durations where given."""
    starts: list[float] = (play(run.graph, *durations).activity_start_ns / 1000).tolist()
    return starts


def end_of_cpu(run: MeasuredRun, *durations: float) -> float:
    timeline = play(run.graph, *durations)
    return float(timeline.end_ns[: timeline.host_node_count].max()) / 1000


def test_without_launch_order_kernels_of_a_shared_id_belong_to_no_op() -> None:
    """The third of six kernels has the id of the second."""

    def share(launches: Events, kernels: Events) -> None:
        kernels[2]["args"]["correlation"] = kernels[1]["args"]["correlation"]

    trace = build(share)
    runs = prepare_run(trace), prepare_run(trace, without_rules=["launch-order"])
    assert [run.kernels["op"].to_list() for run in runs] == [OPS, [OPS[0], None, None, *OPS[3:]]]
    assert [run.trace.warnings[0].code for run in runs] == ["ids-by-order", "ids-ambiguous"]


def test_without_event_waits_a_stream_does_not_wait_for_another() -> None:
    """The last kernel was launched at 20 and starts at 72, 2 after the first stream's ended; others start 10 later."""
    builder = TraceBuilder().kernel("early", 10, 2, launch=0, stream=9).kernel("gemm", 20, 50, launch=10)
    builder.kernel("late", 72, 100, launch=20, stream=9)
    starts = [list_starts(run, 2, 20, 100)[2] for run in measure(builder, "event-waits")]
    assert starts == [42, 30]


@pytest.mark.parametrize(("ended_ns", "waits"), [(500, True), (501, False), (-12_000, True), (-12_001, False)])
def test_an_activity_is_awaited_if_it_ended_shortly_before_or_just_after_its_waiter_began(ended_ns, waits) -> None:
    """The waiter begins at 72; clocks jitter by half a microsecond, and waking takes up to 12."""
    busy = 72 + ended_ns / 1000 - 20
    builder = TraceBuilder().kernel("early", 10, 2, launch=0, stream=9).kernel("gemm", 20, busy, launch=10)
    builder.kernel("late", 72, 100, launch=20, stream=9)
    with_rule, without = (list_starts(run, 2, 20, 100)[2] for run in measure(builder, "event-waits"))
    assert (with_rule > without) is waits


def two_gpus(told: bool, copy: str = "Memcpy PtoP (Device -> Device)", lag: float = 2) -> TraceBuilder:
    """A kernel of 500 on GPU 0, something of 100 behind it, and a kernel of 500 on GPU 1 that starts ``lag`` later."""
    kind = "gpu_memcpy" if copy.startswith("Memcpy") else "kernel"
    builder = TraceBuilder().kernel("gemm", 10, 500, launch=0).kernel(copy, 511, 100, launch=10, kind=kind)
    builder.call("cudaStreamWaitEvent", 15 if told else 40, 2)
    return builder.kernel("gemm", 611 + lag, 500, launch=20, device=1)


@pytest.mark.parametrize(
    ("told", "copy"), [(True, "Memcpy PtoP (Device -> Device)"), (False, "Memcpy PtoP"), (True, "add")]
)
@pytest.mark.parametrize("lag", [2, 50])
def test_without_device_waits_a_gpu_does_not_wait_for_another(told, copy, lag) -> None:
    """It then starts as measured. A delay of 581 may be for what ended 50 before, as between the streams of one GPU."""
    starts = [list_starts(run, 100, 100, 500)[2] for run in measure(two_gpus(told, copy, lag), "device-waits")]
    assert starts[0] == pytest.approx(211 + lag, abs=1)
    assert starts[1] == 611 + lag


def test_a_gpu_that_was_not_told_to_wait_for_a_kernel_of_another_does_not() -> None:
    """GPUs that work side by side end kernels at about the same time."""
    starts = [list_starts(run, 100, 100, 500)[2] for run in measure(two_gpus(False, "add"), "device-waits")]
    assert starts[0] == starts[1]


def test_without_unrecorded_work_the_cpu_works_as_long_as_its_wait_went_on() -> None:
    """A kernel from 10 to 510; the call returns at 1510, and an op takes 10."""
    builder = TraceBuilder().kernel("gemm", 10, 500, launch=0).call("cudaStreamSynchronize", 30, 1480)
    ends = [end_of_cpu(run, 100) for run in measure(builder.op("aten::item", 1510, 10), "unrecorded-work")]
    assert ends == [1520 - 400, 1520]


def test_without_long_delays_a_stream_waits_only_for_what_had_just_ended() -> None:
    """The last kernel was launched at 20 and starts at 1000, 50 after the only other work ended."""
    builder = TraceBuilder().kernel("early", 10, 2, launch=0, stream=9).kernel("gemm", 20, 930, launch=10)
    builder.kernel("late", 1000, 100, launch=20, stream=9)
    starts = [list_starts(run, 2, 430, 100)[2] for run in measure(builder, "long-delays")]
    assert starts == [500, 30]


def test_without_carried_in_work_from_before_the_trace_holds_nothing() -> None:
    """The first activity of stream 9 was launched at 20 and starts at 500, when nothing had just ended."""
    builder = TraceBuilder().kernel("gemm", 10, 1000, launch=0).kernel("first", 500, 100, launch=20, stream=9)
    starts = [list_starts(run, 500, 50)[1] for run in measure(builder, "carried-in")]
    assert starts == [500, 30]


def test_nothing_is_carried_in_where_the_call_still_staged_the_first_activity() -> None:
    """The same, but launched at 420 by a call that lasts until 620: it copied something first."""
    builder = TraceBuilder().kernel("gemm", 10, 1000, launch=0)
    builder.kernel("first", 500, 100, launch=420, launch_dur=200, stream=9)
    starts = [list_starts(run, 500, 50)[1] for run in measure(builder, "carried-in")]
    assert starts[0] == starts[1] < 500


def test_without_gpu_stalls_a_stall_is_gone() -> None:
    """The last kernel's launch returned at 35, nothing else ran after 16, and it starts at 2514."""
    runs = measure(stalled(), "gpu-stalls")
    assert [run.graph.waits.stalled_ns.sum() for run in runs] == [(2514 - 35) * 1000, 0]
    assert [list_starts(run)[2] for run in runs] == [2514, 34]


def test_without_cuda_graph_gaps_the_pauses_of_graphs_are_gone() -> None:
    """Four replays of two kernels with 100, 102, 98 and 101 between them; usual are 1 where no gap shows it."""
    for run, pause in zip(measure(replays(100, 102, 98, 101), "cuda-graph-gaps"), (100.5, 1), strict=True):
        starts = list_starts(run)
        assert [second - first - 10 for first, second in zip(starts[2::2], starts[3::2], strict=True)] == [pause] * 3


def test_without_copy_gaps_all_gaps_are_as_between_kernels() -> None:
    """Six times a memset 3 after the kernel before it, a kernel 3 after the memset, and a kernel 1 after that."""
    builder, at, count = TraceBuilder(), 100.0, 0
    for _ in range(6):
        for name, gap, kind in (("Memset (Device)", 3, "gpu_memset"), ("quant", 3, "kernel"), ("gemm", 1, "kernel")):
            builder.kernel(name, at + gap, 20, launch=5 * count, launch_dur=2, kind=kind)
            at, count = at + gap + 20, count + 1
    starts = [list_starts(run) for run in measure(builder, "copy-gaps")]
    assert [round(each[-1] - each[0]) for each in starts] == [17 * 20 + 5 * 3 + 6 * 3 + 6 * 1, 17 * 20 + 17 * 3]


def test_without_launch_queue_a_full_queue_is_work_of_the_host() -> None:
    """Launches every 5, kernels of 20, 1 apart; from the 1023rd on, a launch waits for the kernel 1022 before it."""
    builder, now, ends = TraceBuilder(), 0.0, [7.0]
    for i in range(1200):
        start = max(now + 8, ends[-1] + 1)
        ends.append(start + 20)
        done = now + 4 if i < 1022 else max(now + 4, ends[i - 1021] + 6)
        builder.kernel("add", start, 20, launch=now, launch_dur=done - now)
        now = done + 1
    waits = [edges(run.graph, EdgeKind.QUEUE) for run in measure(builder, "launch-queue")]
    assert waits == [1200 - 1022, 0]


def test_without_sync_targets_a_stream_synchronisation_takes_its_time() -> None:
    """A kernel from 10 to 1010; the call returns at 1012, 982 after it began, and an op takes 10."""
    builder = TraceBuilder().kernel("gemm", 10, 1000, launch=0).call("cudaStreamSynchronize", 30, 982)
    builder.op("aten::item", 1012, 10)
    ends = [end_of_cpu(run, 500) for run in measure(builder, "sync-targets")]
    assert ends == [522, 1022]


def test_without_staged_copies_the_call_takes_its_time() -> None:
    """The call of a copy from 250 to 4250 takes from 10 to 4170."""
    builder = TraceBuilder().op("aten::to", 0, 5)
    copy = "Memcpy HtoD (Pageable -> Device)"
    builder.kernel(copy, 250, 4000, launch=10, launch_dur=4160, kind="gpu_memcpy", call="cudaMemcpyAsync")
    ends = [end_of_cpu(run, 1500) for run in measure(builder.op("aten::item", 4170, 10), "staged-copies")]
    assert ends == [4180 - 2500, 4180]


def test_without_launch_submission_a_graph_starts_as_its_call_begins() -> None:
    """A graph's call takes from 100 to 1600, and its kernel starts 2 after that; others start 10 after their launch."""
    builder = TraceBuilder().kernel("eager", 10, 10, launch=0).kernel("eager", 40, 10, launch=30)
    builder.kernel("first", 1602, 10, launch=100, launch_dur=1500, call="cudaGraphLaunch")
    starts = [list_starts(run)[2] for run in measure(builder, "launch-submission")]
    assert starts == [1600, 110]


def test_without_launch_ahead_a_thread_keeps_its_pauses() -> None:
    """Eight steps of 10,000; the third to last are launched about 800 after the one before last ended."""
    builder, free = TraceBuilder(), 0.0
    resumed = [0, 3000, *(10_040 + i * 10_001 + late for i, late in enumerate((800, 850, 750, 900, 800, 700)))]
    for at in resumed:
        builder.op("vllm::prepare", at, 20).kernel("step", max(free + 1, at + 40), 10_000, launch=at + 30)
        free = max(free + 1, at + 40) + 10_000
    lasts = [list_starts(run, *[5_000] * 8)[-1] for run in measure(builder, "launch-ahead")]
    assert lasts == [pytest.approx(40 + 7 * 5_001, abs=20), resumed[-1] + 40]


def test_without_thread_handovers_the_main_thread_keeps_its_pause() -> None:
    """Autograd works from 120 to 600, of which it waits 395 for a kernel; the main thread rests from 100 to 620."""
    builder = TraceBuilder().op("aten::forward", 0, 100).kernel("gemm", 20, 50, launch=10)
    builder.op("autograd::mm", 120, 480, thread=AUTOGRAD).kernel("gemm", 140, 400, launch=130, thread=AUTOGRAD)
    builder.call("cudaDeviceSynchronize", 150, 395, thread=AUTOGRAD)
    builder.op("aten::optimizer", 620, 80).kernel("adam", 640, 20, launch=630)
    starts = [list_starts(run, 50, 100, 20) for run in measure(builder, "thread-handovers")]
    assert starts == [[20, 140, 340], [20, 140, 640]]


def test_without_collective_waits_an_all_reduce_is_all_transfer() -> None:
    """One rank of eight; all-reduces of one size take 40, 30 and 90."""
    builder = TraceBuilder().op("aten::mm", 0, 10).kernel("gemm", 8, 50, launch=1)
    noted = {"Collective name": "allreduce", "dtype": "Float", "Group size": 8, "Process Group Name": "0"}
    for at, dur in ((100, 40), (200, 30), (300, 90)):
        builder.kernel("ncclDevKernel_AllReduce", at, dur, launch=at - 9, stream=9, **noted, **{"In msg nelems": 1000})
    runs = measure(builder, "collective-waits")
    works = [(run.kernels.filter(family="collective")["dur_ns"] / 1e3).to_list() for run in runs]
    assert works == [[30] * 3, [40, 30, 90]]


def test_without_rank_clocks_the_clocks_are_taken_as_recorded() -> None:
    """Both ranks' all-reduces end at 412, by clocks of which the second is 1000 ahead."""
    trace = job(gradient_step(150, 412), gradient_step(350, 412, clock=1000))
    offsets = [
        prepare_run(trace, without_rules=without).collectives.clock_offset_ns for without in ((), ("rank-clocks",))
    ]
    assert offsets == [{0: 0, 1: 1_000_000}, {}]


def launch(name: str, blocks: int, threads: int = 128) -> TraceBuilder:
    """A kernel without shapes."""
    return TraceBuilder().kernel(name, 20, 10, launch=1, grid=[blocks, 1, 1], block=[threads, 1, 1])


def fast_product() -> TraceBuilder:
    """2 GFLOP in 50, which would take an A100's fp32 units, of 19.5 TFLOP/s, 103."""
    builder = TraceBuilder().op("aten::mm", 0, 20, dims=[[1000, 1000], [1000, 1000]], types=["float", "float"])
    return builder.kernel("my_gemm_kernel", 10, 50, launch=5)


def repeated() -> TraceBuilder:
    """A product of 64 rows, and the same kernel without an op."""
    return product(TraceBuilder(), 0, 64).kernel("ampere_sgemm_128x64_nn", 500, 31, launch=400, **grid(64))


def beside_attention() -> TraceBuilder:
    """Products before and after attention of 512 tokens, of 16 + 2 * 4 heads of 64, in a model of 2048."""
    builder = layer(TraceBuilder(), 0, WHOLE)
    return builder.op("aten::index", 900, 5, dims=[[512, 2048], []], types=["c10::BFloat16", ""])


def backward() -> TraceBuilder:
    """Both gradients of a convolution, by kernels whose names don't say which."""
    dims = [[4, 128, 28, 28], [4, 64, 28, 28], [128, 64, 3, 3]]
    builder = TraceBuilder().op(
        "aten::convolution_backward", 0, 50, dims=dims, types=HALF, concrete=[*[""] * 10, "[True, True, False]"]
    )
    for at in (10, 20):
        builder.kernel("miopenSp3AsmConv_v30_3_1_gfx9_fp16_dot2_edc_f3x2_stride1", 60 + at, 5, launch=at)
    return builder


def decode() -> TraceBuilder:
    """A product of a CUDA graph, in a batch of 12 tokens."""
    builder = TraceBuilder().annotation("execute_context_0(0)_generation_12(12)", 5, 20)
    name = "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT"
    return builder.kernel(name, 20, 100, launch=10, call="cudaGraphLaunch", grid=[264, 1, 1])


def experts() -> TraceBuilder:
    """8 experts of 1024, 100 tokens of 2 experts each: 20 tiles of rows, 4 and 8 of columns."""
    tile = "Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_schedP2x1x2x3_biasM_bN"
    builder = TraceBuilder().op(
        "vllm::moe_forward", 0, 100, dims=[[100, 1024], [100, 8], []], types=["c10::BFloat16"] * 2 + [""]
    )
    names = (
        "void tensorrt_llm::kernels::quantize_with_block_size<(tensorrt_llm::BlockScaleQuantizationType)2, "
        "__nv_bfloat16, 32, true>(int)",
        f"bmm_MxE4m3_MxE2m1MxE4m3_{tile}_tma_tmaOpt_clmp_swiGlu_dynBatch_sm100f",
        f"bmm_Bfloat16_MxE2m1MxE4m3_{tile}_tmaOpt_clmp_dynBatch_sm100f",
        "void moe::dev::finalize::finalizeKernelVecLoad<Params>(Params)",
    )
    for i, (name, blocks) in enumerate(zip(names, (7, 4 * 20, 8 * 20, 7), strict=True)):
        builder.kernel(name, 200 + 50 * i, 40, launch=10 + i, grid=[blocks, 1, 1], block=[128, 1, 1])
    return builder


@pytest.mark.parametrize(
    ("rule", "build", "name", "columns", "found", "otherwise"),
    [
        ("tf32", fast_product, "my_gemm_kernel", ["dtype"], [("tf32",)], [("fp32",)]),
        # 100 blocks of 128 threads of 4 elements: two tensors of fp32 in, one out.
        ("pointwise-launch", lambda: launch(ADD, 100), ADD, ["bytes"], [(3 * 4 * 51_200,)], [(None,)]),
        # 4 warps to a block, a row each.
        ("softmax-launch", lambda: launch(SOFTMAX, 8), SOFTMAX, ["rows", "cols"], [(32, 1024)], [(None, None)]),
        # 320 chunks of 65,536 fp32; Adam reads four tensors and writes three.
        ("multi-tensor-launch", lambda: launch(ADAM, 320, 512), ADAM, ["bytes"], [(7 * 320 * 65_536 * 4,)], [(None,)]),
        ("repeated-kernels", repeated, "ampere_sgemm_128x64_nn", ["m"], [(64,), (64,)], [(64,), (None,)]),
        (
            "attention-projections", beside_attention, TENSILE, ["m", "n", "k"],
            [(512, 1536, 2048), (512, 2048, 1024)], [(None,) * 3] * 2,
        ),
        (
            "weight-gradients", backward, None, ["direction", "m", "k"],
            [("dgrad", 3136, 128), ("wgrad", 128, 3136)], [("dgrad", 3136, 128)] * 2,
        ),
        ("token-counts", decode, None, ["tokens"], [(12,)], [(None,)]),
        (
            "grouped-gemm-launch", experts, None, ["m", "n", "k"],
            [(None,) * 3, (25, 512, 1024), (25, 1024, 256), (None,) * 3], [(None,) * 3] * 4,
        ),
    ],
)  # fmt: skip
def test_without_a_rule_kernels_have_other_work(
    rule: str,
    build: Callable[[], TraceBuilder],
    name: str | None,
    columns: list[str],
    found: list[tuple[object, ...]],
    otherwise: list[tuple[object, ...]],
) -> None:
    these = pl.lit(True) if name is None else pl.col("name") == name
    tables = [run.kernels.sort("ts_ns").filter(these).select(columns).rows() for run in measure(build(), rule)]
    assert tables == [found, otherwise]


def test_without_model_layers_a_graph_tells_no_sizes(tmp_path: Path) -> None:
    """A model of one layer of 256, with 4 heads of 64 and an MLP of 512; 3 tokens."""
    config = {"hidden_size": 256, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 512}
    (tmp_path / "config.json").write_text(json.dumps(config))
    builder = TraceBuilder().annotation("execute_context_0(0)_generation_3(3)", 0, 50).call("cudaGraphLaunch", 10, 5)
    graph = builder.events[-1]["args"]["correlation"]
    for i, name in enumerate((TENSILE, "flash_fwd_splitkv_kernel", *[TENSILE] * 3)):
        builder.kernel(name, 100 + 12 * i, 10, correlation=graph)
    builder.save(tmp_path / "trace.json")
    trace = tk.load([tmp_path / "trace.json", tmp_path / "config.json"])
    runs = [prepare_run(trace, without_rules=names) for names in ((), ("model-layers",))]
    gemms = [run.kernels.filter(pl.col("name") == TENSILE).select("m", "n", "k").rows() for run in runs]
    assert gemms == [[(3, 768, 256), (3, 256, 256), (3, 1024, 256), (3, 256, 512)], [(None,) * 3] * 4]
