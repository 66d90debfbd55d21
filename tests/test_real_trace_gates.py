"""What holds for any trace on any target: parts add up, more of a GPU is never slower, what is written reads back."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

import tracekit as tk
from predictors.gpu_names import GPU_FILES
from tests.asking import predict
from tests.conftest import VARIABLE, list_real_traces
from tracekit.export.kineto import render_predicted_trace
from tracekit.reporting import Report, build_report
from tracekit.run import MeasuredRun, prepare_run

UNFIT = ("hta_cpu_only.json.gz", "hta_df_index_resolver_54mb.json.gz")
"""One has no GPU, one takes long and is like others."""
NAMES = [path.name for path in list_real_traces() if path.name not in UNFIT]
TARGETS = ("l4", "h100-sxm", "mi300x")
SUMS = {"rel": 1e-6, "abs": 1e-3}
"""Times are whole nanoseconds."""

pytestmark = [pytest.mark.heavy, pytest.mark.skipif(not NAMES, reason=f"{VARIABLE} is not set")]


@pytest.fixture(params=NAMES or ["none"], scope="module")
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def run(name: str, real_traces: Path) -> MeasuredRun:
    return prepare_run(tk.load(real_traces / name))


@pytest.fixture(scope="module")
def report(run: MeasuredRun) -> Report:
    return build_report(run, predict(run, TARGETS).targets)


def test_parts_add_up_to_the_step(report: Report) -> None:
    source = report.source
    assert source.kernel_time_us + source.idle_us == pytest.approx(source.step_time_us, **SUMS)
    assert sum(part.time_us for part in report.parts) == pytest.approx(source.step_time_us, **SUMS)
    assert sum(one.time_us for one in report.idle) == pytest.approx(source.idle_us + source.waiting_us, **SUMS)
    for bar in report.bars:
        assert sum(time_us for _, time_us in bar.parts) == pytest.approx(bar.step_time_us, **SUMS)
    for on in {use.on for use in report.peak_use}:
        used = [use for use in report.peak_use if use.on == on]
        assert sum(use.share for use in used) == pytest.approx(100)
        assert min(use.time_us for use in used) >= 0


def test_groups_of_kernels_hold_all_of_them(report: Report) -> None:
    whole_us = sum(family.time_us for family in report.breakdown)
    assert sum(family.share for family in report.breakdown) == pytest.approx(100)
    if report.phases:
        assert sum(phase.time_us for phase in report.phases) == pytest.approx(whole_us, **SUMS)
    if report.modules:
        assert sum(module.own_us for module in report.modules) <= whole_us * (1 + 1e-6)
    assert all(0 <= module.own_us <= module.time_us * (1 + 1e-6) for module in report.modules)
    known = report.coverage
    assert known.work + known.family + known.unknown == pytest.approx(100)


def test_what_follows_from_times_agrees_with_them(report: Report) -> None:
    assert report.decision is not None
    for target, row in zip(report.targets, report.decision.targets, strict=True):
        assert row.mean_us.low <= row.mean_us.likely <= row.mean_us.high
        assert row.speedup.likely == pytest.approx(target.speedup)
        assert target.speedup == pytest.approx(report.source.step_time_us / target.step.step_time_us)
        assert target.step.idle_us >= -1e-3
        energy = target.energy
        assert energy is not None
        assert energy.joules == pytest.approx(energy.power_w * target.step.step_time_us / 1e6)
        assert energy.low_joules <= energy.joules <= energy.high_joules
        assert energy.low_w <= energy.power_w <= energy.high_w <= energy.limit_w


FIELDS = ("memory.bandwidth_gbps", "compute.boost_clock_mhz", "tensor_tflops", "vector_tflops", "memory.l2_mib")
MAX_KERNELS_SLOWER = 1.02
"""The learned correction of a GPU that nobody measured isn't monotonic: half as many vector TFLOP/s again make what
SDXL runs 1.5 % slower on an L4 without a name."""


def write_better_gpu(folder: Path, slug: str, changed: str, factor: float) -> str:
    """Write a GPU's file anew, with one of its figures, or all of a section, so many times as large."""
    section, lines = "", []
    for line in (GPU_FILES / f"{slug}.toml").read_text().splitlines():
        key, _, value = line.partition(" = ")
        section = key.strip("[]") if key.startswith("[") else section
        if changed in (section, f"{section}.{key}") and re.fullmatch(r"[\d.]+", value):
            line = f"{key} = {float(value) * factor:.10g}"
        if key == "name":
            line = f'name = "{slug}, {changed} x {factor}"'
        lines += [] if key == "aliases" else [line]
    path = folder / f"{slug}-{changed}-{factor}.toml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.mark.parametrize("slug", TARGETS)
def test_more_of_a_gpu_makes_no_kernels_slower(run: MeasuredRun, slug: str, tmp_path: Path) -> None:
    factors = (1.05, 1.5, 2)
    files = [write_better_gpu(tmp_path, slug, field, factor) for field in FIELDS for factor in factors]
    sums = [target.kernels["time_us"].sum() for target in predict(run, files).targets]
    for place in range(0, len(sums), len(factors)):
        for less, more in pairwise(sums[place : place + len(factors)]):
            assert more <= less * MAX_KERNELS_SLOWER, files[place]


MAX_STEP_LONGER = 1.005
"""A step begins when the GPU's earlier work ends: where that gets shorter and the CPU sets the pace, the step gets
longer. By 0.2 % at most in these traces; all steps together don't."""


def measure_steps(run: MeasuredRun, **options: object) -> tuple[float, float]:
    """Return the time of all steps on an H100, and of their kernels."""
    target = predict(run, ["h100-sxm"], **options).targets[0]
    return target.step.span_us, target.kernels["time_us"].sum()


def test_a_higher_limit_of_power_or_clock_is_no_slower(run: MeasuredRun) -> None:
    for option, values in (("power_cap", ("300W", "450W", "600W")), ("clock", ("900MHz", "1300MHz", "1800MHz"))):
        for less, more in pairwise(measure_steps(run, **{option: value}) for value in values):
            assert more[0] <= less[0] * MAX_STEP_LONGER, option
            assert more[1] <= less[1], option


def test_a_faster_host_is_no_slower(run: MeasuredRun) -> None:
    for less, more in pairwise(measure_steps(run, host_speed=speed) for speed in (0.7, 1.0, 1.5)):
        assert more[0] <= less[0] * MAX_STEP_LONGER
        assert more[1] == pytest.approx(less[1], rel=1e-3)  # a busier GPU draws more, and lowers its clock


AHEAD = "mi300x_resnet_act_checkpoint_rank0_of_8.json.gz"
"""Its CPU is ahead of the GPU by more than a step, which the exported steps can't show."""


def test_an_exported_prediction_is_measured_as_it_was_predicted(name: str, run: MeasuredRun, tmp_path: Path) -> None:
    prediction = predict(run, ["h100-sxm"]).targets[0]
    path = tmp_path / "predicted.json"
    path.write_bytes(render_predicted_trace(prediction, compress=False))
    read = prepare_run(tk.load(path))
    assert read.gpu is not None
    assert read.gpu.slug == "h100-sxm"
    assert read.chosen_steps.height == run.chosen_steps.height
    if name != AHEAD:
        assert read.measured_step.span_us == pytest.approx(prediction.step.span_us, rel=0.002)


def test_a_report_reads_back(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report
