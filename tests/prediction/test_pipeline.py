"""Jobs of one stage as pipelines of several."""

import json

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message, has_code, list_codes
from tests.jobs import job
from tests.layers import NODE, Layers
from tracekit.comm import load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.errors import TracekitError
from tracekit.parallelism.layers import find_repeated_layers, find_repetition
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.pipeline_parallel import SEND_LATENCY_US
from tracekit.render.html.page import render_page
from tracekit.render.json import dump_prediction
from tracekit.reporting import build_report
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

PAIR = "8x1xa100-sxm-80gb@hdr200"
TOKENS, HIDDEN = 512, 1024
GRADIENT = "torch::autograd::AccumulateGrad"


class Model(Layers):
    """Passes through equal layers, 1 ms forward and 2 backward each, then an optimizer of 1.6 ms."""

    def __init__(
        self,
        layers: int = 4,
        *,
        passes: int = 1,
        shapes: bool = True,
        head: float = 0.0,
        weights: bool = False,
        clip: float = 0.0,
    ) -> None:
        super().__init__()
        self.end, self.shapes = 20.0, shapes
        for _ in range(passes):
            for _ in range(layers):
                self.multiplies("aten::mm", 1000)
            if head:
                self.runs("aten::log_softmax", [[TOKENS, HIDDEN]], "softmax_warp_forward", head)
            for layer in reversed(range(layers)):
                self.builder.op("autograd::engine::evaluate_function: MmBackward0", self.now, 19 if weights else 9)
                self.multiplies("aten::mm", 1000 if weights else 2000)
                if weights:
                    self.runs("aten::mm", [[HIDDEN, TOKENS], [TOKENS, HIDDEN]], "ampere_sgemm_128x64_nt", 1000)
                self.builder.op(
                    GRADIENT, self.now - 0.8, 0.5, **self.described([[HIDDEN if layer else 2 * HIDDEN, HIDDEN]])
                )
        if clip:
            self.runs("aten::_foreach_norm", [[HIDDEN, HIDDEN]], "multi_tensor_apply_kernel", clip)
        self.builder.annotation("Optimizer.step#Adam.step", self.now, 10)
        self.runs("aten::_foreach_add_", [[HIDDEN, HIDDEN]], "multi_tensor_apply_kernel", 1600)
        self.builder.call("cudaDeviceSynchronize", self.now, self.end - self.now)

    def described(self, dims: list[list[int]]) -> dict[str, object]:
        return {"dims": dims, "types": ["float"] * len(dims)} if self.shapes else {}

    def multiplies(self, op: str, dur: float) -> None:
        self.runs(op, [[TOKENS, HIDDEN], [HIDDEN, HIDDEN]], "ampere_sgemm_128x64_nn", dur)

    def runs(self, op: str, dims: list[list[int]], kernel: str, dur: float) -> None:
        self.builder.op(op, self.now + 1, 8, **self.described(dims)).kernel(kernel, self.end, dur, launch=self.now + 2)
        self.now, self.end = self.now + 10, self.end + dur


def send_us(cluster: str, nodes: int) -> float:
    call = {
        "collective": ["send_recv"],
        "bytes": [TOKENS * HIDDEN * 4],
        "ranks": [2],
        "dtype": ["bf16"],
        "nodes": [nodes],
    }
    transfer_us: float = predict_collectives(pl.DataFrame(call), load_cluster(cluster))["time_us"].item()
    return transfer_us + SEND_LATENCY_US[0]


@pytest.mark.parametrize(("cluster", "nodes"), [(NODE, 1), (PAIR, 2)])
def test_one_micro_batch_goes_through_the_stages_and_back(cluster, nodes):
    """Two sends are added. Of the optimizer the stage keeps the largest parameter, two fifths, and half of the rest."""
    found = Model().on(cluster, pp=2, micro_batches=1)
    assert found.ranks == 2
    assert found.step.step_time_us == pytest.approx(13620 + 2 * send_us(cluster, nodes) - 1600 * 3 / 10, abs=2)
    assert found.pipeline is not None
    assert found.pipeline.send_bytes == TOKENS * HIDDEN * 4
    assert found.pipeline.send_us == pytest.approx(send_us(cluster, nodes))


