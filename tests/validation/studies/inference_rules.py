"""What is each inference rule worth on real traces?

An ablation: each trace is measured with all rules, and once without each. The replay of the measured kernels on their
own GPU should take as long as the measured step. Where a rule explains a wait by a kernel, the replay is right without
it too, since the wait is then kept as measured; what is wrong is the step on a faster GPU.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import mean

import polars as pl

import tracekit as tk
from tests.asking import predict
from tests.validation.study import REAL_TRACES, find_input, format_table
from tracekit.inference_rules import INFERENCE_RULES
from tracekit.run import MeasuredRun, prepare_run
from tracekit.trace import Trace
from tracekit.workload.step_kinds import compute_time_share

INPUTS = (REAL_TRACES,)
TRACES = (
    "a100_dlrm_control", "a100_graphs_nccl_6streams", "b200_eager", "h100_bert_small_inference",
    "h100_qwen15_05b_inference", "h100_vgg13_train_bs512", "h100_vit_inference", "h800_deepseek_train",
    "hta_critical_path_alexnet", "hta_critical_path_cuda_event_sync_multi_stream", "mi210_gpu_only",
    "mi300x_ddp_resnet18", "mi300x_qwen15_05b_inference", "mi300x_resnet_act_checkpoint", "param_linear",
    "param_resnet", "sglang_qwen3_8b_decode", "sglang_qwen3_8b_prefill_decode", "v100_dlrm_test", "v100_dlrm_train",
    "v100_resnet50_train_6steps_2021", "v100_sxm2_resnet50_train", "vllm_decode_full_graph",
    "vllm_piecewise_graph_execution",
)  # fmt: skip
"""Jobs of the folder of real traces: training and serving, eager and CUDA graphs, NVIDIA and AMD, one or several ranks.

Together they take minutes. Not all traces that the rules' evidence names are among them."""
SAMPLES = Path(__file__).parents[3] / "sample_traces"
TARGET = "h100-sxm"
STAND_IN_SOURCE = "a100-sxm-80gb"
"""GPU that a trace counts as recorded on if it doesn't name its own."""
SPEEDUP = 2.0
"""Of the kernels on the faster GPU, which needs no model of their times."""
MIN_CHANGE_PCT = 0.1
"""Smaller changes don't count."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Results that rules change.

    Attributes:
        replay_error_pct: Replay of the measured kernels against the measured step.
        faster_us: Step on a GPU whose kernels take half as long.
        known_pct: Percentage of GPU time in kernels of known work.
        kernels: The kernel table.
        predicted_us: Step on the target with the kernel times predicted.
    """

    replay_error_pct: float
    faster_us: float
    known_pct: float
    kernels: pl.DataFrame
    predicted_us: float

    def measure_changes(self, usual: "Answer") -> tuple[float, float, float, float]:
        """Return the changes from the answer with all rules: percentages, and percentage points of error and share."""
        return (
            self.replay_error_pct - usual.replay_error_pct,
            100 * (self.faster_us / usual.faster_us - 1),
            self.known_pct - usual.known_pct,
            100 * (self.predicted_us / usual.predicted_us - 1),
        )


def run() -> str:
    """Return the table: one row per rule."""
    traces = load_traces(find_input(REAL_TRACES))
    usual = {name: answer(trace) for name, trace in traces.items()}
    rows = []
    for rule in INFERENCE_RULES:
        print(f"  without {rule.name}", file=sys.stderr)
        without = {name: answer(trace, (rule.name,), usual[name]) for name, trace in traces.items()}
        rows.append(summarize_rule(rule.name, usual, without))
    headings = (
        "without", "traces changed", "mean replay error", "replay error", "(with the rule)", "step at twice the speed",
        "known work", "(with the rule)", f"step on {TARGET}", "trace",
    )  # fmt: skip
    return (
        f"# What each inference rule is worth\n\n{len(traces)} traces, with all rules and without each. With all rules "
        f"the replay of the measured kernels is off by {describe_mean_error(usual)} in the mean. A trace counts as "
        f"changed if one of its figures changes by {MIN_CHANGE_PCT} % or more. Behind the mean over all traces stand "
        "the figures of the trace that changes most: the replay against the measured step, how the step changes on a "
        "GPU whose kernels take half as long, the share of GPU time in kernels of known work, and how the prediction "
        "changes where the rule changes the kernel table.\n\n"
        + format_table(headings, rows)
        + f"\nTraces: {', '.join(traces)}.\n"
    )


def load_traces(folder: Path) -> dict[str, Trace]:
    """Load the samples and the traces of the folder; files of one job are loaded together."""
    jobs = {path.name.removesuffix(".json.gz"): [path] for path in sorted(SAMPLES.glob("*.json.gz"))}
    for name in TRACES:
        whole = folder / f"{name}.json.gz"
        ranks = [path for path in sorted(folder.glob(f"{name}_rank*.json.gz")) if ".et." not in path.name]
        jobs[name] = [whole] if whole.exists() else ranks
    return {name: tk.load(paths) for name, paths in jobs.items()}


def answer(trace: Trace, without: tuple[str, ...] = (), usual: Answer | None = None) -> Answer:
    """Measure a trace without some rules, and predict it unless its kernels are as usual."""
    measured = measure(trace, without)
    same = usual is not None and measured.kernels.equals(usual.kernels)
    return Answer(
        measured.self_replay.error_pct,
        measured.program.replay_step(measured.program.kernel_us / SPEEDUP).step_time_us,
        compute_time_share(measured.kernels, "dur_ns", pl.col("work_from").is_not_null()),
        measured.kernels,
        usual.predicted_us if usual and same else predict(measured, [TARGET]).targets[0].step.step_time_us,
    )


def measure(trace: Trace, without: tuple[str, ...]) -> MeasuredRun:
    """Measure a trace without some rules, on a stand-in GPU if it doesn't name its own."""
    measured = prepare_run(trace, without_rules=without)
    return measured if measured.gpu else prepare_run(trace, source_gpu=STAND_IN_SOURCE, without_rules=without)


def describe_mean_error(answers: dict[str, Answer]) -> str:
    """Return the mean absolute replay error."""
    return f"{mean(abs(one.replay_error_pct) for one in answers.values()):.2f} %"


def summarize_rule(rule: str, usual: dict[str, Answer], without: dict[str, Answer]) -> tuple[str, ...]:
    """Return the row of one rule: over all traces, and for the one that it changes most."""
    changes = {name: without[name].measure_changes(usual[name]) for name in usual}
    largest = {name: max(abs(change) for change in of_trace) for name, of_trace in changes.items()}
    changed = sum(change >= MIN_CHANGE_PCT for change in largest.values())
    if not changed:
        return (f"`{rule}`", "0", describe_mean_error(without), *[""] * 7)
    most = max(largest, key=largest.__getitem__)
    _, faster, _, predicted = changes[most]
    return (
        f"`{rule}`",
        str(changed),
        describe_mean_error(without),
        f"{without[most].replay_error_pct:+.2f} %",
        f"{usual[most].replay_error_pct:+.2f} %",
        f"{faster:+.1f} %",
        f"{without[most].known_pct:.0f} %",
        f"{usual[most].known_pct:.0f} %",
        f"{predicted:+.1f} %",
        most,
    )
