"""Whether a job fits, and what it costs."""

import pytest

import tracekit as tk
from predictors import load_gpu
from tests.codes import list_codes
from tests.jobs import recorded
from tracekit.errors import RequestError
from tracekit.parallelism.layout import Layout
from tracekit.prediction import notes
from tracekit.prediction.memory import judge_memory_fit
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder

GRADIENT = "torch::autograd::AccumulateGrad"


def training(
    parameters: int, batch: int = 8, *, passes: int = 1, device: dict[str, object] | None = A100
) -> TraceBuilder:
    """One step: a product, then the gradients of two parameters; Adam."""
    builder = TraceBuilder(device)
    builder.op("aten::mm", 0, 20, dims=[[batch, 1024], [1024, 1024]], types=["float"] * 2)
    builder.kernel("ampere_sgemm_128x64_nn", 15, 100, launch=5)
    now = 30.0
    for _ in range(passes):
        for shape in ([parameters - 1024], [1024]):
            builder.op(f"autograd::engine::evaluate_function: {GRADIENT}", now, 4)
            builder.op(GRADIENT, now + 1, 2, dims=[shape], types=["float"])
            now += 5
    return builder.annotation("Optimizer.step#Adam.step", now, 10)


def memory(builder: TraceBuilder, gpu: str):
    return tk.predict(builder.load(), gpu=gpu)[gpu].memory


def in_copies(builder: TraceBuilder, gpu: str):
    run = prepare_run(builder.load())
    return judge_memory_fit(run.program, run.gpu, load_gpu(gpu), (Layout(), Layout(dp=2)))


def test_state_is_parameters_gradients_and_two_moments():
    """4 + 4 + 8 bytes each, and what the product writes: 8 x 1024 x 4; a master copy at most."""
    found = memory(training(2**20), "l4")
    assert found.min_bytes == 16 * 2**20
    assert found.max_bytes == 20 * 2**20 + 4 * 8 * 1024
    assert found.fits is True


def test_an_optimizer_is_known_by_one_of_its_ranges():
    """Adam's range among others: the moments count as before."""
    among_others = training(2**20).annotation("forward", 1, 20).annotation("clip", 29, 1)
    assert memory(among_others, "l4").min_bytes == memory(training(2**20), "l4").min_bytes


def test_pooling_writes_one_element_and_its_place_for_each_window():
    """3×3 windows by steps of 2 make 56 × 56 of 112 × 112: 4 bytes and 8 each, which is less than they read."""
    product = training(2**20)
    pooled = training(2**20).op(
        "aten::max_pool2d_with_indices", 22, 5, dims=[[2, 8, 112, 112], [], [], [], [], []],
        types=["float", *["ScalarList"] * 4, "Scalar"],
        concrete=["", "[3, 3]", "[2, 2]", "[1, 1]", "[1, 1]", "False"],
    )  # fmt: skip
    pooled.kernel("max_pool_forward_nchw<float>", 116, 20, launch=23)
    more = memory(pooled, "l4").max_bytes - memory(product, "l4").max_bytes
    assert more == 2 * 8 * 56 * 56 * (4 + 8)


def test_a_larger_batch_leaves_more_in_memory_but_no_more_state():
    run = prepare_run(training(2**20).load())
    found = judge_memory_fit(run.program, run.gpu, load_gpu("l4"), (Layout(), Layout(batch=4.0)))
    assert (found.min_bytes, found.max_bytes) == (16 * 2**20, 20 * 2**20 + 4 * 4 * 8 * 1024)


def test_gradients_without_elements_tell_nothing():
    builder = training(2**20)
    for event in builder.events:
        if event["name"] == GRADIENT:
            event["args"]["Input Dims"] = [[0]]
    assert memory(builder, "l4").min_bytes is None


def test_several_backward_passes_hold_the_same_gradients():
    assert memory(training(2**20, passes=3), "l4").min_bytes == 16 * 2**20


def test_equal_parameters_are_no_passes_where_the_loss_has_one():
    builder = training(2048, passes=3).op("autograd::engine::evaluate_function: MseLossBackward0", 25, 2)
    assert memory(builder, "l4").min_bytes == 16 * 3 * 2048


def test_what_is_too_large_does_not_fit():
    """24 GB of parameters' state at least: into 80 GB, not into 16."""
    assert memory(training(3 * 2**29), "t4").fits is False
    assert memory(training(3 * 2**29), "h100-sxm").fits is True


