"""Predictions for the same host, the usual one, and one of a known speed."""

import json
import math
from dataclasses import astuple
from pathlib import Path

import pytest
from typer.testing import CliRunner

import tracekit as tk
from predictors import load_gpu
from tests.asking import predict
from tests.codes import find_message, has_code, list_codes
from tracekit import run as run_module
from tracekit.cli.app import app
from tracekit.errors import RequestError
from tracekit.hosts import HostSpeed, UsualHost
from tracekit.hosts.usual import HostMixture
from tracekit.prediction import notes, settings, target_host
from tracekit.prediction.target_host import HostTimes, compute_host_times, parse_host
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

H100 = load_gpu("h100-sxm")
USUAL = UsualHost.from_mixture(HostMixture((1.0, 1.0, 1.0), (math.log(2.0),) * 3, (0.18,) * 3))


@pytest.fixture(autouse=True)
def hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace's host is the reference, the usual one twice as fast."""
    monkeypatch.setattr(run_module, "measure_host_speed", lambda ranks: HostSpeed(1.0, 20, 0.1))
    for module in (notes, target_host):
        monkeypatch.setattr(module, "find_usual_host", lambda gpu: USUAL)


def build(kernel_us: float) -> MeasuredRun:
    """Prepare the run of :func:`build_trace`."""
    return prepare_run(build_trace(kernel_us))


def build_trace(kernel_us: float) -> Trace:
    """Ten launches, 100 us of the CPU apart, of a kernel; the CPU waits for the last one."""
    builder = TraceBuilder()
    for number in range(10):
        start = 100.0 * number
        builder.op("aten::mul", start, 20, dims=[[1024], [1024]], types=["float", "float"])
        builder.kernel("elementwise", max(start + 15, number * kernel_us + 15), kernel_us, launch=start + 5)
    end = max(1000.0, 10 * kernel_us)
    return builder.call("cudaDeviceSynchronize", 930, end - 900).load()


@pytest.mark.parametrize(
    ("host", "parsed"),
    [("unknown", "unknown"), ("same", "same"), (" Typical ", "typical"), ("0.5", 0.5), (2, 2.0), (100, 100.0)],
)
def test_a_host_is_same_typical_or_a_speed(host: str | float, parsed: str | float) -> None:
    assert parse_host(host) == parsed


@pytest.mark.parametrize("host", ["", "fast", "0", "-1", "0.009", "100.1", "nan", "inf", "٢", "/etc/passwd"])
def test_anything_else_is_refused(host: str) -> None:
    with pytest.raises(RequestError, check=has_code("host-malformed")):
        parse_host(host)


def test_a_known_hosts_factor_is_the_ratio_of_speeds_to_the_three_quarters() -> None:
    source, reach = HostSpeed(1.0, 20, 0.1), math.exp(1.645 * 0.093)
    assert compute_host_times("same", None, H100) == HostTimes(1.0, 1 / 1.15, 1.15)
    found = compute_host_times(4.0, source, H100)
    assert astuple(found) == pytest.approx([4**-0.75 * one for one in (1, 1 / reach, reach)], rel=1e-3)
    assert compute_host_times(1.0, source, H100).likely == pytest.approx(1)


def test_usual_hosts_are_as_fast_as_the_known_ones() -> None:
    """Twice as fast, 1.5 to 2.7 times in their interval; what is left of the ratio adds to that in squares."""
    source, reach = HostSpeed(1.0, 20, 0.1), math.exp(1.645 * math.hypot(0.75 * 0.18, 0.093))
    found = compute_host_times("typical", source, H100)
    assert astuple(found) == pytest.approx([2**-0.75 * one for one in (1, 1 / reach, reach)], rel=1e-3)


def test_an_unknown_host_is_a_usual_one_or_like_the_traces() -> None:
    for speed in (0.5, 8.0):
        source = HostSpeed(speed, 20, 0.1)
        typical, unknown = (compute_host_times(host, source, H100) for host in ("typical", "unknown"))
        nearer = min if speed > 2 else max
        assert nearer(unknown.likely, typical.likely) == unknown.likely
        assert 0.8 < unknown.likely / typical.likely < 1.25
        assert unknown.low < unknown.likely < unknown.high


