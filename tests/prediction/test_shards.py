"""Sharded copies of a job that was recorded on one GPU."""

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message, has_code
from tests.layers import MIB, NODE, Layers
from tracekit.comm import load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.parallelism.fsdp import insert_fsdp_collectives
from tracekit.parallelism.layout import LayoutError
from tracekit.testing import TraceBuilder

TOKENS, HIDDEN = 512, 1024
MS = 1000


class Step(Layers):
    """Equal layers of one product each, 10 ms forward and 20 back, launched ahead of the GPU, and an optimizer."""

    dtype = "float"

    def __init__(self, layers: int = 2, *, head: int = 0, equal: bool = True) -> None:
        super().__init__()
        for _ in range(layers):
            self.product(10 * MS)
        if head:
            self.runs("aten::_log_softmax", [[TOKENS, 64]], "softmax_warp_forward", 100)
        self.builder.op("autograd::engine::evaluate_function: MseLossBackward0", self.now - 2, 1)
        for layer in reversed(range(layers)):
            self.backward("MmBackward0")
            self.product(20 * MS)
            self.accumulates([HIDDEN, HIDDEN if equal else HIDDEN + layer])
        if head:
            self.accumulates([head, HIDDEN])
        self.builder.annotation("Optimizer.step#Adam.step", self.now, 10)
        dims = [[[HIDDEN, HIDDEN]] * layers] * 4
        self.runs("aten::_fused_adamw_", dims, "multi_tensor_apply_kernel<FusedAdam>", 800)

    def product(self, dur: float) -> None:
        self.runs("aten::mm", [[TOKENS, HIDDEN], [HIDDEN, HIDDEN]], "ampere_sgemm_128x64_nn", dur)


def test_an_embedding_of_more_than_two_gib():
    added = insert_fsdp_collectives(Step(head=600_000).run.program).program.kernels
    assert added.filter(collective="reduce_scatter")["bytes"].to_list() == [4 * MIB] * 2 + [600_000 * HIDDEN * 4]


def test_layers_wait_for_their_parameters_and_the_optimizer_for_the_gradients():
    run = insert_fsdp_collectives(Step().run.program).program
    added = run.kernels[5:]
    assert added["collective"].to_list()[:6] == ["all_gather"] * 4 + ["reduce_scatter"] * 2
    assert added["bytes"].to_list() == [4 * MIB] * 6 + [8 * MIB] * 6
    gather, scatter, copy = 100.0, 300.0, 10.0
    durations = np.array([10 * MS, 10 * MS, 20 * MS, 20 * MS, 800, *[gather] * 4, *[scatter] * 2, *[copy] * 6])
    line = run.replay_timeline(durations)
    starts_us = (line.activity_start_ns / 1e3).round().tolist()
    # 2 us until what waits on another stream starts, 1 us between the kernels of a stream.
    launched = starts_us[5]
    first = launched + gather + 2 + copy + 1
    second = first + 10 * MS + 1 + copy + 1
    third = second + 10 * MS + 1 + copy + 1
    fourth = third + 20 * MS + 1 + copy + 1 + copy + 1
    scattered = fourth + 20 * MS + 1 + copy + 2 + scatter
    assert starts_us[:5] == [first, second, third, fourth, scattered + 2]


def test_gathers_run_no_more_than_two_layers_ahead():
    run = insert_fsdp_collectives(Step(4).run.program).program
    line = run.replay_timeline(np.concatenate([run.kernels["dur_ns"][:9] / 1e3, np.full(run.kernels.height - 9, 1.0)]))
    gathered = line.activity_start_ns[9 : 9 + 4]
    done = line.activity_end_ns[:2]
    assert (gathered[:2] < done[0]).all()
    assert (gathered[2:] > done).all()


def test_a_layer_s_gather_is_launched_before_the_backward_pass_of_the_one_behind():
    """Where the CPU sets the pace, its parameters are under way before that layer's kernel begins."""
    run = insert_fsdp_collectives(Step(4).run.program).program
    line = run.replay_timeline(np.ones(run.kernels.height))
    start_ns, collective = line.activity_start_ns, run.kernels["collective"]
    gathers = np.flatnonzero((collective == "all_gather").fill_null(value=False).to_numpy())[4:]
    backward = np.arange(4, 8)
    assert gathers.size == 4
    assert (start_ns[gathers[1:]] < start_ns[backward[:-1]]).all()
    assert (start_ns[gathers] < start_ns[backward]).all()


def test_prediction_of_shards():
    step = Step(head=64)
    copies, shards = step.on(dp=8), step.on(dp=8, fsdp=True)
    assert str(shards.layout) == "8 ranks = dp 8 (sharded)"
    calls = {"collective": ["all_gather"] * 5 + ["reduce_scatter"] * 3, "ranks": [8] * 8, "dtype": ["fp32"] * 8}
    sizes = [MIB // 4, *[4 * MIB] * 4, *[4 * MIB] * 2, MIB // 4]
    each_us = predict_collectives(pl.DataFrame({**calls, "bytes": sizes}), load_cluster(NODE))["time_us"]
    assert shards.inserted_us["collective"] == pytest.approx(each_us.sum())
    optimizer_us = shards.kernels["time_us"][-1]
    assert optimizer_us < 0.4 * copies.kernels["time_us"][-1]
    assert shards.memory.min_bytes == pytest.approx(copies.memory.min_bytes / 8)
    note = find_message(shards.notes, "fsdp-inserted").values
    assert (note["layers"], note["layer_bytes"], note["dtype"]) == (2, 4 * 2**20, "fp32")


def test_one_copy_has_nothing_to_shard():
    assert Step().on(dp=1, fsdp=True).step.step_time_us == Step().on().step.step_time_us


@pytest.mark.parametrize(
    ("step", "change", "code"),
    [
        (Step(equal=False), {"dp": 8}, "parameters-outside-layers"),
        (Step(1), {"dp": 8}, "layers-unrepeated"),
        (Step(), {}, "fsdp-of-one-rank"),
    ],
)
def test_what_cannot_be_sharded_is_refused(step, change, code):
    with pytest.raises(LayoutError, check=has_code(code)):
        step.on(fsdp=True, **change)


def test_an_inference_is_not_sharded_without_a_word():
    builder = TraceBuilder().op("aten::mm", 0, 20, dims=[[512, 1024], [1024, 1024]], types=["float"] * 2)
    trace = builder.kernel("ampere_sgemm_128x64_nn", 15, 900, launch=7).load()
    with pytest.raises(LayoutError, check=has_code("fsdp-of-inference")):
        tk.predict(trace, cluster=NODE, dp=8, fsdp=True)


def test_a_sweep_of_shards():
    found = tk.sweep(Step().builder.load(), cluster=NODE, fsdp=True)
    assert found.assumptions
    assert found.assumptions[0].code == "fsdp-inserted"
    assert found.table["ranks"].sort().to_list() == [1, 2, 4, 8]
