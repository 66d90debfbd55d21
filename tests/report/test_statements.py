"""What is said of a trace doesn't contradict itself: of samples always, of real traces where they are.

See tests/conftest.py for where real traces lie.
"""

import os
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import tracekit as tk
from tests.asking import predict
from tests.conftest import SAMPLES, VARIABLE
from tracekit.analysis.idle_causes import IdleCause
from tracekit.doctor import Diagnosis, examine
from tracekit.messages import Severity, Template, doctor_checks, findings, predictions, reports
from tracekit.messages.catalogue import find_templates
from tracekit.messages.predictions import MEMORY_FITS
from tracekit.prediction.note_order import compute_effect_us
from tracekit.render import markdown, terminal
from tracekit.render.facts import sum_owner_shares
from tracekit.render.html import render_page
from tracekit.render.screen import as_text
from tracekit.render.sentences import MOST_NOTES, build_headline, choose_notes, collect_notes, describe_speeds
from tracekit.reporting import build_report
from tracekit.reporting.model import Report
from tracekit.reporting.sections.step import COLLECTIVE
from tracekit.run import MeasuredRun, prepare_run

pytestmark = pytest.mark.heavy

FOLDER = Path(os.environ.get(VARIABLE, ""))
TARGETS = ("h100-sxm", "h200-sxm")
SAMPLE_TRACES = (
    "synthetic_transformer_train.json.gz",
    "synthetic_transformer_inference.json.gz",
    "recorded/h100-sxm_llama_decode_graph.json.gz",
)
REAL_TRACES = (
    "a100_graphs_nccl_6streams_rank0_of_16.json.gz",
    "a100_resnet50_train_rank0_of_2.json.gz",
    "b200_eager_rank0_of_8.json.gz",
    "h100_vgg13_train_bs512.json.gz",
    "h100_vit_inference.json.gz",
    "h800_deepseek_train.json.gz",
    "mi210_gpu_only.json.gz",
    "mi300x_ddp_train_rank*_of_4.json.gz",
    "sglang_qwen3_8b_decode.json.gz",
    "v100_dlrm_train_rank[0-9]_of_8.json.gz",
    "vllm_decode_full_graph.json.gz",
)
NO_FOLDER = pytest.mark.skipif(not FOLDER.name, reason=f"{VARIABLE} is not set")


@dataclass(frozen=True)
class Said:
    """All that is said of a trace."""

    run: MeasuredRun
    report: Report
    diagnosis: Diagnosis


@cache
def read(folder: Path, name: str) -> Said:
    paths = [str(path) for path in sorted(folder.glob(name))]
    trace = tk.load(paths)
    predicted = tk.predict(trace, gpu=TARGETS)
    one = tk.load(paths[:1])
    return Said(predicted.run, build_report(predicted.run, predicted.targets), examine(one, prepare_run(one)))


@pytest.fixture(
    params=[
        *(pytest.param((SAMPLES, name), id=name) for name in SAMPLE_TRACES),
        *(pytest.param((FOLDER, name), id=name, marks=NO_FOLDER) for name in REAL_TRACES),
    ]
)
def said(request: pytest.FixtureRequest) -> Said:
    return read(*request.param)


@pytest.fixture
def report(said: Said) -> Report:
    return said.report


def test_the_parts_add_up_to_the_step(report: Report) -> None:
    step_us = report.source.step_time_us
    assert sum(part.time_us for part in report.parts) == pytest.approx(step_us, rel=1e-3)
    assert sum(share for _, share in sum_owner_shares(report)) == pytest.approx(100, abs=0.1)
    for bar in report.bars:
        assert sum(time_us for _, time_us in bar.parts) == pytest.approx(bar.step_time_us, rel=1e-3)