def test_where_neither_host_is_known_both_may_be_any_usual_one() -> None:
    """Each end is a factor exp(1.645 x 0.18) from the likely one, and two independent ones add up as squares."""
    found, reach = compute_host_times("unknown", None, H100), math.exp(0.75 * 1.645 * 0.18 * 2**0.5)
    assert astuple(found) == pytest.approx((1.0, 1 / reach, reach), rel=1e-3)


def test_another_vendors_software_widens_the_interval() -> None:
    source, mi300x = HostSpeed(1.0, 20, 0.1), load_gpu("mi300x")
    near, far = (compute_host_times("typical", source, H100, traced_on) for traced_on in (H100, mi300x))
    assert (near.likely, far.likely) == pytest.approx((2**-0.75, 2**-0.4), rel=1e-3)
    reach = math.hypot(1.645 * math.hypot(0.4 * 0.18, 0.093), math.log(2.3))
    assert math.log(far.high / far.likely) == pytest.approx(reach, rel=1e-3)


@pytest.mark.parametrize("host", ["typical", 1.5])
def test_another_host_needs_the_speed_of_the_traces(host: str | float) -> None:
    with pytest.raises(RequestError, check=has_code("host-unknown")):
        compute_host_times(host, None, H100)


def test_a_step_that_the_cpu_paces_is_as_fast_as_its_host() -> None:
    run = build(kernel_us=5)
    same = predict(run, ["h100-sxm"], host="same")["h100-sxm"]
    twice = predict(run, ["h100-sxm"], host=2.0)["h100-sxm"]
    assert twice.step.step_time_us == pytest.approx(same.step.step_time_us * 2**-0.75, rel=0.05)
    assert twice.low_us < twice.step.step_time_us < twice.high_us
    assert twice.same_host is None
    note = find_message(twice.notes, "host-changed")
    assert note.values["time_ratio"] == pytest.approx(2**-0.75)
    assert "host-time-kept" not in list_codes(twice.notes)


def test_the_step_is_that_of_the_hosts_that_are_usual_where_nothing_was_asked() -> None:
    run = build(kernel_us=5)
    found = predict(run, ["h100-sxm"])["h100-sxm"]
    times = compute_host_times("unknown", run.host_speed, H100)
    same = predict(run, ["h100-sxm"], host="same")["h100-sxm"]
    took_us = same.step.step_time_us
    assert found.step.step_time_us == pytest.approx(times.likely * took_us, rel=0.05)
    assert found.low_us == pytest.approx(times.low * took_us, rel=0.1)
    assert found.high_us == pytest.approx(times.high * took_us, rel=0.05)
    assert found.same_host is not None
    assert same.same_host is None
    there = found.same_host
    assert (there.low_us, there.step_time_us, there.high_us) == pytest.approx((same.low_us, took_us, same.high_us))
    note = find_message(found.notes, "host-open")
    assert (note.values["machines"], note.values["speed_ratio"]) == (3, pytest.approx(0.5))


def test_a_step_that_the_gpu_paces_hangs_on_no_host() -> None:
    found = predict(build(kernel_us=2000), ["t4"])["t4"]
    assert found.same_host is None
    assert "host-open" not in list_codes(found.notes)


def test_what_sets_the_pace_hangs_on_the_host() -> None:
    """The CPU takes 100 us a launch, or 47 to 82 of the interval; the kernel 60 on any host."""
    predicted = tk.predict(build_trace(kernel_us=60), gpu="a100-sxm-40gb")
    found = [one for one in tk.report(predicted).findings if one.bottleneck]
    assert [one.message.code for one in found] == ["cpu-or-gpu-is-bottleneck"]


def test_an_edit_of_the_hosts_speed_has_one_answer_too() -> None:
    assert predict(build(5), ["h100-sxm"], what_if=["host-speed(2)"])["h100-sxm"].same_host is None


