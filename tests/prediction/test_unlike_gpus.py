"""Jobs on several kinds of GPUs, which wait for the slowest in their collectives."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tracekit as tk
from tests.codes import find_message
from tests.jobs import job, recorded
from tests.prediction.test_copies import Step
from tests.prediction.test_pipeline import Model
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.pipeline_parallel import StageKinds, StepParts, _schedule_step
from tracekit.parallelism.pipeline_schedules import build_tasks
from tracekit.prediction import Prediction
from tracekit.prediction.unlike_gpus import share_samples
from tracekit.replay.engine import replay_meeting
from tracekit.run import prepare_run
from tracekit.testing import A100, TraceBuilder

ALIKE, TWICE = "2x4xh100-sxm@eth100", "4xh100-sxm + 4xh100-sxm@eth100"
UNLIKE, SLOW = "4xh100-sxm + 4xa100-sxm-80gb@eth100", "2x4xa100-sxm-80gb@eth100"


def predict(cluster: str, **asked: Any) -> Prediction:
    return Step().on(cluster, dp=8, host="same", **asked)


def test_ranks_that_only_compute_keep_their_pace() -> None:
    program = prepare_run(TraceBuilder().kernel("gemm", 10, 100, launch=0).load()).program
    lines = [program.replay_timeline(np.array([float(us)])) for us in (100, 300)]
    joint = replay_meeting(lines, np.empty(0, np.int64))
    assert [one.activity_end_ns.tolist() for one in joint] == [[110_000], [310_000]]


def test_an_all_reduce_begins_once_the_slowest_has_come_and_ends_with_the_slowest_transfer() -> None:
    builder = TraceBuilder().kernel("gemm", 10, 100, launch=0)
    builder.kernel("ncclDevKernel_AllReduce", 111, 50, launch=5, **recorded()).kernel("sgd", 162, 10, launch=20)
    program = prepare_run(builder.load()).program
    fast, slow = (program.replay_timeline(np.array(us, float)) for us in ([100, 50, 10], [300, 40, 30]))
    first, second = replay_meeting([fast, slow], np.array([1]))
    # The stream leaves 1 us between kernels.
    assert first.activity_start_ns.tolist() == [10_000, 111_000, 362_000]
    assert second.activity_start_ns.tolist() == [10_000, 311_000, 362_000]
    assert first.activity_end_ns.tolist() == [110_000, 361_000, 372_000]
    assert second.activity_end_ns.tolist() == [310_000, 361_000, 392_000]


def test_equal_kinds_are_the_plain_cluster_to_the_last_digit() -> None:
    plain, joined = predict(ALIKE), predict(TWICE)
    for name in ("step", "low_us", "high_us", "mean_low_us", "mean_high_us", "energy", "speedup", "batch_ratio"):
        assert getattr(joined, name) == getattr(plain, name), name
    assert joined.memory.fits == plain.memory.fits
    assert [(one.gpus, one.idle_us) for one in joined.kinds] == [(4, 0.0), (4, 0.0)]
    assert not plain.kinds


def test_equal_kinds_are_the_plain_pipeline_to_the_last_digit() -> None:
    plain, joined = (Model().on(name, pp=2, dp=4, micro_batches=4) for name in (ALIKE, TWICE))
    assert joined.step == plain.step
    assert (joined.low_us, joined.high_us) == (plain.low_us, plain.high_us)


def test_the_faster_gpus_wait_and_cost_as_much() -> None:
    found = predict(UNLIKE, price=["h100-sxm=3", "a100-sxm-80gb=1"])
    slow, fast = predict(SLOW), predict(ALIKE)
    assert fast.step.step_time_us < slow.step.step_time_us <= found.step.step_time_us
    h100, a100 = found.kinds
    assert (h100.own_us, a100.own_us) == pytest.approx((fast.step.step_time_us, slow.step.step_time_us), rel=1e-3)
    assert h100.idle_us == pytest.approx(found.step.step_time_us - h100.own_us)
    assert found.price == 2
    assert found.dollars_per_1000_steps == pytest.approx(2 * 8 * found.step.mean_us * 1e3 / 3.6e9)
    waits = find_message(found.notes, "unlike-gpus-pace").values["waits"]
    assert [one.values["gpus"] for one in waits] == [4]


def test_a_batch_is_shared_in_whole_samples_that_add_up() -> None:
    ranks = np.array([2, 2])
    assert share_samples(8, ranks, [0, 0], [1, 3]).tolist() == [12, 4]
    # One has 100 us that no sample changes, and would be done last with a single one.
    assert share_samples(4, ranks, [100, 25], [1, 5]).tolist() == [1, 7]
    assert share_samples(5, np.array([3, 2]), [0, 0], [1, 1]).tolist() == [5, 5]
    assert share_samples(6, np.array([1, 1, 1]), [0, 0, 0], [1, 2, 2]).tolist() == [8, 5, 5]


def test_balance_gives_the_faster_gpus_more_of_the_same_batch() -> None:
    even, shared = (Model().on(UNLIKE, dp=8, samples=64, balance=one) for one in (False, True))
    h100, a100 = shared.kinds
    assert h100.samples is not None
    assert a100.samples is not None
    assert h100.samples > a100.samples
    assert h100.samples + a100.samples == 2 * 64
    assert shared.batch_ratio == even.batch_ratio == 8
    assert shared.step.step_time_us < even.step.step_time_us


def test_stages_get_layers_by_speed() -> None:
    """A layer takes 3 us on one kind and 9 on the other: of 8 layers 6 and 2, 18 us a micro-batch on both."""
    layout = replace(Step().on(ALIKE, dp=8).target.layout, dp=1, pp=2)  # type: ignore[arg-type,type-var]
    each = [
        StepParts(np.array([0.0, *[us] * 8, 0.0]), np.array([0.0, *[2 * us] * 8, 0.0]), np.zeros(10), 0.0)
        for us in (1.0, 3.0)
    ]
    tasks = build_tasks(2, 1, 4, False)

    def schedule(*, by_speed: bool) -> Any:
        kinds = StageKinds(np.array([0, 1]), by_speed=by_speed)
        return _schedule_step(each, np.zeros(1), 1.0, [None, None], layout, 4, tasks, kinds)

    even, shared = schedule(by_speed=False), schedule(by_speed=True)
    assert (even.layers.tolist(), shared.layers.tolist()) == ([4, 4], [6, 2])
    assert even.busy_us.tolist() == [4 * 4 * 3, 4 * 4 * 9]
    assert shared.busy_us.tolist() == [4 * 18, 4 * 18]
    assert shared.step_us == 5 * 18  # 4 micro-batches and the one that fills the pipeline
    assert even.step_us == 4 * 36 + 12


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"dp": 4}, "unlike-gpus-left-over"),
        ({"tp": 8}, "unlike-gpus-in-group"),
        ({"dp": 1, "pp": 8, "balance": True}, None),
        ({"dp": 8, "balance": True}, "unlike-gpus-without-samples"),
    ],
)
def test_what_does_not_divide_over_the_kinds_is_refused(asked: dict[str, Any], code: str | None) -> None:
    with pytest.raises(LayoutError) as refused:
        Step().on(UNLIKE, **asked)
    assert code is None or refused.value.code == code


def test_a_sweep_ranks_layouts_of_unlike_gpus_beside_others() -> None:
    found = tk.sweep(Step().builder.load(), cluster=[UNLIKE, SLOW])
    best = found.best["4xh100-sxm+4xa100-sxm-80gb@eth100"]
    assert best.ranks == 8
    assert {entry.prediction.ranks for entry in found.entries if entry.prediction.kinds} == {8}


H100 = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "computeMajor": 9, "numSms": 132}


def record(device: dict[str, Any]) -> TraceBuilder:
    dims = {"dims": [[2048, 2048], [2048, 2048]], "types": ["c10::BFloat16"] * 2}
    builder = TraceBuilder(device).op("aten::mm", 0, 9, **dims).kernel("ampere_bf16_gemm", 10, 100, launch=5)
    return builder.kernel("ncclDevKernel_AllReduce", 112, 50, launch=20, stream=9, **recorded())


def test_ranks_of_several_kinds_are_each_carried_from_their_own() -> None:
    mixed, fast, slow = (
        tk.predict(job(*(record(one) for one in devices)), gpu="a100-sxm-80gb")["a100-sxm-80gb"].kernels["time_us"]
        for devices in ([H100, A100], [H100, H100], [A100, A100])
    )
    # Both gemms took 100 us: the A100's takes as long there again, the H100's longer.
    assert slow.to_list()[0::2] == [100, 100]
    assert mixed.to_list()[0::2] == [fast[0], 100]
    assert fast[0] > 120