def test_stages_work_side_by_side():
    """11 rounds of 3 ms, sends in the open as there is no slack; the host's 20 us ahead of a pass count to it."""
    found = Model().on(pp=4, micro_batches=8)
    assert found.pipeline is not None
    assert 11 * 3000 < found.step.step_time_us < 11 * 3000 + 8 * 20 + 1000 + 22 * send_us(NODE, 1)
    assert 3 / 11 - 0.02 < found.pipeline.bubble < 0.4
    assert found.step.kernel_time_us == pytest.approx(2 * 12000 + 1600 / 4)


def test_by_default_each_gpu_works_as_much_as_before():
    once, thrice = Model().on(pp=2), Model(passes=3).on(pp=2)
    assert once.pipeline is not None
    assert thrice.pipeline is not None
    assert (once.pipeline.micro_batches, thrice.pipeline.micro_batches) == (2, 6)
    assert once.step.kernel_time_us == pytest.approx(12000 + 1600 / 2)
    assert thrice.step.kernel_time_us == pytest.approx(36000 + 1600 / 2)
    assert str(find_message(once.notes, "pipeline-used").values["pipeline"]).endswith("2 micro-batches by 1F1B")
    assert find_message(once.notes, "micro-batch-scaled").values["batch_ratio"] == 2


def test_interleaving_shortens_the_bubble_and_holds_more():
    plain, cut = Model(8).on(pp=4), Model(8).on(pp=4, pp_schedule="interleaved")
    assert plain.pipeline is not None
    assert cut.pipeline is not None
    assert cut.step.step_time_us < plain.step.step_time_us
    assert cut.pipeline.bubble < plain.pipeline.bubble
    assert cut.pipeline.max_passes_in_flight == 1.0  # no more micro-batches than stages
    many = Model(8).on(pp=4, pp_schedule="interleaved:2", micro_batches=16).pipeline
    assert many is not None
    assert many.max_passes_in_flight == 1 + 3 / 8


def test_weights_gradients_that_are_put_off_shorten_the_bubble():
    """Of 3 x 3 ms of waiting 3 x (1 + 1 - 1) are left."""
    plain, split = (
        Model(weights=True).on(pp=4, micro_batches=16, pp_schedule=name) for name in ("1f1b", "zero-bubble")
    )
    assert split.pipeline is not None
    assert split.pipeline.put_off == pytest.approx(0.5)
    assert 5700 < plain.step.step_time_us - split.step.step_time_us < 6000 + 2 * 16 * send_us(NODE, 1)
    assert "ZB-H1, weight gradients (50 % of the backward passes) deferred" in str(split.pipeline)


def test_smaller_micro_batches():
    """A quarter of the rows in each of four times as many: as large a job, in a shorter bubble."""
    whole, quarter = Model().on(pp=4, micro_batches=4), Model().on(pp=4, micro_batches=16, batch=0.25)
    assert whole.pipeline is not None
    assert quarter.pipeline is not None
    assert quarter.pipeline.send_bytes == whole.pipeline.send_bytes / 4
    assert quarter.pipeline.bubble < whole.pipeline.bubble
    assert quarter.batch_ratio == whole.batch_ratio == 4
    assert find_message(quarter.notes, "micro-batch-scaled").values == {"size_ratio": 0.25, "batch_ratio": 4}


def test_what_lies_behind_the_layers_stays_on_the_last_stage():
    found = Model(head=3000).on(pp=4, micro_batches=8)
    assert found.pipeline is not None
    assert found.pipeline.slowest == pytest.approx(6000 / 3750, rel=0.05)
    assert "stages-uneven" in list_codes(found.notes)


def test_layers_left_over_go_where_there_is_less_to_do():
    """Of 7 layers and a head as long as one the last stage gets 1, the others 2."""
    found = Model(7, head=3000).on(pp=4, micro_batches=8).pipeline
    assert found is not None
    assert found.slowest == pytest.approx(1.0, abs=0.02)


