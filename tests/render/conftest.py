"""One report for all renderers' tests: the sample with and without predictions."""

from dataclasses import replace

import pytest

import tracekit as tk
from tests.asking import predict
from tests.conftest import SAMPLES
from tracekit.notebook import NotebookReport
from tracekit.prediction.question import DEFAULT_QUESTION
from tracekit.reporting import build_report
from tracekit.reporting.sections.targets import build_decision
from tracekit.run import prepare_run
from tracekit.testing import TraceBuilder

NASTY = "</script><img src=x onerror=alert(1)>|=cmd()"


def decide(report):
    """Return a report whose decision is that of its targets."""
    return replace(
        report, decision=build_decision(report.source, report.targets, DEFAULT_QUESTION, edited=bool(report.what_if))
    )


def repeat_targets(report, count):
    """Return a report on so many targets: its own, again and again, under names of their own."""
    targets = [
        replace(report.targets[i % len(report.targets)], cluster=f"{report.targets[i % len(report.targets)].label}-{i}")
        for i in range(count)
    ]
    here, *bars = report.bars
    bars = [replace(bars[i % len(bars)], label=target.label) for i, target in enumerate(targets)]
    return decide(replace(report, targets=tuple(targets), bars=(here, *bars)))


@pytest.fixture(scope="session")
def report():
    run = prepare_run(tk.load(SAMPLES / "synthetic_transformer_train.json.gz"))
    built = build_report(
        run, predict(run, ["h100-sxm", "mi300x"], host="same").targets, command="tracekit predict x --gpu h100-sxm"
    )
    return NotebookReport.from_report(built)


@pytest.fixture(scope="session")
def nasty():
    """A report whose names attack whatever shows them."""
    builder = TraceBuilder().op(NASTY, 0, 30, dims=[[64, 32], [32, 16]], types=["float", "float"])
    return tk.report(builder.kernel(NASTY, 20, 100, launch=10).load())
