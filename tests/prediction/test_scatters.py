"""Pipeline stages whose copies share out their parameters."""

from functools import cache

import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tests.codes import find_message, list_codes
from tests.jobs import recorded
from tests.layers import MIB, NODE
from tests.prediction.test_shards import HIDDEN, MS, Step
from tracekit.comm import load_cluster
from tracekit.comm import predict as predict_collectives
from tracekit.messages import Message
from tracekit.parallelism.fsdp_pipeline import StageGathers, insert_stage_reduce_scatters
from tracekit.prediction.model import Prediction

LAYER, HEAD = 4 * MIB, 600 * HIDDEN * 4


def collective_us(collective: str, sizes: list[int]) -> list[float]:
    """What collectives take between two GPUs of a node."""
    calls = {"collective": collective, "bytes": sizes, "ranks": 2, "dtype": "fp32"}
    return predict_collectives(pl.DataFrame(calls), load_cluster(NODE))["time_us"].to_list()


@pytest.mark.parametrize(
    ("gather", "longer"),
    [
        (4.0, [6.0, 6.0]),  # the first in the open, and two copies; the second hides
        (14.0, [19.0, 19.0]),  # the second begins with the first, and comes 3 behind the first layer
        (40.0, [71.0, 71.0]),  # 80 until both are gathered, a copy and a layer, less the 20 of both layers
    ],
)
def test_a_chunk_waits_for_its_first_gather(gather, longer):
    moved, copied = (np.array([0.0, *[each] * 4, 0.0]) for each in (gather, 1.0))
    forward, begin = np.array([0.0, *[10.0] * 4, 0.0]), np.array([0, 3])
    assert StageGathers(moved, copied, is_early=False).compute_delays_us(forward, begin).tolist() == longer
    assert StageGathers(moved, copied, is_early=True).compute_delays_us(forward, begin).tolist() == [longer[0], 0.0]


def test_gathers_run_no_more_than_two_layers_ahead():
    """The third only begins once the first layer is done, at 14, and ends at 20; the fourth follows until 24."""
    moved, forward = np.array([0.0, 8.0, 4.0, 6.0, 4.0, 0.0]), np.array([0.0, 6.0, 4.0, 4.0, 1.0, 0.0])
    found = StageGathers(moved, 0 * moved, is_early=False).compute_delays_us(forward, np.array([0]))
    assert found.tolist() == [25.0 - 15.0]


def test_gradients_are_scattered_behind_the_last_backward_pass():
    run = insert_stage_reduce_scatters(Step(head=600).run.program).program
    added = run.kernels[6:]
    assert added["collective"].to_list() == ["reduce_scatter"] * 3 + [None] * 3
    assert added["bytes"].to_list() == [LAYER, LAYER, HEAD, 2 * LAYER, 2 * LAYER, 2 * HEAD]
    line = run.replay_timeline(np.array([10 * MS, 10 * MS, 100, 20 * MS, 20 * MS, 800, *[300.0] * 3, *[10.0] * 3]))
    starts_us, ended_us = line.activity_start_ns / 1e3, line.activity_end_ns / 1e3
    # 2 us until what waits on another stream starts, 1 us between the kernels of a stream.
    first = ended_us[4] + 2
    assert starts_us[9:12] == pytest.approx([first, first + 312, first + 624])
    assert starts_us[6:9] == pytest.approx([first + 11, first + 323, first + 635])
    assert starts_us[5] == pytest.approx(first + 935 + 2)


@cache
def shared(micro_batches: int) -> Prediction:
    """Two copies of two stages of two layers, the head on the first."""
    return Step(4, head=600).on(dp=2, pp=2, fsdp=True, micro_batches=micro_batches)


def test_what_stages_move():
    found = shared(1)
    assert found.pipeline is not None
    assert str(found.layout) == "4 ranks = dp 2 (sharded) x pp 2"
    layer_us, head_us = collective_us("all_gather", [LAYER, HEAD])
    # The first stage waits for the head and for a layer, the second for a layer; each copies its own.
    assert 2 * layer_us + head_us < 2 * found.pipeline.gather_us < 2 * layer_us + head_us + 5 * 15
    scattered_us = sum(collective_us("reduce_scatter", [LAYER] * 4 + [HEAD]))
    assert found.inserted_us["collective"] == pytest.approx(scattered_us)
    assert found.step.exposed_comm_us == pytest.approx(found.pipeline.gather_us + scattered_us / 2, rel=1e-4)
    assert found.low_us < found.step.step_time_us < found.high_us


