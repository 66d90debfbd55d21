"""Many layouts of a job, and where more ranks stop helping."""

from functools import partial

import pytest

import tracekit as tk
from tests.asking import sweep
from tests.codes import has_code
from tracekit.errors import RequestError, TraceError
from tracekit.models.captured import FACTS_KEY, CaptureFacts
from tracekit.parallelism.layout import LayoutError, LayoutRequest
from tracekit.prediction.batch import StepBatch, infer_rank_batch
from tracekit.prediction.sweep import Sweep, list_splits, sweep_variants
from tracekit.prediction.targets import resolve_targets
from tracekit.reporting import build_prediction_report
from tracekit.reporting.sweep import SweepReport, build_sweep_report
from tracekit.request import SweepRequest
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

FAST, SLOW = "8x8xa100-sxm-80gb@hdr200", "8x8xa100-sxm-80gb@eth10"


def training(steps: int = 1) -> TraceBuilder:
    """8 ranks, 16 images each: a convolution of 3 ms, then an all-reduce of 32 MiB in the open."""
    builder = TraceBuilder()
    builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": 0, "world_size": 8}
    builder.op("autograd::engine::evaluate_function: x", 0, 1)
    builder.op("aten::conv2d", 2, 20, dims=[[16, 3, 224, 224], [64, 3, 7, 7]], types=["float"] * 2)
    builder.kernel("sm80_xmma_fprop", 15, 3000, launch=5)
    message = {"Collective name": "allreduce", "In msg nelems": 2**24, "dtype": "BFloat16", "Group size": 8}
    builder.op("record_param_comms", 30, 10, **message)
    builder.kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 3016, 300, launch=32, stream=20)
    return builder.call("cudaDeviceSynchronize", 45, 3275)


@pytest.fixture(scope="module")
def found() -> Sweep:
    return sweep(prepare_run(training().load()), cluster=[FAST, SLOW], price={"a100-sxm-80gb": 2.0})


def test_world_sizes_double_from_the_traces_to_the_cluster(found):
    sizes = sorted(entry.prediction.ranks for entry in found.entries if entry.prediction.label == FAST)
    assert sizes == [8, 16, 32, 64]


def test_a_single_number_needs_no_list_and_one_named_twice_counts_once():
    once = tk.sweep(training().load(), cluster=FAST, world_size=16).table
    twice = tk.sweep(training().load(), cluster=[FAST], world_size=[16, 16], tp=[1, 1]).table
    assert once.equals(twice)
    assert once["ranks"].to_list() == [16]


def test_a_node_larger_than_any_known_is_said_beside_others():
    found = tk.sweep(training().load(), cluster=[FAST, "64xa100-sxm-80gb"])
    assert [(note.code, note.values["gpus"]) for note in found.assumptions] == [("node-too-large", 64)]


def test_the_one_that_gets_most_done_is_first(found):
    done = [entry.per_second for entry in found.entries]
    assert done == sorted(done, reverse=True)
    assert found.entries[0].prediction.label == FAST
    assert found.unit == "samples"
    for entry in found.entries:
        seconds = entry.prediction.step.step_time_us / 1e6
        assert entry.per_second == pytest.approx(16 * entry.prediction.ranks / seconds)


def test_of_those_that_are_alike_the_cheapest_is_first():
    """Eight GPUs wait for the same CPU: the dearer kind is a hair faster, and stands behind."""
    builder = TraceBuilder().op("aten::slow", 0, 5000).op("aten::conv2d", 5000, 20, dims=[[16, 3, 8, 8], [4, 3, 3, 3]])
    run = prepare_run(builder.kernel("sm80_xmma_fprop", 5030, 20, launch=5010).load())
    nodes = ["8xh100-sxm", "8xb200"]
    plain = sweep(run, cluster=nodes, world_size=[8])
    dear, cheap = (entry.prediction.gpu for entry in plain.entries)
    assert [entry.is_tied for entry in plain.entries] == [False, True]
    priced = sweep(run, cluster=nodes, world_size=[8], price={dear: 4.0, cheap: 2.0})
    assert [entry.prediction.gpu for entry in priced.entries] == [cheap, dear]
    assert [entry.is_tied for entry in priced.entries] == [False, True]


