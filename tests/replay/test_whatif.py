"""What-if edits of small traces whose savings can be worked out by hand; times in microseconds."""

import numpy as np
import pytest

from tests.codes import has_code
from tests.graph.test_replays import replays
from tests.replay.test_critical import gpu_bound, run_of
from tests.replay.test_idle import after_a_sync
from tracekit.errors import WhatIfError
from tracekit.messages.what_ifs import KERNELS_FUSED, LAUNCHES_GRAPHED
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.whatif import (
    EditedProgram,
    KernelSelection,
    compile_host_work,
    compute_saving_us,
    cuda_graph,
    fuse,
    host_speed,
    infinite_queue,
    no_sync,
    overlap,
    pin_memory,
    prefetch,
    remove,
    scale,
    serialize,
)

ANY = KernelSelection({})
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def launch_bound() -> TraceBuilder:
    """An op that launches nothing, 5 long; from 10 on three launches 100 apart, kernels of 10 that start 8 later."""
    builder = TraceBuilder().op("aten::empty", 0, 5)
    for start in (10, 110, 210):
        builder.op("aten::add", start, 20).kernel("add", start + 8, 10, launch=start)
    return builder


def saved(run: MeasuredRun, edited: EditedProgram) -> float:
    return compute_saving_us(run.program, edited.program)


def test_scale():
    run = run_of(gpu_bound())
    edited = scale(run.program, ANY, 0.5)
    # 8 kernels of 100 by half; gaps and launch latency stay.
    assert saved(run, edited) == pytest.approx(400)
    assert edited.touched == 8


def mixed() -> TraceBuilder:
    """Four kernels of 100 without gaps, launched at once."""
    return (
        TraceBuilder()
        .annotation("model", 0, 15)
        .op("aten::mm", 0, 8, dims=[[64, 32], [32, 16]], types=["float", "float"])
        .kernel("ampere_sgemm", 8, 100, launch=0, launch_dur=2)
        .op("aten::add", 10, 4)
        .kernel("elementwise_add", 108, 100, launch=10, launch_dur=2)
        .op("aten::add_", 16, 4)
        .kernel("elementwise_add", 208, 100, launch=16, launch_dur=2)
        .kernel("memset", 208, 40, launch=19, launch_dur=1, stream=9, kind="gpu_memset")
    )


@pytest.mark.parametrize(
    ("patterns", "touched"),
    [
        ({"family": "gemm"}, 1),
        ({"family": "gemm|memset"}, 2),
        ({"op": "aten::add"}, 1),
        ({"op": "aten::add.*"}, 3),  # the memset, too, is launched within aten::add_
        ({"name": "elementwise"}, 2),
        ({"stream": "9"}, 1),
        ({"within": "^model$"}, 2),
        ({"name": "elementwise", "within": "model"}, 1),
        ({"kind": "kernel"}, 3),
        ({}, 4),
    ],
)
def test_kernels_are_selected_by_any_column(patterns, touched):
    assert scale(run_of(mixed()).program, KernelSelection(patterns), 2).touched == touched


@pytest.mark.parametrize(
    ("patterns", "code"),
    [
        ({"family": "gem"}, "selection-value-unknown"),
        ({"name": "missing"}, "selection-empty"),
        ({"family": "gemm", "stream": "9"}, "selection-empty"),
        ({"colour": "red"}, "selection-key-unknown"),
        ({"name": "("}, "pattern-invalid"),
    ],
)
def test_a_selection_that_finds_nothing_says_what_there_is(patterns, code):
    with pytest.raises(WhatIfError, check=has_code(code)):
        scale(run_of(mixed()).program, KernelSelection(patterns), 2)


def test_remove_takes_out_the_kernel_its_launch_and_its_op():
    """The middle op of three, 20 long with its launch of 5."""
    builder = TraceBuilder()
    for start, name in ((0, "aten::add"), (100, "aten::mul"), (200, "aten::add")):
        builder.op(name, start, 20).kernel(name, start + 8, 10, launch=start)
    run = run_of(builder)
    edited = remove(run.program, KernelSelection({"op": "aten::mul"}))
    assert saved(run, edited) == pytest.approx(20)
    assert edited.program.kernels["step"].to_list() == [0, None, 0]
    with pytest.raises(WhatIfError, check=has_code("run-empty")):
        remove(run.program, ANY)


