"""Steps that took otherwise than the median one; times in microseconds."""

import json
import sys

import pytest

from tests.asking import predict
from tests.prediction.test_each_step import STEP, job
from tracekit.cli.app import main
from tracekit.render.html.page import render_page
from tracekit.render.json import dump_prediction
from tracekit.reporting import build_report
from tracekit.reporting.sections import limits, warnings
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder


def said(builder: TraceBuilder, steps: str | None = None) -> str:
    run = prepare_run(builder.load(), steps=steps)
    found = warnings.find_unlike_steps(run, limits.analyze_idle_time(run))
    return str(warnings.build_warning(found)) if found else ""


def test_a_slow_step_is_said_with_its_time_and_cause():
    assert said(job(0, 0, 0, 10_000, 0)) == (
        "1 of 4 steps differ from the median one, 2.23 ms, by more than a factor of 1.3: step 3 took 12.2 ms (the GPU "
        "was idle for 10.0 ms more: the CPU was still working towards the next launch, and no op was recorded). The "
        "step shown is the median one; throughput and what a run takes and costs are of the mean one, 4.73 ms. Choose "
        "others with --steps."
    )


@pytest.mark.parametrize(
    ("longer", "code"),
    [
        ((0, 0, 40_000), "steps-differ-from-mean"),
        ((0, 0, 40_000, 20_000), "steps-differ"),
        ((0, 0, 40_000, 20_000, 60_000), "steps-differ-from-mean"),
        ((0, 0, 0, 20_000, 60_000), "steps-differ-from-mean"),
        ((0, 0, 0, 0, 60_000), "steps-differ"),
    ],
)
def test_a_median_that_no_step_takes_is_said_to_be_a_mean(longer: tuple[float, ...], code: str) -> None:
    """The first step isn't measured; of the others each is so much longer."""
    run = prepare_run(job(*longer).load())
    found = warnings.find_unlike_steps(run, limits.analyze_idle_time(run))
    assert found
    assert warnings.build_warning(found).code == code


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (lambda builder, at: builder.op("aten::to", at, 9000), "towards the next launch, in aten::to)"),
        (lambda builder, at: builder.call("cudaMalloc", at, 9000), "the CPU got or freed memory (cudaMalloc,"),
        (
            lambda builder, at: builder.annotation("enumerate(DataLoader)#_X.__next__", at, 9000),
            "the CPU waited for the next batch of the data loader)",
        ),
    ],
)
def test_the_cause_is_told_as_far_as_the_trace_shows_it(record, told):
    builder = job(0, 0, 0, 10_000, 0)
    record(builder, 3 * STEP + 500)
    assert told in said(builder)


def test_a_step_of_more_work_is_told_by_the_gpu():
    builder, times = TraceBuilder(), [100, 100, 300, 100, 100]
    for number in range(5):
        begin = 1000.0 * number
        builder.kernel("gemm", begin + 10, 2 * times[number], launch=begin + 5)
        builder.call("cudaDeviceSynchronize", begin + 10, 2 * times[number] + 3).step(number, begin, 990)
    assert said(builder) == ""  # all take 1000 from end to end, whatever the GPU does
    builder, now = TraceBuilder(), 0.0
    for number, time in enumerate(times):
        builder.kernel("gemm", now + 10, time, launch=now + 5)
        builder.call("cudaDeviceSynchronize", now + 8, time + 6).step(number, now, time + 20)
        now += time + 20
    assert "step 2 took 320 µs (the GPU worked 200 µs more)" in said(builder)


def test_like_steps_and_the_first_of_the_trace_are_not_mentioned():
    assert said(job(0, 0, 0)) == ""
    assert said(job(5000, 0, 0)) == ""
    assert said(job(0, 0, 600, 0)) == ""
    assert said(job(0, 0, 5000, 0), "2") == ""
    assert "step 2 took 2.93 ms" in said(job(0, 0, 700, 0))


def test_no_more_than_three_are_named_the_farthest_first():
    found = said(job(0, 0, 0, 0, 0, 0, 2000, 0, 3000, 5000, 0, 4000))
    assert "4 of 11 steps differ" in found
    places = [found.index(f"step {number} took") for number in (9, 11, 8)]
    assert places == sorted(places)
    assert "step 6" not in found


def test_every_form_says_it(tmp_path, monkeypatch, capsys):
    trace = job(0, 0, 0, 10_000, 0)
    run, sentence = prepare_run(trace.load()), said(trace)
    assert sentence in map(str, warnings.build_warnings(run, limits.analyze_idle_time(run)))
    report = build_report(run, tuple(predict(run, ["h100-sxm"]).values()))
    assert sentence in [one["text"] for one in json.loads(dump_prediction(report))["warnings"]]
    assert sentence in render_page(report)
    path = trace.save(tmp_path / "trace.json")
    monkeypatch.setattr(sys, "argv", ["tracekit", "predict", str(path), "--gpu", "h100-sxm"])
    with pytest.raises(SystemExit):
        main()
    assert sentence in " ".join(" ".join(capsys.readouterr()).split())
