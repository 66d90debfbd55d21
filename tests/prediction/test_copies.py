"""Data-parallel copies of a job that was recorded on one GPU."""

import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message, has_code, list_codes
from tests.jobs import job
from tests.layers import MIB, NODE, Layers
from tracekit.comm import load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.parallelism.ddp import insert_gradient_allreduces
from tracekit.parallelism.ddp_buckets import assign_buckets
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.missing_collectives import insert_all
from tracekit.parallelism.stragglers import LIKELY_DOUBLING_LOSS
from tracekit.prediction.memory import find_gradients
from tracekit.program import Program
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.whatif.kernels import remove
from tracekit.workload.owners import find_innermost_ops
from tracekit.workload.signature import Tensor

GRADIENT = "torch::autograd::AccumulateGrad"
REAL = os.environ.get("TRACEKIT_REAL_TRACES")


class Step(Layers):
    """Two products backward of 100 us, launched ahead of the GPU, each with a gradient, and an optimizer."""

    def __init__(self, *, shapes: bool = True, passes: int = 1) -> None:
        super().__init__()
        self.builder.kernel("gemm", 10, 100, launch=0)
        self.shapes, self.now, self.end = shapes, 20, 111
        for _ in range(passes):
            self.product([1024, 1024]).product([16])
        self.builder.annotation("Optimizer.step#SGD.step", self.now - 2, 15)
        self.builder.kernel("multi_tensor_apply_kernel", self.end, 100, launch=self.now)

    def product(self, gradient: list[int]) -> "Step":
        described = {"dims": [gradient], "types": ["float"]} if self.shapes else {}
        self.builder.op("autograd::engine::evaluate_function: MmBackward0", self.now - 1, 9)
        self.builder.kernel("gemm", self.end, 100, launch=self.now)
        self.builder.op(GRADIENT, self.now + 10, 2, **described)
        self.now, self.end = self.now + 20, self.end + 101
        return self


def test_gradients_of_a_backward_pass_that_launches_nothing_are_refused():
    builder = TraceBuilder().op("aten::mm", 0, 20).kernel("gemm", 15, 100, launch=5)
    for at, shape in ((30, [1024, 1023]), (35, [1024])):
        builder.op(f"autograd::engine::evaluate_function: {GRADIENT}", at, 4)
        builder.op(GRADIENT, at + 1, 2, dims=[shape], types=["float"])
    builder.annotation("Optimizer.step#SGD.step", 40, 10)
    with pytest.raises(LayoutError) as refused:
        insert_gradient_allreduces(prepare_run(builder.load()).program)
    assert refused.value.code == "backward-without-launches"


def test_the_exchange_runs_beside_the_backward_pass_and_before_the_optimizer():
    run = insert_gradient_allreduces(Step().run.program).program
    copied, reduced = [10, 10], [50, 30]
    durations = np.array([100, 100, 100, 100, *copied, *reduced, *copied], dtype=float)
    line = run.replay_timeline(durations)
    ends_us = (line.activity_end_ns / 1e3).round().tolist()
    # The stream: 1 us between kernels, 2 until what waits on another stream starts.
    first_in, second_in = 211 + 1 + 10, 222 + 1 + 100 + 1 + 10
    first_reduced = first_in + 2 + 50
    second_reduced = max(second_in + 2, first_reduced + 1) + 30
    first_back = max(second_in + 1, first_reduced + 2) + 10
    second_back = max(first_back + 1, second_reduced + 2) + 10
    assert ends_us[4:] == [first_in, second_in, first_reduced, second_reduced, first_back, second_back]
    assert ends_us[3] == second_back + 1 + 100


def test_the_cpu_launches_copies_and_all_reduces_on_top_of_its_work():
    step = Step()
    step.builder.kernel("gemm", step.end + 101, 1, launch=step.now + 20)
    run = insert_gradient_allreduces(step.run.program).program
    line = run.replay_timeline(np.zeros(run.kernels.height))
    launched_us = (line.start_ns[: line.host_node_count - line.mark_count] / 1e3).round().tolist()
    # No op tells what a launch costs: 10 us a copy, 70 and three copies an all-reduce; two buckets and four copies.
    assert launched_us == [0, 20, 40 + 110, 60 + 110 + 110 + 20, 80 + 240]


