"""Ablation of the inference rules: what each is worth on real traces.

Each trace is measured with all rules, and once without each rule. A rule of the graph is judged by the replay of the
measured kernels against the measured step; a rule on kernels' work by the share of kernel time whose work is known.
"""

import sys
from dataclasses import dataclass
from pathlib import Path

import tracekit as tk
from tests.validation.study import find_real_traces, format_table
from tracekit.errors import TracekitError
from tracekit.inference_rules import INFERENCE_RULES
from tracekit.prediction import predict
from tracekit.run import MeasuredRun, prepare_run
from tracekit.trace import Trace

MAX_BYTES = 6_000_000
"""Larger trace files are left out: the study takes minutes, not hours."""
TARGET = "h100-sxm"
STAND_IN_SOURCE = "a100-sxm-80gb"
"""GPU that a trace counts as recorded on if it doesn't name its own."""
MIN_CHANGE_PCT = 0.1
"""Smaller changes of the predicted step aren't listed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Results that rules change.

    Attributes:
        replay_error_pct: Replay of the measured kernels against the measured step.
        modelled_pct: Percentage of GPU time that is modelled.
        predicted_us: Step on the target.
    """

    replay_error_pct: float
    modelled_pct: float
    predicted_us: float


def run() -> str:
    """Return the table: one row per rule."""
    traces = load_traces(find_real_traces())
    usual = {name: answer(trace) for name, trace in traces.items()}
    rows = []
    for rule in INFERENCE_RULES:
        print(f"  without {rule.name}", file=sys.stderr)
        without = {name: answer(trace, rule.name) for name, trace in traces.items()}
        rows.append(summarize_rule(rule.name, usual, without))
    headings = (
        "without the rule", "traces changed", "largest change of the prediction", "replay error there", "with the rule",
        "modelled there", "with the rule", "trace",
    )  # fmt: skip
    return (
        f"# What each inference rule is worth\n\n{len(traces)} real traces, predicted for an {TARGET} with all rules "
        f"and without each. A trace counts as changed if its prediction changes by {MIN_CHANGE_PCT} % or more.\n\n"
        + format_table(headings, rows)
    )


def load_traces(folder: Path) -> dict[str, Trace]:
    """Load the traces and jobs of a folder; files of one job are loaded together."""
    jobs: dict[str, list[Path]] = {}
    for path in sorted(folder.glob("*.json.gz")):
        if ".et." not in path.name:
            jobs.setdefault(path.name.partition("_rank")[0], []).append(path)
    loaded = {}
    for name, paths in jobs.items():
        if sum(path.stat().st_size for path in paths) < MAX_BYTES:
            try:
                loaded[name] = tk.load(paths)
            except TracekitError as error:
                print(f"  {name} left out: {error}", file=sys.stderr)
    return loaded


def answer(trace: Trace, *without: str) -> Answer:
    """Predict a trace without some rules."""
    measured = measure(trace, without)
    target = predict(measured, [TARGET]).targets[0]
    return Answer(measured.self_replay.error_pct, target.coverage.modelled, target.step.step_time_us)


def measure(trace: Trace, without: tuple[str, ...]) -> MeasuredRun:
    """Measure a trace without some rules, on a stand-in GPU if it doesn't name its own."""
    measured = prepare_run(trace, without_rules=without)
    return measured if measured.gpu else prepare_run(trace, source_gpu=STAND_IN_SOURCE, without_rules=without)


def summarize_rule(rule: str, usual: dict[str, Answer], without: dict[str, Answer]) -> tuple[str, ...]:
    """Return the row of one rule: the trace that it changes most."""
    change = {name: 100 * (without[name].predicted_us / usual[name].predicted_us - 1) for name in usual}
    changed = [name for name in usual if abs(change[name]) >= MIN_CHANGE_PCT]
    if not changed:
        return (f"`{rule}`", "0", "", "", "", "", "", "")
    most = max(changed, key=lambda name: abs(change[name]))
    return (
        f"`{rule}`",
        str(len(changed)),
        f"{change[most]:+.1f} %",
        f"{without[most].replay_error_pct:+.2f} %",
        f"{usual[most].replay_error_pct:+.2f} %",
        f"{without[most].modelled_pct:.0f} %",
        f"{usual[most].modelled_pct:.0f} %",
        most,
    )
