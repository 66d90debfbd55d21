"""The predicted step as a trace, read by tracekit and by Inductor's profile-guided estimator; times in microseconds."""

import json

import pytest

import tracekit as tk
from tests.asking import predict
from tests.codes import has_code
from tracekit.errors import OutputError
from tracekit.export.kineto import render_predicted_trace
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


def read_events(prediction, **of):
    """Return the exported events that have these values."""
    events = json.loads(render_predicted_trace(prediction, compress=False))["traceEvents"]
    return [event for event in events if of.items() <= event.items()]


def predict_for(trace):
    return predict(prepare_run(trace), ["h100-sxm"])["h100-sxm"]


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
    events = read_events(prediction)
    assert {event["name"] for event in events} == {'my"op\\', "cudaLaunchKernel", 'k<"x">', "ac2g", "ProfilerStep#0"}
    assert all(None not in event.get("args", {}).values() for event in events)


def test_it_is_of_one_target():
    run = prepare_run(three_steps().load())
    with pytest.raises(OutputError, check=has_code("trace-of-one-target-only")):
        answers.export(run, ExportRequest(gpu=["h100-sxm", "l40s"]), ExportFormat.KINETO)


def test_each_kernel_has_an_arrow_from_its_launch(predicted):
    prediction, _ = predicted
    calls, kernels, begins, ends = (
        {event.get("id", event.get("args", {}).get("correlation")): event for event in read_events(prediction, **of)}
        for of in ({"cat": "cuda_runtime"}, {"cat": "kernel"}, {"ph": "s"}, {"ph": "f", "bp": "e"})
    )
    assert kernels.keys() == begins.keys() == ends.keys()
    assert len(kernels) == 6
    for number, kernel in kernels.items():
        assert all(begins[number][key] == calls[number][key] for key in ("pid", "tid", "ts"))
        assert all(ends[number][key] == kernel[key] for key in ("pid", "tid", "ts"))
        assert calls[number]["args"]["External id"] == kernel["args"]["External id"]


def test_a_graph_has_one_arrow_that_begins_and_one_that_ends_for_each_kernel():
    builder = TraceBuilder().kernel("a", 20, 10, launch=5, call="cudaGraphLaunch")
    builder.event("kernel", "b", 31, 10, 7, {"device": 0, "stream": 7, "correlation": 1}, pid=0)
    arrows = read_events(predict_for(builder.load()), cat="ac2g")
    assert [arrow["ph"] for arrow in arrows] == ["s", "f", "f"]


# HIP counts this call's grid in threads: 80 blocks of 256.
def test_a_grid_keeps_its_axes():
    builder = TraceBuilder().kernel("a", 20, 10, launch=5, grid=[40, 2, 1], block=[32, 4, 1])
    builder.op("x", 30, 20).event(
        "cuda_runtime", "hipExtModuleLaunchKernel", 35, 5, 1,
        {"correlation": 9, "grid": [20480, 1, 1], "block": [256, 1, 1]},
    ).event("kernel", "b", 45, 10, 7, {"device": 0, "stream": 7, "correlation": 9}, pid=0)  # fmt: skip
    first, second = (event["args"] for event in read_events(predict_for(builder.load()), cat="kernel"))
    assert (first["grid"], first["block"]) == ([40, 2, 1], [32, 4, 1])
    assert (second["grid"], second["block"]) == ([80, 1, 1], [256, 1, 1])


@pytest.mark.parametrize("types", [["long int", "unsigned char"], ["struct c10::Half", "Scalar"]])
def test_types_and_values_are_written_as_recorded(types):
    builder = TraceBuilder().op("aten::x", 0, 20, dims=[[8], [8]], types=types, concrete=["", "a b"])
    (op,) = read_events(predict_for(builder.kernel("k", 30, 10, launch=5).load()), cat="cpu_op")
    assert (op["args"]["Input type"], op["args"]["Concrete Inputs"]) == (types, ["", "a b"])


@pytest.mark.parametrize(
    ("noted", "written"),
    [
        ({"backend": "nccl", "rank": 1, "world_size": 4, "pg_count": 2},
         {"backend": "nccl", "rank": 1, "world_size": 4}),
        ({"rank": 0, "world_size": 1}, {"rank": 0, "world_size": 1}),
        (None, None),
    ],
)  # fmt: skip
def test_the_rank_is_written(noted, written):
    builder = three_steps()
    builder.metadata |= {"distributedInfo": noted} if noted else {}
    head = json.loads(render_predicted_trace(predict_for(builder.load()), compress=False))
    assert head.get("distributedInfo") == written


def test_ranks_are_read_under_any_names(tmp_path):
    paths = []
    for rank, name in enumerate(("first", "second")):
        builder = three_steps()
        builder.metadata["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": 2}
        paths.append(tmp_path / f"{name}.json")
        paths[-1].write_bytes(render_predicted_trace(predict_for(builder.load()), compress=False))
    assert [rank.rank for rank in tk.load(paths).ranks] == [0, 1]


# The GPU is busy with unrecorded work until 6000; the step of 2 x 1000 begins there.
def test_a_mark_lasts_as_long_as_its_step(tmp_path):
    builder = TraceBuilder().step(1, 0, 100)
    for place in (0, 1):
        builder.kernel("ampere_sgemm_64x64", 6000 + 1000 * place, 1000, launch=10 + 10 * place)
    prediction = predict_for(builder.load())
    (mark,) = read_events(prediction, cat="user_annotation")
    kernels = read_events(prediction, cat="kernel")
    assert mark["dur"] == pytest.approx(prediction.step.step_time_us, rel=0.01)
    assert mark["ts"] <= kernels[0]["ts"]
    assert mark["ts"] + mark["dur"] == pytest.approx(kernels[1]["ts"] + kernels[1]["dur"])
    path = tmp_path / "predicted.json"
    path.write_bytes(render_predicted_trace(prediction, compress=False))
    assert prepare_run(tk.load(path)).measured_step.step_time_us == pytest.approx(
        prediction.step.step_time_us, rel=0.01
    )


# The GPU lags behind the CPU: the first mark ends where the second begins.
def test_marks_do_not_overlap(tmp_path):
    builder = TraceBuilder()
    for number in range(3):
        builder.step(number, 50 * number, 40).kernel("k", 20 + 300 * number, 300, launch=50 * number + 5)
    first, second = read_events(predict_for(builder.load()), cat="user_annotation")
    assert first["ts"] + first["dur"] == second["ts"]
