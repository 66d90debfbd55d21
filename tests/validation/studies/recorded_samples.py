"""Do predictions agree with samples that were recorded on a GPU at hand?

The folder is `samples` of an archive of `make on-gpu`: its `slow` holds samples recorded beside a busy loop on the same
core, its `bench.json` the kernels of `tracekit calibrate --bench`. Public traces whose jobs were recorded may be put
into `public`. Tables: each sample's step without the profiler, with it, and replayed without its waits; edits
against the samples recorded so; GPU time from shapes without and with the GPU's calibration; and the public traces
predicted for this GPU against the same jobs run here.
"""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

import tracekit as tk
from predictors import Gpu
from predictors import predict as predict_kernels
from tests.asking import predict
from tests.validation.study import RECORDED_SAMPLES, MissingInputError, find_input, format_table
from tracekit import calibration
from tracekit.run import MeasuredRun, prepare_run
from tracekit.whatif import apply_edits, compute_step_time_us

INPUTS = (RECORDED_SAMPLES,)
WHAT_IFS = (
    ("gpt2_train", ("compile()", "fuse(family=elementwise|norm|copy|reduction)"), "gpt2_train_compiled"),
    ("gpt2_train_reading", ("no-sync(aten::item)",), "gpt2_train"),
    ("llama_decode", ("no-sync()", "cuda-graph()"), "llama_decode_graph"),
)
"""Sample, edits, and the sample that was recorded so."""
BATCHES = (("gpt2_train", 2.0, "gpt2_train_batch16"),)
"""Sample, factor of the batch, and the sample that was recorded so."""
SLOWED = "host-speed(0.5)"
"""What half a core leaves of a host's speed."""

Runs = dict[str, MeasuredRun]


def run() -> str:
    """Return the tables of what the folder holds."""
    folder = find_input(RECORDED_SAMPLES)
    runs = read_samples(folder)
    if not runs:
        raise MissingInputError(f"{folder} holds no traces")
    steps = ("sample", "without the profiler", "with it", "replayed", "replay's error")
    edits = ("sample", "edit", "step before", "predicted", "measured", "error")
    sections = [
        f"# Recorded samples, {get_gpu(next(iter(runs.values()))).slug}\n",
        format_table(steps, list_steps(runs)),
        "## Edits\n",
        format_table(edits, list_edits(runs, read_samples(folder / "slow"))),
    ]
    if (folder / "bench.json").exists():
        headings = ("sample", "GPU time with known work", "from the datasheet", "error", "calibrated", "error")
        sections += ["## Calibration\n", format_table(headings, list_calibrated(runs, folder / "bench.json"))]
    if (folder / "public").exists():
        headings = (
            "trace", "step, predicted (90 % interval)", "measured", "GPU busy, predicted", "measured", "error",
        )  # fmt: skip
        sections += ["## Public traces, for this GPU\n", format_table(headings, list_public(runs, folder / "public"))]
    return "\n".join(sections)


def read_samples(folder: Path) -> Runs:
    """Read the samples of a folder by their workload."""
    paths = sorted(folder.glob("*.json.gz"))
    return {path.name.split("_", 1)[1].removesuffix(".json.gz"): prepare_run(tk.load(path)) for path in paths}


def list_steps(runs: Runs) -> Iterator[tuple[str, ...]]:
    """Yield how the profiler and the replay change each sample's step."""
    for name, run in runs.items():
        unprofiled_us = run.trace.unprofiled_step_us
        without = "–" if unprofiled_us is None else f"{unprofiled_us / 1e3:.3g} ms"
        times = (f"{us / 1e3:.3g} ms" for us in (run.measured_step.step_time_us, run.self_replay.step_time_us))
        yield name, without, *times, f"{run.self_replay.error_pct:+.2f} %"


def list_edits(runs: Runs, slow: Runs) -> Iterator[tuple[str, ...]]:
    """Yield the predicted step of edits, and the step of the changed program."""
    for name, edits, changed in WHAT_IFS:
        if name in runs and changed in runs:
            label = " ".join(f"`{one}`" for one in edits).replace("|", "\\|")
            yield format_edit(name, label, runs[name], predict_edits_us(runs[name], *edits), runs[changed])
    for name, run in slow.items():
        if name in runs:
            yield format_edit(name, f"`{SLOWED}`", runs[name], predict_edits_us(runs[name], SLOWED), run)
    for name, factor, changed in BATCHES:
        if name in runs and changed in runs:
            slug = get_gpu(runs[name]).slug
            predicted_us = predict(runs[name], [slug], batch=factor)[slug].step.step_time_us
            yield format_edit(name, f"`--batch {factor:g}`", runs[name], predicted_us, runs[changed])


def predict_edits_us(run: MeasuredRun, *edits: str) -> float:
    """Predict the step of a run with edits."""
    return compute_step_time_us(apply_edits(run.program, edits).program)


def format_edit(
    name: str, edit: str, before: MeasuredRun, predicted_us: float, changed: MeasuredRun
) -> tuple[str, ...]:
    """Return the cells of one edit."""
    measured_us = changed.measured_step.step_time_us
    times = (f"{us / 1e3:.3g} ms" for us in (before.measured_step.step_time_us, predicted_us, measured_us))
    return name, edit, *times, f"{100 * (predicted_us / measured_us - 1):+.1f} %"


def list_calibrated(runs: Runs, bench: Path) -> Iterator[tuple[str, ...]]:
    """Yield the samples' GPU time from shapes, before and after the GPU was calibrated."""
    kept, gpu = calibration.from_bench(bench)
    for name, run in runs.items():
        kernels = run.kernels.filter(pl.col("work_from").is_not_null() & (pl.col("kind") == "kernel"))
        kernels = kernels.filter(predict_kernels(kernels, gpu)["time_us"].is_not_null())
        measured_us = float(kernels["dur_ns"].sum()) / 1e3
        tables: list[dict[Gpu, pl.DataFrame]] = [{}, dict(calibration.build_tables([kept], gpu))]
        sums = [float(predict_kernels(kernels, gpu, calibrations=table)["time_us"].sum()) for table in tables]
        cells = [(f"{us / 1e3:.3g} ms", f"{100 * (us / measured_us - 1):+.1f} %") for us in sums]
        yield name, f"{measured_us / 1e3:.3g} ms", *cells[0], *cells[1]


def list_public(runs: Runs, traces: Path) -> Iterator[tuple[str, ...]]:
    """Yield public traces predicted for this GPU, and the same jobs run on it; their hosts differ."""
    for name, run in runs.items():
        for path in sorted(traces.glob(f"{name}.json*")):
            slug = get_gpu(run).slug
            prediction = predict(prepare_run(tk.load(path)), [slug])[slug]
            low, step, high = (us / 1e3 for us in (prediction.low_us, prediction.step.step_time_us, prediction.high_us))
            busy, measured = prediction.step.kernel_time_us / 1e3, run.measured_step.kernel_time_us / 1e3
            yield (
                name,
                f"{step:.3g} ms ({low:.3g}–{high:.3g})",
                f"{run.measured_step.step_time_us / 1e3:.3g} ms",
                *(f"{busy:.3g} ms", f"{measured:.3g} ms", f"{100 * (busy / measured - 1):+.1f} %"),
            )


def get_gpu(run: MeasuredRun) -> Gpu:
    """Return the GPU of a sample.

    Raises:
        SystemExit: It doesn't name one.
    """
    if run.gpu is None:
        raise SystemExit("recorded_samples: a sample doesn't name its GPU")
    return run.gpu