def test_what_may_or_may_not_fit_is_not_judged():
    """16 GiB of state and up to 20 GiB: into the 24 of an L4 with luck."""
    assert memory(training(2**30, batch=2**20), "l4").fits is None


def test_what_fitted_fits_into_more():
    """Nothing is known of its size, but the trace's GPU had less memory."""
    trace = TraceBuilder().kernel("sgemm", 5, 10, launch=0).load()
    found = tk.predict(trace, gpu=["h200-sxm", "l4"])
    assert found["h200-sxm"].memory.fits is True
    assert found["l4"].memory.fits is None


def test_fewer_ranks_may_hold_as_much_more_of_what_they_share():
    """Two ranks hold the experts or tables of eight: up to four times 20 bytes a parameter, and 4 in a bucket."""
    run, gpu = prepare_run(training(2**20).load()), load_gpu("a100-sxm-80gb")
    same, fewer = (
        judge_memory_fit(run.program, run.gpu, gpu, (Layout(8, ep=8), Layout(ranks, ep=ranks))) for ranks in (8, 2)
    )
    assert fewer.min_bytes == same.min_bytes
    assert fewer.max_bytes == 4 * 24 * 2**20 + 4 * 8 * 1024
    assert same.reason.code == "memory-as-traced"
    tables = training(2**20).op("aten::_embedding_bag", 22, 5, dims=[[2**20, 64], [8]], types=["float", "long"])
    run = prepare_run(tables.load())
    assert judge_memory_fit(run.program, run.gpu, gpu, (Layout(8, ep=8), Layout(8, ep=8))).fits is True
    assert judge_memory_fit(run.program, run.gpu, gpu, (Layout(8, ep=8), Layout(2, ep=2))).fits is None


def judge(old: Layout, new: Layout, parameters: int = 2**20):
    run = prepare_run(training(parameters).load())
    return judge_memory_fit(run.program, run.gpu, load_gpu("a100-sxm-80gb"), (old, new))


@pytest.mark.parametrize(("old", "new", "times"), [
    (Layout(dp=8, sharded=True), Layout(dp=2, sharded=True), 8 / 2),
    (Layout(dp=8, sharded=True), Layout(dp=8), 8),
    (Layout(dp=8, sharded=True), Layout(), 8),
    (Layout(dp=8), Layout(dp=8, sharded=True), 1 / 8),
    (Layout(dp=8, sharded=True), Layout(dp=8, tp=2, sharded=True), 1 / 2),
    (Layout(dp=4, tp=2, sharded=True), Layout(dp=8, tp=1, sharded=True), 1),
    (Layout(tp=4), Layout(tp=2), 2),
    (Layout(dp=8, sharded=True), Layout(dp=8, sharded=True), 1),
])  # fmt: skip
def test_state_of_a_rank_is_what_its_shards_hold(old, new, times):
    """Of 2^20 parameters a rank holds 16 bytes each in the trace, whose ranks may have shared them already."""
    assert judge(old, new).min_bytes == pytest.approx(16 * 2**20 * times)
    bucket = 4 * 2**20 * times if new.dp > 1 and not new.sharded else 0
    assert judge(old, new).max_bytes == pytest.approx(20 * 2**20 * times + bucket + 4 * 8 * 1024)


@pytest.mark.parametrize("far", [Layout(dp=8), Layout(dp=2, sharded=True), Layout(dp=4, tp=2), Layout(tp=8)])
def test_there_and_back_is_the_same_memory(far):
    """What a rank holds in another layout, of what it holds here, and the other way round."""
    here = Layout(dp=8, sharded=True)
    there, back = judge(here, far).min_bytes, judge(far, here).min_bytes
    assert there * back == pytest.approx((16 * 2**20) ** 2)


def test_fsdp_stages_hold_whole_parameters_and_shards_of_the_rest():
    """Two stages of 8 shards hold half of the layers' 8 bytes of parameters and gradients, but a shard of Adam's."""
    found = judge(Layout(), Layout(dp=8, pp=2, sharded=True))
    assert found.min_bytes == pytest.approx(8 * 2**20 / 2 + 8 * 2**20 / 16)


def test_copies_hold_each_gradient_once_more_in_a_bucket():
    """4 bytes for each of the parameters come to the upper bound, and what fitted may not fit any more."""
    alone, copied = memory(training(2**20), "l4"), in_copies(training(2**20), "l4")
    assert (copied.min_bytes, copied.max_bytes) == (alone.min_bytes, alone.max_bytes + 4 * 2**20)
    assert memory(training(2**32), "a100-sxm-80gb").fits is True
    assert in_copies(training(2**32), "a100-sxm-80gb").fits is None