def test_prediction_of_copies_takes_the_models_all_reduces_and_says_what_it_assumed():
    alone, copies = Step().on(), Step().on(dp=8)
    assert (alone.ranks, copies.ranks) == (1, 8)
    assert alone.step.step_time_us == pytest.approx(413)
    call = {"collective": ["all_reduce"] * 2, "bytes": [4 * MIB, 64], "ranks": [8, 8], "dtype": ["fp32"] * 2}
    reduces_us = predict_collectives(pl.DataFrame(call), load_cluster(NODE))["time_us"].to_list()
    assert copies.step.step_time_us > alone.step.step_time_us + reduces_us[1]
    assert 0.4 * reduces_us[1] < copies.step.exposed_comm_us < reduces_us[1]  # the first bucket's copy runs beside
    assert copies.low_us < copies.step.step_time_us < copies.high_us
    hidden_us = sum(reduces_us) - copies.step.exposed_comm_us
    assert copies.high_us > copies.step.step_time_us + 0.22 * hidden_us
    assert copies.kernels.height == alone.kernels.height
    assert (copies.batch_ratio, alone.batch_ratio) == (8, 1)
    assert copies.inserted_us["collective"] == pytest.approx(sum(reduces_us))
    assert not alone.inserted_us
    bars = build_report(Step().run, [copies]).bars
    assert dict(bars[1].parts)["collective"] > 0 == dict(bars[0].parts).get("collective", 0)
    note = find_message(copies.notes, "ddp-inserted").values
    assert (note["gradients"], note["gradient_bytes"], note["dtypes"]) == (2, 4 * MIB + 64, ("fp32",))
    assert note["allreduces"] == 2
    assert "ddp-inserted" not in list_codes(alone.notes)


def test_an_exchange_is_put_into_what_an_edit_left():
    edited = Step().on(dp=8, what_if="scale(family=gemm, 0.95)")
    # Three products of 100 us take a twentieth less.
    assert edited.step.step_time_us == pytest.approx(Step().on(dp=8).step.step_time_us - 15, abs=1)
    assert len(edited.kernels) == 4


def test_more_copies_are_never_faster_and_a_network_costs():
    pod = "4x8xa100-sxm-80gb@hdr50"
    steps = [Step().on(pod, dp=dp).step.step_time_us for dp in (1, 2, 8, 16, 32)]
    assert steps == sorted(steps)
    assert steps[3] > 1.05 * steps[2]


def test_what_hides_behind_the_backward_pass_slows_it(monkeypatch):
    """By the part of the GPU that the collectives take, as far as the GPU is busy in the step."""
    found = Step().on(dp=8)
    monkeypatch.setattr("tracekit.prediction.layout_step.COLLECTIVE_SM_FRACTION", 0.0)
    free = Step().on(dp=8)
    hidden_us = free.inserted_us["collective"] - free.step.exposed_comm_us
    busy = free.step.kernel_time_us / free.step.step_time_us
    assert hidden_us > 0
    assert found.step.step_time_us - free.step.step_time_us == pytest.approx(0.18 * hidden_us * busy)
    slow = find_message(found.notes, "inserted-slow-kernels").values
    assert (slow["lost_pct"], slow["max_lost_pct"]) == (pytest.approx(18), pytest.approx(22))


def test_copies_of_gradients_do_not_grow_with_the_batch():
    dims = [[512, 1024], [1024, 1024]]
    step = Step()
    step.builder.op("aten::mm", -1, 15, dims=dims, types=["float"] * 2)
    for at in (20, 40):
        step.builder.op("aten::mm", at - 0.5, 6, dims=dims, types=["float"] * 2)
    one, twice = step.on(dp=8), step.on(dp=8, batch=2)
    alone = step.on(batch=2).step.step_time_us - step.on().step.step_time_us
    assert twice.step.step_time_us - one.step.step_time_us == pytest.approx(
        alone * (1 + LIKELY_DOUBLING_LOSS) ** 1.5, rel=0.02
    )


def test_gradients_of_several_passes_are_exchanged_after_the_last():
    run = insert_gradient_allreduces(Step(passes=3).run.program).program
    reduces = run.kernels.filter(family="collective")
    assert reduces["bytes"].to_list() == [4 * MIB, 64]
    assert run.kernels.filter(family="copy").height == 2


def test_unused_gpus_of_a_cluster_are_said():
    assert find_message(Step().on().notes, "cluster-partly-used").values == {"ranks": 1, "gpus": 8}


def test_a_node_larger_than_any_known_is_said_where_ranks_fill_it():
    for dp, said in ((32, True), (8, False)):
        notes = Step().on("32xa100-sxm-80gb", dp=dp).notes
        assert ("node-too-large" in list_codes(notes)) == said


def test_what_cannot_be_told_is_refused():
    with pytest.raises(LayoutError, check=has_code("gradients-unknown")):
        Step(shapes=False).on(dp=8)
    tables = Step()
    tables.builder.op("aten::_embedding_bag", 1, 2)
    with pytest.raises(LayoutError, check=has_code("embedding-tables")):
        tables.on(dp=8)
    two = prepare_run(job(Step().builder, Step().builder))
    with pytest.raises(LayoutError, check=has_code("insertion-into-several-ranks")):
        insert_all(two.program, (insert_gradient_allreduces,))


