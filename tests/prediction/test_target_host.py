"""Predictions for the same host, the usual one, and one of a known speed."""

import json
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
from tracekit.prediction import predictor, settings, target_host
from tracekit.prediction.target_host import HostTimes, compute_host_times, parse_host
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import TraceBuilder
from tracekit.trace import Trace

H100 = load_gpu("h100-sxm")
USUAL = UsualHost(speed=2.0, low=1.0, high=4.0, machines=3)


@pytest.fixture(autouse=True)
def hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace's host is the reference, the usual one twice as fast."""
    monkeypatch.setattr(run_module, "measure_host_speed", lambda ranks: HostSpeed(1.0, 20, 0.1))
    for module in (predictor, target_host):
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


def test_factors_are_those_of_the_hosts_speeds() -> None:
    source = HostSpeed(1.0, 20, 0.1)
    assert compute_host_times("unknown", source, H100) == HostTimes(1.0, 0.25, 1.15)
    assert compute_host_times("unknown", HostSpeed(3.0, 20, 0.1), H100) == HostTimes(1.0, 0.75, 3.0)
    assert compute_host_times("same", None, H100) == HostTimes(1.0, 1 / 1.15, 1.15)
    assert compute_host_times("typical", source, H100) == HostTimes(0.5, 0.25, 1.0)
    assert compute_host_times(4.0, source, H100) == HostTimes(0.25, 0.25 / 1.15, 0.25 * 1.15)


def test_where_neither_host_is_known_both_may_be_any_usual_one() -> None:
    """Each end is a factor 2 from the likely one, and two independent ones add up as squares."""
    found = compute_host_times("unknown", None, H100)
    assert (found.likely, found.low, found.high) == pytest.approx((1.0, 2 ** -(2**0.5), 2 ** (2**0.5)))


def test_the_interval_of_an_unknown_host_holds_those_of_each_beside_other_software() -> None:
    source, a100 = HostSpeed(1.0, 20, 0.1), load_gpu("a100-sxm-80gb")
    for gpu in (H100, load_gpu("mi300x")):
        found, same, usual = (compute_host_times(host, source, gpu, a100) for host in ("unknown", "same", "typical"))
        assert (found.low, found.high) == (min(same.low, usual.low), max(same.high, usual.high))


@pytest.mark.parametrize("host", ["typical", 1.5])
def test_another_host_needs_the_speed_of_the_traces(host: str | float) -> None:
    with pytest.raises(RequestError, check=has_code("host-unknown")):
        compute_host_times(host, None, H100)


def test_a_step_that_the_cpu_paces_is_as_fast_as_its_host() -> None:
    run = build(kernel_us=5)
    same = predict(run, ["h100-sxm"])["h100-sxm"]
    twice = predict(run, ["h100-sxm"], host=2.0)["h100-sxm"]
    assert twice.step.step_time_us == pytest.approx(same.step.step_time_us / 2, rel=0.05)
    assert twice.low_us < twice.step.step_time_us < twice.high_us
    assert twice.usual_host is None
    note = find_message(twice.notes, "host-changed")
    assert note.values["time_ratio"] == 0.5
    assert "host-time-kept" not in list_codes(twice.notes)


def test_both_hosts_are_answered_where_nothing_was_asked() -> None:
    run = build(kernel_us=5)
    found = predict(run, ["h100-sxm"])["h100-sxm"]
    assert found.usual_host is not None
    assert found.same_host is not None
    assert found.usual_host.step_time_us == pytest.approx(found.step.step_time_us / 2, rel=0.05)
    assert (found.usual_host.speed_ratio, found.usual_host.machines) == (0.5, 3)
    for host, there in (("typical", found.usual_host), ("same", found.same_host)):
        asked = predict(run, ["h100-sxm"], host=host)["h100-sxm"]
        assert (asked.low_us, asked.step.step_time_us, asked.high_us) == pytest.approx(
            (there.low_us, there.step_time_us, there.high_us)
        )
        assert (asked.usual_host, asked.same_host) == (None, None)