def test_the_head_may_be_a_stage_of_its_own():
    found = Model(6, head=4500).on(pp=7, micro_batches=8).pipeline
    assert found is not None
    assert found.slowest == pytest.approx(4500 / (22500 / 7), rel=0.02)


def test_what_comes_once_a_step_is_no_part_of_a_micro_batch():
    """Gradients are clipped behind the last backward pass: half of it on each of two stages, once."""
    plain, clipped = (Model(clip=clip).on(pp=2, micro_batches=16).step.step_time_us for clip in (0.0, 2000.0))
    assert 1000 < clipped - plain < 2000


def test_gradients_are_exchanged_once_a_step():
    few, many = (Model().on(dp=2, pp=2, micro_batches=count).step for count in (2, 16))
    assert 0 < few.exposed_comm_us == pytest.approx(many.exposed_comm_us)
    assert many.kernel_time_us - few.kernel_time_us == pytest.approx((16 - 2) / 2 * 12000, rel=0.02)


def test_memory_is_shared_out_but_for_the_ends():
    """4 + 4 + 8 bytes a parameter, 5 x 2^20 of them; at most the two largest, 3 x 2^20, and half of the rest."""
    whole, half = Model().on().memory, Model().on(pp=2).memory
    assert whole.min_bytes == 16 * 5 * 2**20
    assert half.min_bytes == 16 * 5 * 2**20 / 2
    written = 4 * TOKENS * HIDDEN * 4
    assert whole.max_bytes == 20 * 5 * 2**20 + written
    assert half.max_bytes == 20 * 4 * 2**20 + written


def test_the_order_of_likelihood_holds():
    found = Model().on(pp=2)
    assert found.low_us < found.step.step_time_us < found.high_us


@pytest.mark.parametrize(
    ("model", "change", "code"),
    [
        (Model(), {"pp": 8}, "layers-indivisible"),
        (Model(), {"pp": 4, "pp_schedule": "interleaved"}, "layers-indivisible"),
        (Model(8), {"pp": 4, "pp_schedule": "interleaved", "micro_batches": 6}, "interleaving-indivisible"),
        (Model(8), {"pp": 8, "micro_batches": 2**20}, "schedule-too-large"),
        (Model(), {"micro_batches": 4}, "schedule-without-stages"),
        (Model(), {"pp_schedule": "zero-bubble"}, "schedule-without-stages"),
        (Model(8), {"pp": 2, "pp_schedule": "interleaved:1"}, "schedule-unknown"),
        (Model(), {"pp": 2, "pp_schedule": "zero-bubble"}, "weight-gradients-unknown"),
        (Model(shapes=False), {"pp": 2}, "stage-messages-unknown"),
        (Model(head=50000), {"pp": 2}, "layers-mixed"),
        (Model(1), {"pp": 2}, "layers-unrepeated"),
    ],
)
def test_what_can_not_be_cut_is_refused(model, change, code):
    with pytest.raises(TracekitError, check=has_code(code)):
        model.on(**change)


def test_every_form_of_the_report_holds_it():
    predictions = tk.predict(Model().builder.load(), cluster=NODE, pp=2)
    report = build_report(predictions.run, predictions.targets)
    assert "2 stages of 2 layers" in render_page(report)
    written = json.loads(dump_prediction(report))["targets"][0]
    assert written["pipeline"]["micro_batches"] == 2
    assert written["layout"]["pp"] == 2


def test_ranks_of_which_all_were_read_are_taken_together():
    alone = Model().on(pp=2)
    both = tk.predict(job(Model().builder, Model().builder), cluster=NODE, pp=2)[NODE]
    assert (alone.ranks, both.ranks) == (2, 4)
    assert both.step.step_time_us == pytest.approx(alone.step.step_time_us)


def test_inference_is_refused():
    builder = TraceBuilder().op("aten::mm", 0, 20, dims=[[64, 64]] * 2, types=["float"] * 2)
    builder.kernel("ampere_sgemm_128x64_nn", 10, 100, launch=5)
    with pytest.raises(LayoutError, check=has_code("no-training")):
        tk.predict(builder.load(), cluster=NODE, pp=2)