def test_remove_from_a_full_stream():
    builder = gpu_bound()
    builder.events[8]["name"] = "other"
    run = run_of(builder)
    # The kernel's 100 and one of the two gaps of 2 beside it.
    assert saved(run, remove(run.program, KernelSelection({"name": "^other$"}))) == pytest.approx(102)


def test_fuse_saves_what_is_passed_on():
    """Four additions of 3 passes over memory each; fused, the first and last keep 2 of them and the others 1."""
    builder, numbers = TraceBuilder().op("aten::empty", 0, 5), [[1 << 20], [1 << 20]]
    for i in range(4):
        builder.op("aten::add", 10 + 6 * i, 5, dims=numbers, types=["float", "float"])
        builder.kernel("vectorized_elementwise_kernel", 20 + 91 * i, 90, launch=10 + 6 * i)
    run = run_of(builder)
    edited = fuse(run.program, KernelSelection({"family": "elementwise"}))
    # 4 x 90 become 60 + 30 + 30 + 60, without the three gaps of 1.
    assert saved(run, edited) == pytest.approx(180 + 3)
    assert edited.description == KERNELS_FUSED(kernels=4, fused=1)


def test_only_selected_neighbours_are_fused():
    """Of four additions the first and the third are selected: none follows another."""
    builder, numbers = TraceBuilder().op("aten::empty", 0, 5), [[1 << 20], [1 << 20]]
    for i, op in enumerate(("aten::add", "aten::mul", "aten::add", "aten::mul")):
        builder.op(op, 10 + 6 * i, 5, dims=numbers, types=["float", "float"])
        builder.kernel("vectorized_elementwise_kernel", 20 + 91 * i, 90, launch=10 + 6 * i)
    with pytest.raises(WhatIfError, check=has_code("kernels-not-adjacent")):
        fuse(run_of(builder).program, KernelSelection({"op": "aten::add"}))


def test_kernels_are_not_fused_across_a_wait_of_the_cpu():
    with pytest.raises(WhatIfError, check=has_code("kernels-not-adjacent")):
        fuse(run_of(after_a_sync(50)).program, ANY)


def test_cuda_graph():
    """One call at 10; from 13 later on kernels of 10 that are 0.7 apart."""
    run = run_of(launch_bound())
    edited = cuda_graph(run.program, ANY)
    assert saved(run, edited) == pytest.approx(230 - (23 + 3 * 10 + 2 * 0.7))
    assert edited.description == LAUNCHES_GRAPHED(launches=3, graphs=1)


@pytest.mark.parametrize(
    ("call", "dur", "ends"),
    [
        ("hipLaunchKernel", 10, 10 + 26 + 3 * 10 + 2 * 0.7),  # the first kernel starts 26 after the call
        # The call takes 1.1 longer for each kernel, with CUDA 1.05, and 15 of its op are left.
        ("hipLaunchKernel", 0.1, 10 + 26 + 3 * 1.1 + 15),
        ("cudaLaunchKernel", 0.1, 10 + 13 + 3 * 1.05 + 15),
    ],
)
def test_the_launch_of_a_graph_takes_longer_for_each_kernel(call, dur, ends):
    builder = TraceBuilder().op("aten::empty", 0, 5)
    for start in (10, 110, 210):
        builder.op("aten::add", start, 20).kernel("add", start + 8, dur, launch=start, call=call)
    run = run_of(builder)
    assert saved(run, cuda_graph(run.program, ANY)) == pytest.approx(230 - ends)


def test_gaps_of_graphs_that_are_there_already_stay():
    """Four replays of two kernels with 100 between them."""
    run = prepare_run(replays(100, 100, 100, 100).load(), without_rules=["graph-launch-steps"])
    timeline = cuda_graph(run.program, ANY).program.replay_timeline((run.kernels["dur_ns"] / 1e3).to_numpy())
    assert (timeline.activity_start_ns[1::2] - timeline.activity_end_ns[0::2]).tolist() == [100_000] * 4