def test_what_does_not_fit_comes_last():
    """Eight T4 would get eight times as much done as a GPU that waits for the same CPU, but have 16 GB, not 20."""
    builder = TraceBuilder().op("aten::slow", 0, 5000).kernel("sm80_xmma_fprop", 5030, 20, launch=5010)
    peaks = {"peak_allocated_bytes": 20 * 2**30, "peak_reserved_bytes": 22 * 2**30}
    builder.metadata["tracekit"] = {"memory": peaks}
    found = sweep(prepare_run(builder.load()), cluster=["8xt4", "8xl40s"], world_size=[1, 8])
    order = [(one.prediction.label, one.prediction.ranks, one.prediction.memory.fits) for one in found.entries]
    assert order == [("8xl40s", 8, True), ("8xl40s", 1, True), ("8xt4", 8, False), ("8xt4", 1, False)]
    assert not found.entries[2].is_tied
    assert found.knees == {"8xl40s": 8, "8xt4": 0}


def test_a_million_samples_can_be_compared_where_steps_can_not(found):
    """The smallest layout's step costs least; its samples cost what its GPUs' throughput makes them."""
    for entry in found.entries:
        hours = 1e6 / entry.per_second / 3600
        assert entry.dollars_per_million == pytest.approx(2.0 * entry.prediction.ranks * hours)
    assert found.table["dollars_per_million"].to_list() == [entry.dollars_per_million for entry in found.entries]


def test_each_gpu_does_less_as_the_job_grows_and_the_knee_says_until_when(found):
    for label in (FAST, SLOW):
        mine = sorted((e for e in found.entries if e.prediction.label == label), key=lambda e: e.prediction.ranks)
        kept = [entry.efficiency for entry in mine]
        assert kept[0] == 1
        assert kept == sorted(kept, reverse=True)
    assert found.knees == {FAST: 32, SLOW: 8}


def test_a_number_of_ranks_that_fits_the_nodes_badly_is_no_knee():
    """A ninth rank alone on its node has one adapter for what eight share elsewhere; sixteen fill two nodes."""
    found = sweep(prepare_run(training().load()), cluster=[FAST], world_size=[8, 9, 16])
    kept = {entry.prediction.ranks: entry.efficiency for entry in found.entries}
    assert kept[9] < 0.9 < kept[16]
    assert found.knees == {FAST: 16}


def test_what_is_asked_for_and_what_is_refused():
    run = prepare_run(training().load())
    found = sweep(run, gpu=["h100-sxm"], cluster=[FAST], world_size=[8, 64])
    assert sorted((e.prediction.label, e.prediction.ranks) for e in found.entries) == [
        (FAST, 8), (FAST, 64), ("dgx-h100", 8),
    ]  # fmt: skip
    assert "dgx-h100" in [why.values["target"] for why in found.refused]
    with pytest.raises(LayoutError, check=has_code("no-layout-predicted")):
        sweep(run, cluster=["8xa100-sxm-80gb"], world_size=[64])


def test_a_cluster_too_small_for_one_replica_is_named_among_the_refused():
    run = prepare_run(training().load())
    with pytest.raises(LayoutError, match=r"2 GPUs can't hold 4 ranks, one replica"):
        sweep(run, cluster=["2xh100-sxm"], tp=[4])


@pytest.mark.parametrize(
    ("op", "dims", "batch"),
    [
        ("aten::embedding", [[50257, 768], [4, 1024]], StepBatch(4096, "tokens")),
        ("aten::conv2d", [[32, 3, 224, 224], [64, 3, 7, 7]], StepBatch(32, "samples")),
        ("aten::linear", [[32, 128], [256, 128]], None),
        ("aten::embedding", [[50257, 768], [0, 1024]], None),
        ("aten::embedding", [[50257, 768]], None),
        ("aten::conv2d", [[], [64, 3, 7, 7]], None),
    ],
)
def test_the_first_layer_tells_the_batch(op, dims, batch):
    builder = TraceBuilder().op(op, 0, 30, dims=dims, types=["long int", "float"]).kernel("k", 20, 10, launch=10)
    assert infer_rank_batch(prepare_run(builder.load()).program) == batch