@pytest.mark.parametrize(("called", "kind", "in_buckets"), [
    ("mesh_dp", "allreduce", 1), ("mesh_tp", "allreduce", 0), ("fsdp", "reduce_scatter", 0)
])  # fmt: skip
def test_only_data_parallel_ranks_that_do_not_shard_have_buckets(called, kind, in_buckets):
    builder = training(2**20)
    builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}
    group = {"Group size": 8, "Process Group Ranks": str([*range(8)]), "Process Group Description": called}
    builder.kernel("ncclDevKernel_X", 120, 50, launch=22, **(recorded(kind) | group))
    assert memory(builder, "l4").max_bytes == (20 + 4 * in_buckets) * 2**20 + 4 * 8 * 1024


def test_dollars_for_a_thousand_steps():
    """1,000 steps of 3.6 ms are a thousandth of an hour."""
    trace = TraceBuilder().kernel("sgemm", 5, 3590, launch=0).op("aten::end", 3595, 5).load()
    found = tk.predict(trace, gpu=["a100-sxm-80gb", "l4"], price={"A100 SXM 80GB": 2.0})
    assert found["a100-sxm-80gb"].dollars_per_1000_steps == pytest.approx(
        2.0 * found["a100-sxm-80gb"].step.step_time_us / 3.6e6
    )
    assert found["a100-sxm-80gb"].dollars_per_1000_steps == pytest.approx(0.002, rel=0.01)
    assert found["l4"].dollars_per_1000_steps is None
    assert ["price-missing" in list_codes(one.notes) for one in found.values()] == [False, True]


def test_a_price_of_the_traces_gpu_tells_what_is_paid_today():
    """For all four ranks, whatever the target is."""
    builder = TraceBuilder().kernel("sgemm", 5, 3590, launch=0).op("aten::end", 3595, 5)
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 4}
    found = tk.report(tk.predict(builder.load(), gpu="l4", price={"A100 SXM 80GB": 2.0})).source
    assert found.dollars_per_1000_steps == pytest.approx(4 * 2.0 * found.step_time_us / 3.6e6)
    assert tk.report(tk.predict(builder.load(), gpu="l4")).source.dollars_per_1000_steps is None


@pytest.mark.parametrize("dollars", [-1.0, float("nan"), float("inf"), "2", None, True])
def test_a_price_is_a_number_of_dollars(dollars):
    with pytest.raises(RequestError) as refused:
        tk.predict(training(2**20).load(), gpu="l4", price={"l4": dollars})
    assert refused.value.code == "price-not-dollars"


@pytest.mark.parametrize("price", [{"l4": 2.0}, "l4=2", ["l4=2"]])
def test_a_price_is_a_name_and_a_number_or_the_text_of_both(price):
    assert tk.predict(training(2**20).load(), gpu="l4", price=price)["l4"].price == 2


@pytest.mark.parametrize("price", [{4: 2.0}, 4])
def test_a_price_needs_a_name(price):
    with pytest.raises(RequestError) as refused:
        tk.predict(training(2**20).load(), gpu="l4", price=price)
    assert refused.value.code == "option-value"


def test_a_gpu_has_one_price_however_it_is_written():
    trace = training(2**20).load()
    with pytest.raises(tk.TracekitError, match=r"h100-sxm has two prices, 2 and 3\.5 dollars"):
        tk.predict(trace, gpu="l4", price={"h100-sxm": 2, "H100 SXM": 3.5})
    assert (
        tk.predict(trace, gpu="h100-sxm", price={"h100-sxm": 2, "H100 SXM": 2.0})["h100-sxm"].dollars_per_1000_steps
        is not None
    )


@pytest.mark.parametrize(("allocated", "reserved", "fits"), [(10, 14, True), (14, 16, None), (16, 18, False)])
def test_a_recorded_peak_decides(allocated, reserved, fits):
    """In GiB; of a T4's 16, 92 % can be used: 14.7."""
    builder = training(2**20)
    peaks = {"peak_allocated_bytes": allocated * 2**30, "peak_reserved_bytes": reserved * 2**30}
    builder.metadata["tracekit"] = {"memory": peaks}
    assert memory(builder, "t4").fits is fits