def test_a_cuda_graph_ends_where_the_cpu_waits():
    builder = launch_bound().call("cudaDeviceSynchronize", 235, 5)
    for start in (300, 400, 500):
        builder.op("aten::mul", start, 20).kernel("mul", start + 8, 10, launch=start)
    run = run_of(builder)
    assert cuda_graph(run.program, ANY).description == LAUNCHES_GRAPHED(launches=6, graphs=2)
    assert cuda_graph(no_sync(run.program).program, ANY).description == LAUNCHES_GRAPHED(launches=6, graphs=1)
    assert cuda_graph(run.program, KernelSelection({"op": "aten::mul"})).description == LAUNCHES_GRAPHED(
        launches=3, graphs=1
    )
    with pytest.raises(WhatIfError, check=has_code("launches-not-adjacent")):
        cuda_graph(run_of(after_a_sync(50)).program, ANY)


def test_no_sync():
    """The second kernel is launched 80 after the start, when the first still runs until 110."""
    run = run_of(after_a_sync(50))
    edited = no_sync(run.program)
    assert saved(run, edited) == pytest.approx(204 - (111 + 30))
    assert edited.touched == 1
    assert saved(run, no_sync(run.program, "DeviceSync")) == saved(run, edited)
    with pytest.raises(WhatIfError, check=has_code("syncs-not-found-within")):
        no_sync(run.program, "aten::item")


def test_a_wait_is_named_by_the_op_around_it():
    builder = (
        TraceBuilder()
        .kernel("gemm", 10, 200, launch=0)
        .op("aten::item", 20, 200)
        .kernel("Memcpy DtoH (Device -> Pageable)", 211, 2, launch=22, launch_dur=5, kind="gpu_memcpy",
                call="cudaMemcpyAsync")
        .call("cudaStreamSynchronize", 30, 188)
        .kernel("add", 260, 10, launch=250)
    )  # fmt: skip
    assert no_sync(run_of(builder).program, "^aten::item$").touched >= 1


def test_pin_memory():
    builder = (
        TraceBuilder()
        .kernel("gemm", 10, 300, launch=0)
        .kernel("Memcpy DtoH (Device -> Pageable)", 311, 5, launch=20, launch_dur=302, kind="gpu_memcpy",
                call="cudaMemcpyAsync")
        .kernel("next", 339, 10, launch=329)
    )  # fmt: skip
    run = run_of(builder)
    # The call takes 10 instead of 302, so that the last kernel is queued: it ends at 316 + 1 + 10 and not at 349.
    assert saved(run, pin_memory(run.program, ANY)) == pytest.approx(349 - 327)
    with pytest.raises(WhatIfError, check=has_code("copies-dont-block")):
        pin_memory(run_of(launch_bound()).program, ANY)


def test_pin_memory_of_what_is_copied_to_the_gpu():
    """The call takes 10 instead of 480, so that the kernel follows the copy, which ends at 520, and not its launch."""
    builder = (
        TraceBuilder()
        .op("aten::to", 0, 5)
        .kernel("Memcpy HtoD (Pageable -> Device)", 20, 500, launch=10, launch_dur=480, kind="gpu_memcpy",
                call="cudaMemcpyAsync")
        .kernel("next", 550, 10, launch=540)
    )  # fmt: skip
    run = run_of(builder)
    assert saved(run, pin_memory(run.program, ANY)) == pytest.approx(560 - 531)


def test_prefetch():
    builder = (
        TraceBuilder()
        .op("aten::add", 0, 20)
        .kernel("add", 8, 10, launch=0)
        .annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 50, 100)
        .op("aten::add", 160, 20)
        .kernel("add", 168, 10, launch=160)
    )
    run = run_of(builder)
    assert saved(run, prefetch(run.program)) == pytest.approx(100)
    with pytest.raises(WhatIfError, check=has_code("data-loader-not-found")):
        prefetch(run_of(launch_bound()).program)


def test_infinite_queue():
    """1200 launches of 4, 1 apart, then 50 ms of work: with the queue it begins when kernel 177 has ended."""
    builder, now, ends = TraceBuilder(), 0.0, []
    for i in range(1200):
        start = max(now + 8, ends[-1] + 1 if ends else 0)
        ends.append(start + 20)
        done = now + 4 if i < 1022 else max(now + 4, ends[i - 1022] + 6)
        builder.kernel("add", start, 20, launch=now, launch_dur=done - now)
        now = done + 1
    run = run_of(builder.op("aten::last", now, 50_000))
    assert saved(run, infinite_queue(run.program)) == pytest.approx(now - 1200 * 5, abs=30)
    with pytest.raises(WhatIfError, check=has_code("queue-never-full")):
        infinite_queue(run_of(launch_bound()).program)