def test_an_optimizer_that_steps_within_the_backward_pass_is_refused():
    builder = TraceBuilder()
    for now in (0, 200):
        builder.op("autograd::engine::evaluate_function: MmBackward0", now, 25)
        builder.op("aten::mm", now + 1, 20, dims=[[64 + now, 64], [64, 64]], types=["float"] * 2)
        builder.kernel("sgemm", now + 15, 50, launch=now + 5)
        builder.op("torch::autograd::AccumulateGrad", now + 30, 5, dims=[[64 + now]], types=["float"])
        builder.annotation("Optimizer.step#Adam.step", now + 40, 30).op("aten::add_", now + 45, 20)
        builder.kernel("vectorized_elementwise_kernel", now + 70, 20, launch=now + 50)
    with pytest.raises(LayoutError, check=has_code("gradients-unknown")):
        tk.predict(builder.load(), cluster=NODE, dp=8)


def test_a_trace_without_cpu_ops_shows_by_its_kernels_that_it_trains():
    """Its copies exchange gradients that nothing tells, where those of an inference exchange none."""
    forward = TraceBuilder().kernel("batch_norm_transform_input_kernel", 10, 100, launch=0)
    assert tk.predict(forward.load(), cluster=NODE, dp=8).targets[0].layout == Layout(dp=8)
    training = forward.kernel("batch_norm_backward_kernel", 120, 100, launch=5)
    with pytest.raises(LayoutError, check=has_code("gradients-unknown")):
        tk.predict(training.load(), cluster=NODE, dp=8)


def test_sweep_of_one_gpu_says_once_what_was_assumed():
    found = tk.sweep(Step().builder.load(), cluster=NODE)
    assert found.table["ranks"].sort().to_list() == [1, 2, 4, 8]
    assert found.assumptions
    assert found.table.filter(ranks=1)["step_time_us"].item() == pytest.approx(413)


@pytest.mark.parametrize(
    ("sizes", "numbers"),
    [
        ([2, 10, 20, 6, 3], [0, 1, 1, 2, 2]),
        ([0.5, 0.4, 0.2, 24, 1, 1], [0, 0, 0, 1, 1, 2]),
        ([30, 30, 30], [0, 1, 2]),
        ([0.1], [0]),
    ],
)
def test_buckets_are_full_at_one_then_at_25_mib(sizes, numbers):
    assert assign_buckets([Tensor((round(size * MIB / 4),), "fp32") for size in sizes]) == numbers


def test_each_type_has_buckets_of_its_own():
    mixed = [Tensor((MIB,), "fp32"), Tensor((16,), "bf16"), Tensor((MIB,), "bf16"), Tensor((16,), "fp32")]
    assert assign_buckets(mixed) == [0, 1, 1, 2]


@pytest.mark.skipif(not REAL, reason="TRACEKIT_REAL_TRACES is not set")
class TestRecordedExchange:
    """Jobs that DistributedDataParallel ran, against what their gradients alone tell."""

    @pytest.mark.parametrize("name", ["mi300x_ddp_train_rank3_of_4", "mi300x_resnet_act_checkpoint_rank0_of_8"])
    def test_buckets_are_those_recorded(self, name: str):
        run = prepare_run(tk.load(Path(str(REAL)) / f"{name}.json.gz"))
        reduced = run.kernels.filter(collective="all_reduce", step=run.chosen_steps["step"][0])["bytes"].to_list()
        one_pass = find_gradients(run.program)
        assert one_pass
        sizes = pl.DataFrame({"bucket": assign_buckets(one_pass), "bytes": [one.compute_bytes(4) for one in one_pass]})
        assert sizes.group_by("bucket").agg(pl.col("bytes").sum()).sort("bucket")["bytes"].to_list() == reduced

    def test_a_step_without_its_exchange_gets_it_back(self):
        run = prepare_run(tk.load(Path(str(REAL)) / "mi300x_ddp_train_rank3_of_4.json.gz"), source_gpu="mi300x")
        ddp = run.trace.ops.filter(pl.col("name").str.contains("reducer::mul_out|copy_bucket_to_grad|^c10d::"))
        inside = find_innermost_ops(run.trace.calls, ddp).gather(run.kernels["call"])
        theirs = (inside.is_not_null() | (run.kernels["family"] == "collective")).to_numpy()

        class Theirs:
            def find_rows(self, program: Program) -> object:
                return theirs

        left = remove(run.program, Theirs()).program  # type: ignore[arg-type]
        grown = insert_gradient_allreduces(left).program
        added = grown.kernels[left.kernels.height :]
        calls = added.select(pl.lit("all_reduce").alias("collective"), "bytes", "dtype", ranks=4)
        reduce_us = predict_collectives(calls, load_cluster("8xmi300x"))["time_us"]
        added_us = added.select(pl.when(pl.col("family") == "collective").then(reduce_us).otherwise(3.5)).to_series()
        before_us = np.where(theirs, 0, left.kernels["dur_ns"] / 1e3)
        step = grown.replay_step(np.append(before_us, added_us))
        without = left.replay_step(before_us)
        assert without.span_us < 0.95 * run.self_replay.span_us
        assert step.span_us == pytest.approx(run.self_replay.span_us, rel=0.01)
        assert step.kernel_time_us == pytest.approx(run.measured_step.kernel_time_us, rel=0.02)