def test_a_sweep_over_stages():
    found = tk.sweep(Model().builder.load(), cluster=NODE, world_size=[1, 2, 4], pp=[1, 2, 4], samples=1)
    rows = {(row["ranks"], row["pp"]): row for row in found.table.iter_rows(named=True)}
    assert set(rows) == {(1, 1), (2, 1), (4, 1), (2, 2), (4, 2), (4, 4)}
    assert rows[4, 2]["step_time_us"] > rows[2, 2]["step_time_us"]
    for (ranks, _), row in rows.items():
        assert row["per_second"] == pytest.approx(ranks / row["step_time_us"] * 1e6)
    assert 0 < rows[2, 2]["bubble"] < rows[4, 4]["bubble"]
    assert rows[1, 1]["bubble"] is None


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ([7, 1, 2, 3, 1, 2, 3, 1, 2, 3, 9], (1, 3, 3)),
        ([1, 1, 2, 1, 1, 2], (0, 3, 2)),
        ([5, 5, 5, 5], (0, 1, 4)),
        ([1, 2, 3, 4], (0, 4, 1)),
        ([], (0, 0, 1)),
    ],
)
def test_the_sequence_that_repeats(tokens, found):
    assert find_repetition(np.array(tokens, dtype=np.int64)) == found


def test_layers_are_told_by_what_repeats():
    layers = find_repeated_layers(prepare_run(Model(6, passes=2, head=50).builder.load()).program)
    assert (layers.count, layers.passes_per_step, len(layers.passes)) == (6, 2, 2)
    assert layers.forward_starts.tolist() == [[0, 1, 2, 3, 4, 5, 6]] * 2
    assert layers.backward_starts.tolist() == [[0, 1, 2, 3, 4, 5, 6]] * 2


class Steps(Model):
    """Steps of a pass through two layers each, which the CPU waits for; it pauses before each."""

    def __init__(self, *pauses: float) -> None:
        super().__init__(passes=0)
        self.builder = TraceBuilder()
        for number, pause in enumerate(pauses):
            begin = self.now
            self.now += pause
            self.end = self.now + 20
            for _ in range(2):
                self.multiplies("aten::mm", 1000)
            for _ in range(2):
                self.builder.op("autograd::engine::evaluate_function: MmBackward0", self.now, 9)
                self.multiplies("aten::mm", 2000)
                self.builder.op(GRADIENT, self.now - 0.8, 0.5, **self.described([[HIDDEN, HIDDEN]]))
            self.builder.call("cudaDeviceSynchronize", self.now, self.end - self.now)
            self.now = self.end + 10
            self.builder.step(number, begin, self.now - begin)


@pytest.mark.parametrize("pauses", [(0, 0, 0, 10_000, 0), (0, 0, 30_000, 0, 0, 20_000)])
def test_a_slow_step_changes_nothing_of_a_pipeline(pauses):
    slow, clean = (Steps(*some).on(pp=2, micro_batches=4) for some in (pauses, [0.0] * len(pauses)))
    assert slow.step.step_time_us == pytest.approx(clean.step.step_time_us, rel=1e-6)
    assert slow.low_us == pytest.approx(clean.low_us, rel=1e-4)
    assert slow.high_us > clean.high_us  # other ranks may have such a step while this one has none
    assert slow.pipeline == clean.pipeline


def test_pipelines_of_steps_chosen_together_lie_between_each_alone():
    """The first of the trace doesn't count, as it starts with an empty queue."""
    pauses = (0, 0, 700, 3000, 0, 1500)
    alone = [Steps(*pauses).on(pp=2, micro_batches=4, steps=str(step)).step.step_time_us for step in range(1, 6)]
    assert min(alone) < Steps(*pauses).on(pp=2, micro_batches=4).step.step_time_us < max(alone)
    assert Steps(*pauses).on(pp=2, micro_batches=4, steps="1:5").step.step_time_us == pytest.approx(np.median(alone))