def test_a_recorded_peak_is_not_that_of_fewer_ranks_that_share():
    """4 GiB on each of eight ranks say nothing of how much two of them would hold."""
    builder = training(2**20)
    builder.metadata["tracekit"] = {"memory": {"peak_allocated_bytes": 4 * 2**30, "peak_reserved_bytes": 4 * 2**30}}
    run, gpu = prepare_run(builder.load()), load_gpu("t4")
    same, fewer = (
        judge_memory_fit(run.program, run.gpu, gpu, (Layout(8, ep=8), Layout(ranks, ep=ranks))) for ranks in (8, 2)
    )
    assert same.max_bytes == 4 * 2**30
    assert fewer.max_bytes == 4 * 24 * 2**20 + 4 * 8 * 1024


def test_a_recorded_peak_of_one_rank_had_no_buckets():
    """4 of 16 GiB, and 12 of gradients: tensors fit, the buckets may not."""
    builder = training(3 * 2**30)
    builder.metadata["tracekit"] = {"memory": {"peak_allocated_bytes": 4 * 2**30, "peak_reserved_bytes": 4 * 2**30}}
    found = in_copies(builder, "t4")
    assert (found.fits, found.max_bytes) == (None, 16 * 2**30)
    assert found.reason.values["buckets_bytes"] == 12 * 2**30


def noted(builder: TraceBuilder, allocated: int, reserved: int, *, kind: int = 1, device: int = 0) -> TraceBuilder:
    """An event of the allocator, as ``profile_memory=True`` writes it; sizes in GiB."""
    args = {"Device Type": kind, "Device Id": device, "Addr": 1, "Bytes": 512}
    args |= {"Total Allocated": allocated * 2**30, "Total Reserved": reserved * 2**30}
    event = {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3}
    builder.events.append(event | {"args": args})
    return builder


def test_the_allocators_events_are_a_measured_peak():
    """The largest counts, of this GPU alone: not the CPU's, nor another one's."""
    builder = noted(noted(training(2**20), 10, 12), 14, 16)
    noted(noted(builder, 60, 60, kind=0, device=-1), 70, 70, device=3)
    found = memory(builder, "t4")
    assert (found.min_bytes, found.max_bytes) == (14 * 2**30, 16 * 2**30)
    assert found.fits is None
    assert memory(builder, "l4").fits is True


@pytest.mark.parametrize("reserved", [0, 20, None])
def test_a_peak_of_tensors_is_a_lower_bound_without_that_of_the_allocator(reserved):
    """60 GiB of tensors: less than that can't have been reserved."""
    builder = noted(training(2**20), 60, reserved or 0)
    if reserved is None:
        del builder.events[-1]["args"]["Total Reserved"]
    assert memory(builder, "rtx-4090").fits is False
    assert memory(builder, "rtx-4090").min_bytes == 60 * 2**30
    assert memory(builder, "h200-sxm").fits is True  # it has more than the trace's GPU


def test_events_of_the_allocator_without_totals_tell_nothing():
    builder = noted(training(2**20), 10, 12)
    del builder.events[-1]["args"]["Total Allocated"]
    assert memory(builder, "l4").min_bytes == 16 * 2**20


@pytest.mark.parametrize(
    ("exposed_us", "slower_us", "code"),
    [
        (50.0, 0.0, "inserted-exposed"),
        (40.0, 0.5, "inserted-overlapped"),
        (10.0, 4.0, "inserted-slow-kernels"),
    ],
)
def test_what_put_in_collectives_cost_is_what_the_step_shows(exposed_us, slower_us, code):
    """The column of a sweep shows the exposed part: the note doesn't call more of them so."""
    assert notes.note_inserted_collectives(50.0, exposed_us, slower_us).code == code


@pytest.mark.parametrize(("batch", "least", "most"), [(2.0, 6.75, 8.0), (0.5, 2.5, 3.625)])
def test_a_recorded_peak_bounds_that_of_another_batch(batch: float, least: float, most: float) -> None:
    """In GiB: of 4, 1 to 1.25 are the state of 2**26 parameters, 16 to 20 bytes each; 5 are reserved.

    Twice the batch adds 2.75 to 3; half of it takes 1.375 to 1.5 away.
    """
    builder = training(2**26)
    builder.metadata["tracekit"] = {"memory": {"peak_allocated_bytes": 4 * 2**30, "peak_reserved_bytes": 5 * 2**30}}
    run = prepare_run(builder.load())
    found = judge_memory_fit(run.program, run.gpu, load_gpu("l4"), (Layout(), Layout(batch=batch)))
    assert (found.min_bytes, found.max_bytes) == (least * 2**30, most * 2**30)
    assert found.fits