def test_once_a_step():
    few, many = shared(1), shared(16)
    assert few.step.exposed_comm_us == pytest.approx(many.step.exposed_comm_us)
    waited = [one.pipeline.gather_us for one in (few, many) if one.pipeline]
    assert waited[0] == waited[1]


def test_parameters_and_gradients_stay_whole_on_a_stage():
    """Of 4 layers and the head 4 + 4 bytes a parameter; the two moments are shared out by two."""
    assert shared(1).memory.min_bytes == (LAYER + HEAD / 4) / 2 * (8 + 8 / 2)


def test_one_copy_has_nothing_to_share():
    alone, one = (Step(2).on(dp=1, pp=2, fsdp=fsdp) for fsdp in (False, True))
    assert one.step.step_time_us == alone.step.step_time_us


def test_the_output_says_which_collectives():
    notes = shared(1).notes
    note = find_message(notes, "fsdp-stages-inserted").values
    assert (note["layers"], note["layer_bytes"], note["dtype"]) == (4, 4 * 2**20, "fp32")
    assert "stage-gathers-exposed" in list_codes(notes)


class Sharded(Step):
    """The same on one of 8 ranks that shard their parameters: each layer is gathered twice and scattered once."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.builder.metadata["distributedInfo"] = {"rank": 0, "world_size": 8}

    def product(self, dur: float) -> None:
        self.communicates("_allgather_base", "AllGather", LAYER // 4 // 8)
        super().product(dur)

    def accumulates(self, dims: list[int]) -> None:
        self.communicates("_reduce_scatter_base", "ReduceScatter", LAYER // 4)

    def communicates(self, kind: str, name: str, nelems: int) -> None:
        group = recorded(kind, nelems, str([*range(8)]), "mesh_dp")
        whole = {"In msg nelems": nelems, "Out msg nelems": nelems * 8 if name == "AllGather" else nelems // 8}
        kernel = f"ncclDevKernel_{name}_Sum_f32_RING_LL"
        self.builder.kernel(kernel, self.end, 500, launch=self.now - 5, stream=9, **(group | whole))


def test_a_job_that_shards_already_gathers_once_a_step_too():
    step = Sharded(4)
    few, many = (step.on(pp=2, dp=4, micro_batches=count) for count in (2, 8))
    assert str(few.layout) == "8 ranks = dp 4 (sharded) x pp 2"
    calls = {"collective": "reduce_scatter", "bytes": [LAYER] * 4, "ranks": 4, "dtype": "fp32"}
    each_us = predict_collectives(pl.DataFrame(calls), load_cluster(NODE))["time_us"]
    assert few.inserted_us["collective"] == pytest.approx(each_us.sum())
    assert few.step.exposed_comm_us == pytest.approx(many.step.exposed_comm_us, rel=1e-3)
    assert few.step.exposed_comm_us < 1000
    assert few.pipeline is not None
    assert few.pipeline.gather_us > 0
    inserted = find_message(few.notes, "fsdp-stages-replaced").values["whole"]
    assert isinstance(inserted, Message)
    assert (inserted.values["layers"], inserted.values["layer_bytes"]) == (4, 4 * 2**20)


def test_as_many_copies_as_before_have_their_reduce_scatters_too():
    found = Sharded(4).on("16xa100-sxm-80gb", pp=2, micro_batches=2)
    assert str(found.layout) == "16 ranks = dp 8 (sharded) x pp 2"
    assert found.inserted_us["collective"] > 0


def test_a_sweep_of_shared_stages():
    found = tk.sweep(Step().builder.load(), cluster=NODE, fsdp=True, pp=[2], world_size=[4])
    assert found.table.select("dp", "pp").rows() == [(2, 2)]
    assert "fsdp-stages-inserted" in list_codes(found.assumptions)