def test_the_same_share_has_the_same_number_in_each_section(report: Report) -> None:
    source, parts = report.source, {part.name: part for part in report.parts}
    bar = dict(report.bars[0].parts)
    assert sum(row.time_us for row in report.idle) == pytest.approx(source.idle_us + source.waiting_us, abs=1)
    for row in report.idle:
        assert (row.time_us, row.share) == pytest.approx((parts[row.cause].time_us, parts[row.cause].share))
    for family, time_us in bar.items():
        if family not in ("idle", "waiting"):
            assert time_us == pytest.approx(parts[family].time_us)
    # All that runs alone is part of what runs; the medians of both are of different steps.
    alone_us = source.exposed_comm_us - source.waiting_us
    assert bar.get(COLLECTIVE, 0.0) >= 0.97 * alone_us - 1
    for finding in report.findings:
        if finding.bottleneck:
            measured = dict(report.critical.places).get(finding.bottleneck.limit.partition(" or ")[0], 0.0)
            assert finding.bottleneck.share_here == pytest.approx(measured, abs=0.01)


def test_the_critical_path_adds_up(report: Report) -> None:
    assert sum(share for _, share in report.critical.places) == pytest.approx(100, abs=0.1)


def test_the_largest_part_has_a_finding(report: Report) -> None:
    """It is among those that a terminal shows, and the headline of a measured step names it."""
    about = [one for one in report.findings if report.parts[0].name in one.parts]
    assert about
    assert about[0] in report.findings[:6]
    assert about[0].advice
    assert about[0].title in build_headline(replace(report, targets=(), decision=None)).detail


def test_no_finding_saves_more_than_the_step(report: Report) -> None:
    assert all((finding.saves_us or 0.0) <= report.source.step_time_us for finding in report.findings)


def test_what_limits_the_step_agrees_with_how_busy_the_gpu_is(report: Report) -> None:
    """A step that is mostly idle isn't the GPU's, and what nothing explains is nobody's."""
    source, found = report.source, report.speeds
    if source.kernel_time_us < 0.5 * source.step_time_us:
        assert found.gpu_limits_from != 1
    limits = ((found.gpu_floor_us, found.host_limits_from), (found.host_floor_us, found.gpu_limits_from))
    for floor_us, limit in limits:
        if limit is not None:
            assert found.kept_us <= floor_us / 2 + 1
    unexplained = dict(report.critical.places).get("unexplained", 0.0)
    there = {finding.bottleneck.limit for finding in report.findings if finding.bottleneck}
    if unexplained > 50:
        assert "gpu" not in there


def test_time_that_no_speed_changes_is_said(report: Report) -> None:
    codes = {line.code for line in describe_speeds(report)}
    assert ("stays-at-any-speed" in codes) == (report.speeds.kept_us >= 0.05 * report.source.step_time_us)


def test_at_most_three_notes_are_shown_and_none_is_lost(report: Report) -> None:
    chosen = choose_notes(report)
    kinds = {note.code for target in report.targets for note in target.notes}
    assert len(chosen.texts) <= MOST_NOTES
    assert len(chosen.texts) + chosen.omitted >= len(kinds)
    assert len(collect_notes(report)) >= len(kinds)


def test_notes_are_ordered_by_what_they_change(report: Report) -> None:
    for target in report.targets:
        effects = [compute_effect_us(note, target.step.step_time_us) for note in target.notes]
        known = [effect for effect in effects if effect is not None]
        assert known == sorted(known, reverse=True)
        assert all(effect >= 0 for effect in known)


def test_the_interval_holds_what_published_jobs_missed(report: Report) -> None:
    """The note states the step with kernels as much longer."""
    for target in report.targets:
        for note in target.notes:
            if note.code.startswith("target-predicted-too-"):
                assert target.low_us <= float(str(note.values["step_us"])) <= target.high_us


def test_a_target_that_is_better_in_every_figure_is_hardly_slower(said: Said) -> None:
    """An H200 has what an H100 has, and faster memory: the interval allows for another host alone."""
    if said.report.source.gpu == "h100-sxm":
        target = predict(said.run, ["h200-sxm"], host="same")["h200-sxm"]
        assert target.high_us <= 1.17 * said.report.source.step_time_us