def test_predict_counts_what_sweep_does(found):
    """On 16 ranks: 16 copies of 16 images."""
    told = tk.predict(training().load(), cluster=FAST, dp=16, price={"a100-sxm-80gb": 2.0})[FAST]
    entry = next(one for one in found.entries if one.prediction.label == FAST and one.prediction.ranks == 16)
    assert told.batch == StepBatch(16 * 16, "samples")
    assert (told.per_second, told.dollars_per_million) == pytest.approx((entry.per_second, entry.dollars_per_million))


def test_passes_that_graphs_replay_are_no_tokens_that_can_be_counted():
    """A prompt of 512 tokens by ops; what is generated after it comes from CUDA graphs, in which no op tells."""
    builder = TraceBuilder().op("aten::embedding", 0, 30, dims=[[50257, 768], [1, 512]], types=["float", "long int"])
    builder.kernel("k", 20, 10, launch=10)
    assert infer_rank_batch(prepare_run(builder.load()).program) == StepBatch(512, "tokens")
    builder.call("cudaGraphLaunch", 40, 10)
    assert infer_rank_batch(prepare_run(builder.load()).program) is None


def test_every_pass_of_a_step_counts():
    builder = TraceBuilder()
    for now in (0, 100):
        builder.op("aten::embedding", now, 30, dims=[[50257, 768], [4, 512]], types=["float", "long int"])
        builder.op("aten::embedding", now + 40, 30, dims=[[1024, 768], [1, 512]], types=["float", "long int"])
    builder.kernel("k", 20, 10, launch=10)
    assert infer_rank_batch(prepare_run(builder.load()).program) == StepBatch(2 * 4 * 512, "tokens", passes=2)


def test_of_steps_that_differ_the_mean_counts():
    """Sequences padded to the longest of their batch: throughput is of the mean step, too."""
    builder = TraceBuilder()
    for number, length in enumerate((4096, 64, 512, 128)):  # the first step is not measured
        now = 1000 * number
        builder.step(number, now, 900)
        builder.op("aten::embedding", now, 30, dims=[[50257, 768], [4, length]], types=["float", "long int"])
        builder.kernel("k", now + 20, 10, launch=now + 10)
    assert infer_rank_batch(prepare_run(builder.load(), steps="0:3").program) == StepBatch(
        4 * (64 + 512 + 128) / 3, "tokens"
    )


def test_a_layer_that_autocast_calls_from_within_itself_counts_once():
    builder, dims = TraceBuilder(), [[32, 3, 224, 224], [64, 3, 7, 7]]
    for now in (0, 100):
        builder.op("aten::conv2d", now, 60, dims=dims).op("aten::conv2d", now + 10, 50, dims=dims)
    builder.kernel("k", 20, 10, launch=15)
    assert infer_rank_batch(prepare_run(builder.load()).program) == StepBatch(2 * 32, "samples", passes=2)


def test_from_python_with_a_table():
    found = tk.sweep(training().load(), cluster=FAST, world_size=[8, 64], price={"a100-sxm-80gb": 2.0}, samples=4)
    assert found.table["ranks"].to_list() == [64, 8]
    assert found.table["efficiency"][1] == 1
    row = found.table.row(0, named=True)
    assert row["per_second"] == pytest.approx(4 * 64 / row["step_time_us"] * 1e6)
    assert row["dollars_per_1000_steps"] == pytest.approx(2.0 * 64 * row["step_time_us"] / 3.6e6)


def test_samples_that_are_given_stand_for_those_that_nothing_tells():
    """Eight copies of a rank that works through 4."""
    trace = training().load()
    predictions = tk.predict(trace, gpu="h100-sxm", price={"h100-sxm": 2.0, "a100-sxm-80gb": 1.0}, samples=4)
    prediction = predictions["h100-sxm"]
    whole = prediction.ranks * 4
    assert prediction.per_second == pytest.approx(whole / prediction.step.step_time_us * 1e6)
    source = build_prediction_report(predictions).source
    assert source.per_second == pytest.approx(whole / source.step_time_us * 1e6)
    assert source.batch == StepBatch(whole, "samples", given=True)