def test_the_interval_holds_both_hosts() -> None:
    """The CPU paces the step: 0.25 to 1.15 times as long, by the usual hosts' low end and the same host's high one."""
    found = predict(build(kernel_us=5), ["h100-sxm"])["h100-sxm"]
    step_us = found.step.step_time_us
    assert found.low_us == found.usual_host.low_us == pytest.approx(step_us / 4, rel=0.1)
    assert found.high_us == found.same_host.high_us == pytest.approx(1.15 * step_us, rel=0.05)


def test_a_step_that_the_gpu_paces_has_one_answer() -> None:
    found = predict(build(kernel_us=2000), ["t4"])["t4"]
    assert found.usual_host is None
    assert "usual-host" not in list_codes(found.notes)


def test_an_edit_of_the_hosts_speed_has_one_answer_too() -> None:
    assert predict(build(5), ["h100-sxm"], what_if=["host-speed(2)"])["h100-sxm"].usual_host is None


def test_the_traces_own_gpu_keeps_its_host_unless_another_is_asked_for() -> None:
    run = build(kernel_us=5)
    own = predict(run, ["a100-sxm-80gb"])["a100-sxm-80gb"]
    assert own.usual_host is None
    assert own.step.step_time_us == pytest.approx(run.measured_step.step_time_us)
    faster = predict(run, ["a100-sxm-80gb"], host=2.0)["a100-sxm-80gb"]
    assert faster.step.step_time_us < 0.6 * own.step.step_time_us


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
    kept = tk.predict(trace, gpu="h100-sxm")["h100-sxm"]
    assert (found.low_us, found.step.step_time_us, found.high_us) == (
        told.low_us,
        told.step.step_time_us,
        told.high_us,
    )
    assert found.step.step_time_us == pytest.approx(kept.step.step_time_us / 2, rel=0.05)


def test_a_trace_that_does_not_tell_its_host_is_refused(tmp_path: Path) -> None:
    there = save_trace(tmp_path / "there.json")
    with pytest.raises(RequestError, check=has_code("host-from-unknown")):
        tk.predict(build_trace(5), gpu="h100-sxm", host_from=str(there))


def test_a_host_is_given_once(tmp_path: Path) -> None:
    with pytest.raises(RequestError, check=has_code("host-given-twice")):
        tk.predict(build_trace(5), gpu="h100-sxm", host=1.2, host_from="there.json")


def test_a_sweep_is_for_the_host_that_was_asked_for() -> None:
    trace = build_trace(kernel_us=5)
    kept, twice = (tk.sweep(trace, gpu="h100-sxm", world_size=1, **host) for host in ({}, {"host": 2}))
    took = [one.table["step_time_us"][0] for one in (kept, twice)]
    assert took[1] == pytest.approx(took[0] / 2, rel=0.05)
    assert all("host-changed" in list_codes(one.notes) for one in twice.best.values())


def test_all_forms_say_both(tmp_path: Path) -> None:
    path = TraceBuilder()
    for number in range(10):
        path.op("aten::mul", 100.0 * number, 20, dims=[[1024], [1024]], types=["float", "float"])
        path.kernel("elementwise", 100.0 * number + 15, 5, launch=100.0 * number + 5)
    trace = path.call("cudaDeviceSynchronize", 930, 100).save(tmp_path / "trace.json")
    runner = CliRunner()
    shown = runner.invoke(app, ["predict", str(trace), "--gpu", "h100-sxm", "-q"])
    assert shown.exit_code == 0
    assert "usual CPU" in shown.output
    for suffix, said in ((".md", "With a CPU usual beside h100-sxm"), (".html", "usual CPU")):
        page = tmp_path / f"report{suffix}"
        assert runner.invoke(app, ["predict", str(trace), "--gpu", "h100-sxm", "-q", "-o", str(page)]).exit_code == 0
        assert said in page.read_text()
    plain = json.loads(runner.invoke(app, ["predict", str(trace), "--gpu", "h100-sxm", "--json", "-q"]).stdout)
    assert plain["targets"][0]["with_usual_host"]["machines"] == 3