def test_findings_advise_nothing_that_the_trace_shows_in_use(said: Said) -> None:
    run, codes = said.run, {finding.code for finding in said.report.findings}
    ops = {name for rank in run.ranks for name in rank.ops["name"].unique()}
    remedies = {
        remedy.code for finding in said.report.findings for remedy in finding.message.values.get("remedies", ())
    }
    if any(name.startswith(("Torch-Compiled Region", "CompiledFunction")) for name in ops):
        assert "torch-compile" not in remedies
        assert "unfused-chains" not in codes
    if run.graph.nodes.is_graph_launch.any():
        assert "cuda-graphs" not in remedies or not any("graph" in cause.cause for cause in said.report.idle)
    left_out = {step.step for step in said.report.steps} - set(run.chosen_steps["step"])
    for finding in said.report.findings:
        if finding.code == "warm-up":
            assert finding.message.values["step"] not in left_out


def test_the_doctors_grade_agrees_with_what_is_kept_or_scaled(said: Said) -> None:
    """A fifth of the step that nothing explains, or of kernels of unknown work, is no good trace."""
    kept = sum(row.share for row in said.report.idle if row.cause in (IdleCause.IN_GRAPH, IdleCause.UNEXPLAINED))
    source = said.report.source
    works = (source.kernel_time_us - source.waiting_us) / source.step_time_us
    unknown = works * (100 - said.report.coverage.work)
    if max(kept, unknown) > 21:
        assert said.diagnosis.grade in ("C", "D")
    for check in said.diagnosis.checks:
        if check.status == "fail" and check.cost_pct:
            assert check.cost_pct >= 15


def test_a_synthetic_trace_is_called_so(report: Report) -> None:
    is_synthetic = "synthetic" in report.source.trace
    assert report.source.is_synthetic == is_synthetic
    assert (report.bars[0].label == "synthetic") == is_synthetic
    assert ("times-synthetic" in [warning.code for warning in report.warnings]) == is_synthetic


CHANGES = {
    *("target-predicted-too-fast", "target-predicted-too-slow", "host-time-kept", "power-capped", "clock-fixed"),
    *("clock-lowered", "inserted-slow-kernels", "replay-inexact", "steps-spread-cost"),
    *("idle-time-split", "idle-time-in-graphs", "idle-time-unexplained"),
    *("replay-error", *(f"{resource}-is-bottleneck" for resource in ("cpu", "communication", "gpu", "latency"))),
    *(f"{resource}-is-bottleneck" for resource in ("cpu-or-gpu", "gpu-or-cpu", "latency-or-gpu")),
    "unexplained-is-bottleneck",
    *("law-offsets", "costs-more", "costs-less", "tied-layouts", "tied-layouts-by-price", "done-more", "done-less"),
}
"""Messages with a percentage of change, or with two on one base, which is named once."""


@pytest.mark.parametrize("area", [findings, predictions, reports, doctor_checks])
def test_every_percentage_names_its_base(area: ModuleType) -> None:
    for template in find_templates(area).values():
        if template.code not in CHANGES:
            assert all(re.match(" of ", rest) for rest in re.findall(r"\{\w+_pct[^}]*\}(?: %)?(.*)", template.text))


@pytest.mark.parametrize("form", ["terminal", "markdown", "page"])
def test_the_rest_of_the_notes_is_one_step_away(form: str) -> None:
    report = read(SAMPLES, SAMPLE_TRACES[0]).report
    (first, *_) = report.targets
    notes = tuple(Template(f"note-{n}", Severity.NOTE, f"Note number {n}.")() for n in range(5))
    five = replace(report, targets=(replace(first, notes=notes),))
    shown = {
        "terminal": lambda: as_text(terminal.render_predicted(five, 1)),
        "markdown": lambda: markdown.render_report(five),
        "page": lambda: render_page(five),
    }[form]()
    assert shown.count("Note number 2.") == 1 + (form == "page")
    assert ("Note number 4." in shown) == (form == "page")
    assert "2 more notes" in shown
    assert "Note number 4." in as_text(terminal.render_predicted(five, 1, all_notes=True))


def test_notes_of_one_kind_on_several_targets_become_one() -> None:
    report = read(SAMPLES, SAMPLE_TRACES[0]).report
    two = tuple(replace(one, notes=(MEMORY_FITS(reason=f"{one.gpu} has room"),)) for one in report.targets)
    chosen = choose_notes(replace(report, targets=two))
    first, other = (one.gpu for one in two)
    assert chosen.texts == [f"{first}: The job fits into memory: {first} has room. Likewise on {other}."]
    assert chosen.omitted == 0