@pytest.mark.parametrize("samples", [0, -4, float("nan")])
@pytest.mark.parametrize("of", [partial(tk.sweep, cluster=FAST), partial(tk.predict, gpu="h100-sxm")])
def test_samples_are_a_number_of_them(of, samples):
    with pytest.raises(RequestError) as refused:
        of(training().load(), samples=samples)
    assert refused.value.code == "option-value"


def test_the_report_is_plain_data_that_comes_back_from_json(found):
    report = build_sweep_report(found)
    assert SweepReport.from_json(report.to_json()) == report
    assert report.table.equals(found.table)
    with pytest.raises(TraceError, check=has_code("not-a-report")):
        SweepReport.from_json("{}")


def test_splits_of_a_cluster_are_tried_with_several_numbers_of_micro_batches():
    """Of 4 GPUs: tp 1, 2 and 4, pp 1, 2 and 4, as far as they divide them."""
    places = resolve_targets([], ["4xh100-sxm"])
    tried = [one.layout for one in list_splits(places, LayoutRequest(), [])]
    splits = {(one.dp, one.tp, one.pp) for one in tried if one}
    assert splits == {(4, 1, 1), (2, 2, 1), (1, 4, 1), (2, 1, 2), (1, 2, 2), (1, 1, 4)}
    assert {one.micro_batches for one in tried if one and one.pp == 2} == {4, 16}
    assert {one.sequence_parallel for one in tried if one and one.tp == 2} == {True}
    assert not any(one.sequence_parallel for one in tried if one and one.tp == 1)
    asked = list_splits(places, LayoutRequest(micro_batches=6), [])
    assert {one.layout.micro_batches for one in asked if one.layout and one.layout.pp > 1} == {6}


def test_context_parallel_ranks_are_tried_within_a_node_with_sharded_parameters():
    """Of 2 nodes of 2 GPUs: cp 2 leaves no room for tp 2, and 2 data-parallel ranks or 2 stages."""
    places = resolve_targets([], ["2x2xh100-sxm@ndr400"])
    tried = [one.layout for one in list_splits(places, LayoutRequest(), [], (1, 2)) if one.layout]
    found = {(one.dp, one.tp, one.pp, one.sharded) for one in tried if one.cp == 2}
    assert found == {(2, 1, 1, True), (1, 1, 2, True)}
    assert {one.sharded for one in tried if one.cp == 1} == {False, True}
    wanted = sweep(prepare_run(training().load()), cluster=[FAST], world_size=[16], cp=[1, 2])
    assert {why.values["reason"].code for why in wanted.refused} == {"context-parallel-attention-unknown"}


@pytest.mark.parametrize("fits", [True, False])
def test_variants_of_a_program_are_ranked_together_by_what_fits(fits: bool):
    """A step of 5 ms that holds 1 GiB or 200, and one of 10 ms that recomputes what it would hold."""
    runs = []
    for recompute, us in (("", 5_000), ("full", 10_000)):
        builder = TraceBuilder().op("aten::conv2d", 0, 20, dims=[[16, 3, 8, 8], [4, 3, 3, 3]])
        builder.kernel("sm80_xmma_fprop", 30, us, launch=10)
        held = 2**30 * (1 if fits or recompute else 200)
        facts = CaptureFacts("a100-sxm-80gb", 0, 0, held, held, trains=False, recompute=recompute)
        builder.metadata[FACTS_KEY] = facts.to_dict()
        runs.append(prepare_run(builder.load()))
    found = sweep_variants(runs, SweepRequest(cluster="8xa100-sxm-80gb", world_size=1))
    order = ["", "full"] if fits else ["full"]
    assert [entry.recompute for entry in found.entries] == order
    assert found.table["recompute"].to_list() == [one or None for one in order]
