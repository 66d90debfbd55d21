"""Inference rules: listed with their evidence, and switched off one by one; times in microseconds."""

from functools import cache
from pathlib import Path

import pytest

import tracekit as tk
from tests.jobs import job
from tracekit.errors import RuleError
from tracekit.graph.edges import EdgeKind
from tracekit.inference_rules import INFERENCE_RULES, select_rules
from tracekit.messages.requests import RULES_OFF
from tracekit.rules import Rule, RuleNames
from tracekit.run import MeasuredRun, prepare_run
from tracekit.testing import A100, TraceBuilder
from tracekit.trace import Trace

NAMES = [rule.name for rule in INFERENCE_RULES]
SAMPLE = Path(__file__).parents[1] / "sample_traces" / "synthetic_transformer_train.json.gz"
NOTIFY = "void deep_ep::internode::notify_dispatch<false, 8>(int const*, int*, int, int const*)"
LARGE = {"grid": [100_000, 1, 1], "block": [256, 1, 1]}
SMALL = {"grid": [64, 1, 1], "block": [256, 1, 1]}


@cache
def load_sample() -> Trace:
    return tk.load(SAMPLE)


def early_start() -> TraceBuilder:
    """A kernel that starts 170 before the one before it on its stream ends, and outlasts it by 6."""
    builder = TraceBuilder(A100 | {"computeMajor": 9}).step(1, 0, 300).kernel("gemm", 10, 190, launch=0)
    return builder.kernel("norm", 30, 176, launch=10, call="cudaLaunchKernelExC")


def polled() -> TraceBuilder:
    """A thread that goes on when a kernel whose result it polls for has ended, 990 after its launch."""
    builder = TraceBuilder().step(1, 0, 1200).kernel(NOTIFY, 14, 1020, launch=10).op("aten::empty", 1000, 30)
    return builder.kernel("dispatch", 1024, 100, launch=1020, stream=9)


def crowded() -> TraceBuilder:
    """A kernel that starts when the last wave of a large one on another stream begins, though launched long before."""
    builder = TraceBuilder().step(1, 0, 1200).kernel("first", 4, 2, launch=0, **SMALL)
    builder.kernel("second", 14, 2, launch=10, stream=9, **SMALL).kernel("big", 104, 1000, launch=100, **LARGE)
    return builder.kernel("small", 1099, 10, launch=200, stream=9, **SMALL)


def updated() -> TraceBuilder:
    """Two steps that only the optimizer's updates mark."""
    builder = TraceBuilder()
    for start in (0, 100):
        builder.kernel("k", start + 20, 10, launch=start + 10)
        builder.annotation("Optimizer.step#Adam.step", start + 70, 10).kernel("u", start + 75, 5, launch=start + 72)
    return builder


def measure(builder: TraceBuilder, *without: str) -> MeasuredRun:
    return prepare_run(builder.load(), without_rules=without)


def test_rules_have_names_and_evidence() -> None:
    assert len(set(NAMES)) == len(NAMES) > 25
    assert all(rule.summary.endswith(".") and rule.evidence.endswith(".") for rule in INFERENCE_RULES)


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(RuleError) as refused:
        select_rules(["launch-queue", "launch-cue"])
    assert refused.value.code == "rule-unknown"


@pytest.mark.parametrize("name", NAMES)
def test_each_rule_can_be_off(name: str) -> None:
    run = prepare_run(load_sample(), without_rules=[name])
    assert run.self_replay.error_pct == pytest.approx(0, abs=1)
    assert run.provenance.assumptions == (RULES_OFF(rules=[name]),)


def test_all_rules_are_on_by_default() -> None:
    assert prepare_run(load_sample()).provenance.assumptions == ()


def test_every_rule_is_asked_whether_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = set()

    def note(rule: Rule, without: RuleNames) -> bool:
        asked.add(rule.name)
        return rule.name not in without

    monkeypatch.setattr(Rule, "is_on", note)
    prepare_run(job(updated(), updated()))
    prepare_run(TraceBuilder().kernel("k", 20, 10, launch=10).load())  # without any mark of steps
    twice = TraceBuilder().step(1, 0, 50).kernel("k", 20, 10, launch=10)
    prepare_run(twice.step(1, 100, 50).kernel("k", 120, 10, launch=110).load())
    reduced = [TraceBuilder().step(1, 0, 100).kernel("ncclDevKernel_AllReduce", 20, 50, launch=10) for _ in range(2)]
    prepare_run(job(*reduced))
    assert asked == set(NAMES)


def test_without_dependent_launch_the_early_start_is_work() -> None:
    times = [
        (run.kernels["dur_ns"] / 1e3).to_list()
        for run in (measure(early_start()), measure(early_start(), "dependent-launch"))
    ]
    assert times == [[190, 6], [190, 176]]


def test_without_polled_kernels_the_pause_is_work_of_the_host() -> None:
    waits = [run.graph.waits.derived_ns.sum() for run in (measure(polled()), measure(polled(), "polled-kernels"))]
    assert waits == [985_000, 0]


def test_without_occupancy_no_kernel_waits_for_room() -> None:
    counts = [
        int((run.graph.kind == EdgeKind.OCCUPIED).sum())
        for run in (measure(crowded()), measure(crowded(), "occupancy"))
    ]
    assert counts == [1, 0]


def test_without_optimizer_steps_the_trace_is_one_step() -> None:
    assert [run.steps.height for run in (measure(updated()), measure(updated(), "optimizer-steps"))] == [2, 1]


def test_the_answer_says_which_rules_were_off() -> None:
    predictions = tk.predict(load_sample(), gpu="h100-sxm", without_rule=["tf32", "occupancy"])
    assert "occupancy, tf32" in " ".join(map(str, tk.report(predictions).warnings))
