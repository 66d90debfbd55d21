"""Holds recorded samples against what tracekit makes of them.

    python -m tests.validation.studies.samples FOLDER [--bench RESULT.json] [--traces FOLDER]

FOLDER is what __main__.py wrote on one GPU, FOLDER/slow what it wrote beside a busy loop on the same core. The
tables are Markdown, for tests/validation/notes/accuracy.md: each sample's step without the profiler, with it, and
replayed without its waits; what a change predicts for the sample that was recorded with it; the samples' time on the
GPU from shapes alone, without and with the GPU's calibration; and public traces predicted for this GPU, against the
same jobs run here.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl

import tracekit as tk
from predictors import Gpu
from predictors import predict as predict_kernels
from tracekit import calibration
from tracekit.prediction import LayoutRequest, predict
from tracekit.run import MeasuredRun, prepare_run
from tracekit.whatif import compute_step_time_us
from tracekit.whatif.requested import apply_requested_edits

# Sample, what is done to it, and the sample that was recorded so.
WHAT_IFS = (
    ("gpt2_train", ("compile()", "fuse(family=elementwise|norm|copy|reduction)"), "gpt2_train_compiled"),
    ("gpt2_train_reading", ("no-sync(aten::item)",), "gpt2_train"),
    ("llama_decode", ("no-sync()", "cuda-graph()"), "llama_decode_graph"),
)
BATCHES = (("gpt2_train", 2.0, "gpt2_train_batch16"),)
# What half a core leaves of a host's speed.
SLOWED = "host-speed(0.5)"

Runs = dict[str, MeasuredRun]


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bench", type=Path, help="what `tracekit calibrate --bench` measured on this GPU")
    parser.add_argument("--traces", type=Path, help="the public traces whose jobs were recorded here")
    args = parser.parse_args()
    runs, slow = read(args.folder), read(args.folder / "slow")
    if not runs:
        sys.exit(f"validate_samples: no traces in {args.folder}")
    tables = [steps(runs), what_ifs(runs, slow)]
    if args.bench:
        tables.append(calibrated(runs, args.bench))
    if args.traces:
        tables.append(elsewhere(runs, args.traces))
    for table in tables:
        sys.stdout.write("\n".join(table) + "\n\n")


def read(folder: Path) -> Runs:
    """The samples in a folder by their workload."""
    paths = sorted(folder.glob("*.json.gz"))
    return {path.name.split("_", 1)[1].removesuffix(".json.gz"): prepare_run(tk.load(path)) for path in paths}


def steps(runs: Runs) -> Iterator[str]:
    """How the profiler and the replay change each sample's step."""
    yield "| sample | without the profiler | with it | replayed | replay's error |"
    yield "|---|---|---|---|---|"
    for name, run in runs.items():
        without = run.trace.unprofiled_step_us
        alone = "–" if without is None else f"{without / 1e3:.3g} ms"
        measured, replayed = run.measured_step.step_time_us, run.self_replay.step_time_us
        error = f"{run.self_replay.error_pct:+.2f} %"
        yield f"| {name} | {alone} | {measured / 1e3:.3g} ms | {replayed / 1e3:.3g} ms | {error} |"


def what_ifs(runs: Runs, slow: Runs) -> Iterator[str]:
    """What a change predicts, and what the changed program took."""
    yield "| sample | change | step before | predicted | measured | error |"
    yield "|---|---|---|---|---|---|"
    for name, edits, changed in WHAT_IFS:
        if name in runs and changed in runs:
            predicted = compute_step_time_us(apply_requested_edits(runs[name], edits).run)
            edited = " ".join(f"`{one}`" for one in edits).replace("|", "\\|")
            yield _changed(name, edited, runs[name], predicted, runs[changed])
    for name, run in slow.items():
        if name in runs:
            yield _changed(
                name,
                f"`{SLOWED}`",
                runs[name],
                compute_step_time_us(apply_requested_edits(runs[name], [SLOWED]).run),
                run,
            )
    for name, factor, changed in BATCHES:
        if name in runs and changed in runs:
            slug = _gpu(runs[name]).slug
            predicted = predict(runs[name], [slug], change=LayoutRequest(batch=factor))[slug].step.step_time_us
            yield _changed(name, f"`--batch {factor:g}`", runs[name], predicted, runs[changed])


def calibrated(runs: Runs, bench: Path) -> Iterator[str]:
    """The samples' kernels predicted from their shapes, before and after the GPU was calibrated."""
    kept, gpu = calibration.from_bench(bench)
    yield "| sample | GPU time with known work | from the datasheet | error | calibrated | error |"
    yield "|---|---|---|---|---|---|"
    for name, run in runs.items():
        kernels = run.kernels.filter(pl.col("work_from").is_not_null() & (pl.col("kind") == "kernel"))
        kernels = kernels.filter(predict_kernels(kernels, gpu)["time_us"].is_not_null())
        measured = kernels["dur_ns"].sum() / 1e3
        tables = ({}, dict(calibration.build_tables([kept], gpu)))
        sums = [float(predict_kernels(kernels, gpu, calibrations=table)["time_us"].sum()) for table in tables]
        cells = " | ".join(f"{time / 1e3:.3g} ms | {100 * (time / measured - 1):+.1f} %" for time in sums)
        yield f"| {name} | {measured / 1e3:.3g} ms | {cells} |"


def elsewhere(runs: Runs, traces: Path) -> Iterator[str]:
    """Public traces predicted for this GPU, and the same jobs run on it; their hosts differ."""
    yield "| trace | step, predicted (90 % interval) | measured | GPU busy, predicted | measured | error |"
    yield "|---|---|---|---|---|---|"
    for name, run in runs.items():
        for path in sorted(traces.glob(f"{name}.json*")):
            slug = _gpu(run).slug
            prediction = predict(prepare_run(tk.load(path)), [slug])[slug]
            low, step, high = (us / 1e3 for us in (prediction.low_us, prediction.step.step_time_us, prediction.high_us))
            busy, measured = prediction.step.kernel_time_us / 1e3, run.measured_step.kernel_time_us / 1e3
            yield (
                f"| {name} | {step:.3g} ms ({low:.3g}–{high:.3g}) | {run.measured_step.step_time_us / 1e3:.3g} ms | "
                f"{busy:.3g} ms | {measured:.3g} ms | {100 * (busy / measured - 1):+.1f} % |"
            )


def _changed(name: str, change: str, before: MeasuredRun, predicted_us: float, changed: MeasuredRun) -> str:
    measured_us = changed.measured_step.step_time_us
    times = " | ".join(f"{us / 1e3:.3g} ms" for us in (before.measured_step.step_time_us, predicted_us, measured_us))
    return f"| {name} | {change} | {times} | {100 * (predicted_us / measured_us - 1):+.1f} % |"


def _gpu(run: MeasuredRun) -> Gpu:
    if run.gpu is None:
        sys.exit("validate_samples: a sample doesn't name its GPU")
    return run.gpu


if __name__ == "__main__":
    main()