def reduced() -> TraceBuilder:
    """A product, an all-reduce of its result on another stream, and a product that waits for that."""
    return (
        TraceBuilder()
        .kernel("ampere_sgemm", 10, 500, launch=0)
        .kernel(NCCL, 512, 500, launch=20, stream=9)
        .kernel("ampere_sgemm", 1014, 500, launch=30)
    )


def test_overlap():
    run = run_of(reduced())
    # The second product follows the first by 1 and ends at 1011; the all-reduce ends the step, at 1012.
    assert saved(run, overlap(run.program, ANY)) == pytest.approx(1514 - 1012)
    with pytest.raises(WhatIfError, check=has_code("collectives-not-found")):
        overlap(run_of(gpu_bound()).program, ANY)


def test_overlap_on_one_stream():
    builder = TraceBuilder()
    for i, name in enumerate(("ampere_sgemm", NCCL, "ampere_sgemm")):
        builder.kernel(name, 10 + 101 * i, 100, launch=6 * i)
    run = run_of(builder)
    # The all-reduce keeps to what it sends and runs beside the second product, which still follows the first.
    assert saved(run, overlap(run.program, ANY)) == pytest.approx(101)


def test_serialize():
    builder = (
        TraceBuilder()
        .kernel("ampere_sgemm", 10, 500, launch=0)
        .kernel(NCCL, 30, 500, launch=20, stream=9)
        .kernel("ampere_sgemm", 511, 500, launch=30)
    )
    run = run_of(builder)
    # Twice 2 from the end of one to the start of the other, instead of a gap of 1; 500 of the all-reduce.
    assert saved(run, serialize(run.program, ANY)) == pytest.approx(-503)
    with pytest.raises(WhatIfError, check=has_code("collectives-alone")):
        serialize(run_of(TraceBuilder().kernel(NCCL, 10, 100, launch=0)).program, ANY)


@pytest.mark.parametrize(
    ("speeds", "step"),
    [
        ({"python": 2.0, "op": 2.0, "launch": 2.0}, 123),  # last launch at 105, its kernel ends 18 later
        ({"python": 2.0}, 147.5),  # 5 and twice 80 between ops
        ({"op": 2.0}, 210.5),  # the last launch comes 2.5 + 2 x 7.5 earlier
        ({"launch": 2.0}, 223),  # the last launch comes 2 x 2.5 earlier
    ],
)
def test_host_speed(speeds, step):
    run = run_of(launch_bound())
    assert saved(run, host_speed(run.program, **speeds)) == pytest.approx(230 - step)


def test_compiled():
    """10 before the first launch and 95 before the others fall to a tenth; then 5 of the call and 15 of its op."""
    run = run_of(launch_bound())
    assert saved(run, compile_host_work(run.program, ANY, 0.1)) == pytest.approx(230 - (1 + 5 + 9.5 + 5 + 9.5 + 5 + 15))


def test_edits_leave_the_run_alone():
    run = run_of(after_a_sync(50))
    before = run.graph.lag_ns.copy(), run.kernels.clone()
    edited = scale(remove(no_sync(run.program).program, KernelSelection({"name": "add"})).program, ANY, 0.5)
    assert (run.graph.lag_ns == before[0]).all()
    assert run.kernels.equals(before[1])
    assert edited.program.step_scale is run.program.step_scale
    assert np.isfinite(saved(run, edited))


@pytest.mark.parametrize("factor", [-1, float("inf"), float("nan")])
def test_factors_that_mean_nothing(factor):
    run = run_of(launch_bound())
    with pytest.raises(WhatIfError):
        scale(run.program, ANY, factor)
    with pytest.raises(WhatIfError):
        compile_host_work(run.program, ANY, factor)
    with pytest.raises(WhatIfError):
        host_speed(run.program, python=-abs(factor))
    with pytest.raises(WhatIfError):
        host_speed(run.program, launch=-abs(factor))