def test_the_traces_own_gpu_keeps_its_host_unless_another_is_asked_for() -> None:
    run = build(kernel_us=5)
    own = predict(run, ["a100-sxm-80gb"])["a100-sxm-80gb"]
    assert own.same_host is None
    assert own.step.step_time_us == pytest.approx(run.measured_step.step_time_us)
    faster = predict(run, ["a100-sxm-80gb"], host=2.0)["a100-sxm-80gb"]
    assert faster.step.step_time_us < 0.65 * own.step.step_time_us


def save_trace(path: Path) -> Path:
    """Write a trace of too few ops to tell its host."""
    builder = TraceBuilder().op("aten::mul", 0, 20).kernel("elementwise", 15, 5, launch=5)
    return builder.save(path)


def test_the_cpu_of_another_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is twice as fast as the trace's."""
    there, trace = save_trace(tmp_path / "there.json"), build_trace(kernel_us=5)
    monkeypatch.setattr(settings, "measure_host_speed", lambda ranks: HostSpeed(2.0, 20, 0.1))
    found = tk.predict(trace, gpu="h100-sxm", host_from=str(there))["h100-sxm"]
    told = tk.predict(trace, gpu="h100-sxm", host=2)["h100-sxm"]
    kept = tk.predict(trace, gpu="h100-sxm", host="same")["h100-sxm"]
    assert (found.low_us, found.step.step_time_us, found.high_us) == (
        told.low_us,
        told.step.step_time_us,
        told.high_us,
    )
    assert found.step.step_time_us == pytest.approx(kept.step.step_time_us * 2**-0.75, rel=0.05)


def test_a_trace_that_does_not_tell_its_host_is_refused(tmp_path: Path) -> None:
    there = save_trace(tmp_path / "there.json")
    with pytest.raises(RequestError, check=has_code("host-from-unknown")):
        tk.predict(build_trace(5), gpu="h100-sxm", host_from=str(there))


def test_a_host_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(RequestError, check=has_code("host-given-twice")):
        tk.predict(build_trace(5), gpu="h100-sxm", host=1.2, host_from="there.json")


def test_a_sweep_is_for_the_host_that_was_asked_for() -> None:
    trace = build_trace(kernel_us=5)
    kept, twice = (tk.sweep(trace, gpu="h100-sxm", world_size=1, **host) for host in ({"host": "same"}, {"host": 2}))
    took = [one.table["step_time_us"][0] for one in (kept, twice)]
    assert took[1] == pytest.approx(took[0] * 2**-0.75, rel=0.05)
    assert all("host-changed" in list_codes(one.notes) for one in twice.best.values())


def test_all_forms_say_what_narrows_the_interval(tmp_path: Path) -> None:
    path = TraceBuilder()
    for number in range(10):
        path.op("aten::mul", 100.0 * number, 20, dims=[[1024], [1024]], types=["float", "float"])
        path.kernel("elementwise", 100.0 * number + 15, 5, launch=100.0 * number + 5)
    trace = path.call("cudaDeviceSynchronize", 930, 100).save(tmp_path / "trace.json")
    runner = CliRunner()
    shown = runner.invoke(app, ["predict", str(trace), "--gpu", "h100-sxm", "-q"])
    assert shown.exit_code == 0
    assert "With a CPU like yours: 0.92 to 1.22 times as" in " ".join(shown.output.split())
    for suffix, said in ((".md", "With a CPU like yours"), (".html", "CPU like yours")):
        page = tmp_path / f"report{suffix}"
        assert runner.invoke(app, ["predict", str(trace), "--gpu", "h100-sxm", "-q", "-o", str(page)]).exit_code == 0
        assert said in page.read_text()
    (plain,) = json.loads(runner.invoke(app, ["predict", str(trace), "--gpu", "h100-sxm", "--json", "-q"]).stdout)[
        "targets"
    ]
    assert plain["with_same_host"]["step_time_us"] > plain["step_time_us"]
