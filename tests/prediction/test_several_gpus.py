"""GPUs of one process: each has its own power, and money is paid for all."""

import numpy as np
import pytest

import tracekit as tk
from tests.codes import find_message
from tests.jobs import job
from tracekit.engine import InProcessEngine
from tracekit.fleet import predict_fleet
from tracekit.messages import Message
from tracekit.prediction.clock import average_by_gpu, to_demands_ns
from tracekit.prediction.model import Prediction
from tracekit.request import PredictRequest
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder
from tracekit.workload.kernel_table import count_gpus_per_rank, number_gpus

PRODUCT = {"dims": [[4096, 4096], [4096, 4096]], "types": ["c10::BFloat16", "c10::BFloat16"]}


def trained(works: tuple[int, ...], first: int = 0, steps: int = 3) -> TraceBuilder:
    """Steps in which GPUs do some products of 550 each, all at the same time, and then a wait for all."""
    builder, end = TraceBuilder(), max(works) * 551
    for number in range(steps):
        at = number * (end + 60.0)
        for place in range(max(works)):
            for gpu, count in enumerate(works):
                launch = at + 2 + 2 * (place * len(works) + gpu)
                if place < count:
                    builder.op("aten::mm", launch - 0.5, 1.8, **PRODUCT)
                    builder.kernel(
                        "ampere_bf16_s16816gemm", at + 40 + 551 * place, 550, launch=launch, launch_dur=1,
                        device=first + gpu,
                    )  # fmt: skip
        waits = at + 4 + 2 * max(works) * len(works)
        builder.call("cudaDeviceSynchronize", waits, at + 45 + end - waits)
        builder.step(number, at, 50 + end)
    return builder


def predict(builder: TraceBuilder, **options: object) -> Prediction:
    return tk.predict(builder.load(), gpu="h100-sxm", **options)["h100-sxm"]  # type: ignore[arg-type]


ALONE = predict(trained((4,)))


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_a_step_takes_as_long_on_several_gpus_as_on_one(gpus: int):
    there = predict(trained((4,) * gpus))
    assert there.step.step_time_us == pytest.approx(ALONE.step.step_time_us, rel=0.02)
    assert there.high_us / there.low_us == pytest.approx(ALONE.high_us / ALONE.low_us, rel=0.1)
    assert there.energy.power_w == pytest.approx(ALONE.energy.power_w, rel=0.02)
    demand = [float(str(find_message(one.notes, "clock-lowered").values["demand"])) for one in (there, ALONE)]
    assert demand[0] == pytest.approx(demand[1], rel=0.02)


def test_each_gpu_keeps_its_own_clock():
    """One GPU works for four products, the other for one: only the first is above its limit."""
    there = predict(trained((4, 1)))
    gpu = number_gpus(there.program.kernels)
    slow, fast = (there.kernels["time_us"].to_numpy()[gpu == one].mean() for one in (0, 1))
    assert slow == pytest.approx(ALONE.kernels["time_us"].mean(), rel=0.02)
    assert fast < 0.95 * slow
    assert there.step.step_time_us == pytest.approx(ALONE.step.step_time_us, rel=0.02)


def test_sums_over_a_step_are_by_gpu():
    run = prepare_run(trained((4, 1)).load())
    timer = run.program.step_timer
    assert timer.sum_by_gpu(run.kernels["dur_ns"].to_numpy()).tolist() == [[2_200_000.0] * 3, [550_000.0] * 3]
    assert timer.compute_median_sum_us(run.kernels["dur_ns"].to_numpy()) == (2200 + 550) / 2


