"""The predicted step as a trace, read by tracekit and by Inductor's profile-guided estimator; times in microseconds."""

import json

import pytest

import tracekit as tk
from tests.codes import has_code
from tracekit.errors import OutputError
from tracekit.export.kineto import render_predicted_trace
from tracekit.prediction import predict
from tracekit.request import ExportFormat, ExportRequest, answers
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

SHAPES = [[4096, 4096], [4096, 4096]]
STRIDES = [[4096, 1], [1, 4096]]
GATHER = {
    "Collective name": "_allgather_base", "dtype": "BFloat16", "In msg nelems": 1000, "Out msg nelems": 8000,
    "Group size": 8, "Process Group Name": "1", "Process Group Ranks": "[0, 1, 2, 3, 4, 5, 6, 7]",
}  # fmt: skip


def three_steps() -> TraceBuilder:
    """Steps of 1000: two GEMMs of 300 by one op, an all-gather of 50, and a wait for them."""
    builder = TraceBuilder()
    for number in range(3):
        at = 1000 * number
        builder.step(number, at, 1000)
        builder.op("aten::mm", at + 1, 40, dims=SHAPES, types=["c10::BFloat16"] * 2, **{"Input Strides": STRIDES})
        for place in (0, 1):
            start = at + 20 + 301 * place
            builder.kernel("ampere_bf16_s16816gemm_bf16_128x128", start, 300, launch=at + 5 + 10 * place)
        builder.op("record_param_comms", at + 45, 10)
        builder.kernel("ncclDevKernel_AllGather_RING_LL(args)", at + 630, 50, launch=at + 47, **GATHER)
        builder.call("cudaDeviceSynchronize", at + 60, 630)
    return builder


@pytest.fixture
def predicted(tmp_path):
    """The prediction of the steps on an H100, and its trace."""
    prediction = predict(prepare_run(three_steps().load()), ["h100-sxm"])["h100-sxm"]
    path = tmp_path / "predicted.json"
    path.write_bytes(render_predicted_trace(prediction, compress=False))
    return prediction, path


def test_tracekit_measures_in_it_what_was_predicted(predicted):
    prediction, path = predicted
    run = prepare_run(tk.load(path))
    assert run.gpu.slug == "h100-sxm"
    assert run.steps["step"].to_list() == [1, 2]
    assert run.measured_step.step_time_us == pytest.approx(prediction.step.step_time_us, rel=0.01)
    there, here = run.kernels, prediction.program.kernels.filter(prediction.program.is_in_chosen_steps)
    for column in ("name", "op", "input_dims", "input_strides", "family", "m", "collective", "bytes", "group_ranks"):
        assert there[column].to_list() == here[column].to_list()


def test_inductors_estimator_gets_the_predicted_times(predicted):
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("torch._inductor.fx_passes.profile_guided_estimation")
    prediction, path = predicted
    estimates = module.ProfileGuidedEstimator(str(path)).profile
    run = prediction.program
    times = prediction.kernels.with_columns(run.kernels["family", "step"]).filter(run.is_in_chosen_steps)
    gemms_us = times.filter(family="gemm")["time_us"].sum() / 2
    shapes, strides = (tuple(map(tuple, lists)) for lists in (SHAPES, STRIDES))
    assert estimates.lookup_op("aten::mm", shapes, strides, torch.bfloat16) == pytest.approx(gemms_us / 1e3, rel=1e-3)
    gather_ms, source = estimates.lookup_collective("all_gather_into_tensor", tuple(range(8)), 8000, "BFloat16")
    assert gather_ms == pytest.approx(times.filter(family="collective")["time_us"][0] / 1e3, rel=1e-3)
    assert source == "profile"
    assert len(estimates.collectives) == 2


def test_names_with_quotes_are_escaped_and_what_is_not_known_is_left_out(tmp_path):
    builder = TraceBuilder().op('my"op\\', 0, 20).kernel('k<"x">', 30, 10, launch=5)
    prediction = predict(prepare_run(builder.load()), ["h100-sxm"])["h100-sxm"]
    events = json.loads(render_predicted_trace(prediction, compress=False))["traceEvents"]
    assert {event["name"] for event in events} == {'my"op\\', "cudaLaunchKernel", 'k<"x">'}
    assert all(None not in event["args"].values() for event in events)


def test_it_is_of_one_target():
    run = prepare_run(three_steps().load())
    with pytest.raises(OutputError, check=has_code("trace-of-one-target-only")):
        answers.export(run, ExportRequest(gpu=["h100-sxm", "l40s"]), ExportFormat.KINETO)