def test_ranks_of_unlike_numbers_of_gpus_count_those_that_they_have():
    """Ranks drive GPUs 0 and 1, and GPU 2 alone: of three GPUs, two work 1,100, one 550."""
    run = prepare_run(job(trained((2, 1)), trained((2,), first=2)))
    kernels = run.kernels["dur_ns"].to_numpy()
    timer = run.program.step_timer
    summed = timer.sum_by_gpu(kernels)
    assert np.isnan(summed[1, 3:]).all()
    assert timer.compute_median_sum_us(kernels) == pytest.approx((1100 + 550 + 1100) / 3)
    assert [timer.job.compute_median_sum_us(one) for one in summed] == [1100, 550]
    assert count_gpus_per_rank(run.kernels) == 2


def test_ranks_of_two_gpus_each_keep_their_clock():
    ranks = job(trained((4, 4)), trained((4, 4), first=2))
    there = tk.predict(ranks, gpu="h100-sxm")["h100-sxm"]
    assert there.step.step_time_us == pytest.approx(ALONE.step.step_time_us, rel=0.02)
    assert (there.ranks, there.gpus_per_rank, there.gpus, there.rented) == (2, 2, 4, 4)


def test_the_measured_side_counts_one_gpu_too():
    alone, four = (tk.report(trained(works).load()).source for works in ((4,), (4,) * 4))
    assert alone.energy is not None
    assert four.energy is not None
    assert four.energy.joules == pytest.approx(alone.energy.joules, rel=0.02)
    assert (alone.gpus, four.gpus) == (1, 4)


def test_a_lowered_clock_of_the_source_is_each_gpus_own():
    """What a GPU of the trace demands doesn't grow with the number of GPUs beside it."""
    demands = []
    for works in ((4,), (4, 4, 1)):
        run = prepare_run(trained(works).load())
        kernels = run.kernels.select(
            "family", "dtype", time_us=run.kernels["dur_ns"] / 1e3, demand_w=None, runs_as="dtype"
        ).with_columns(demand_w=run.kernels["dur_ns"] * 0.0 + 800)
        timer, demand_ns = run.program.step_timer, to_demands_ns(kernels, ALONE.target.gpu.gpu)
        demands.append(average_by_gpu(timer.job, timer.sum_by_gpu(demand_ns)))
    assert demands[1] == pytest.approx([demands[0][0], demands[0][0], demands[0][0] / 4])


def test_dollars_are_for_all_gpus():
    alone, four = (
        tk.report(tk.predict(trained(works).load(), gpu="h100-sxm", price="2")).decision for works in ((4,), (4,) * 4)
    )
    assert alone is not None
    assert four is not None
    assert (four.targets[0].gpus, four.targets[0].rented, four.targets[0].hourly) == (4, 4, 8.0)
    assert four.targets[0].dollars.likely == pytest.approx(4 * alone.targets[0].dollars.likely, rel=0.02)  # type: ignore[union-attr]
    assert four.targets[0].joules.likely == pytest.approx(4 * alone.targets[0].joules.likely, rel=0.02)  # type: ignore[union-attr]


def test_rank_by_rank_gives_the_same(tmp_path):
    for rank in (0, 1):
        builder = trained((4, 1), first=2 * rank)
        builder.metadata["distributedInfo"] = {"rank": rank, "world_size": 2}
        builder.save(tmp_path / f"rank{rank}.json.gz")
    whole = tk.predict(tk.load(tmp_path), gpu="h100-sxm")["h100-sxm"]
    fleet = predict_fleet([tmp_path], PredictRequest(gpu="h100-sxm"), InProcessEngine())
    there = fleet.targets[0]
    assert there.step.step_time_us == pytest.approx(whole.step.step_time_us, rel=1e-6)
    assert there.step.mean_us == pytest.approx(whole.step.mean_us, rel=1e-6)
    assert there.energy.joules == pytest.approx(whole.energy.joules, rel=1e-3)
    assert (there.gpus, there.rented, fleet.source.gpus) == (4, 4, 4)
    repeated = find_message(fleet.warnings, "warning-repeated").values["warning"]
    assert isinstance(repeated, Message)
    assert repeated.code == "several-gpus-in-process"
