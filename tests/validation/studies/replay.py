"""Does the replay of a trace's measured kernels give its measured step?

Of every real trace. Waits are derived from the dependencies, not kept; the ranks of a job are replayed together, too.
"""

import re
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import tracekit as tk
from tests.validation.study import REAL_TRACES, find_input, format_table
from tracekit.errors import TracekitError
from tracekit.run import MeasuredRun, prepare_run

INPUTS = (REAL_TRACES,)
RANK = re.compile(r"_rank\d+")
HEADINGS = (
    "trace", "steps", "activities", "streams", "step ms", "error %", "span error %", "derived wait %", "kept wait %",
    "hidden in graphs %", "waits recorded", "waits inferred", "dropped",
)  # fmt: skip


def run() -> str:
    """Return a row for each trace, and one for each job of several ranks."""
    files = [path for path in sorted(find_input(REAL_TRACES).glob("*.json.gz")) if ".et." not in path.name]
    return f"# Replay of the measured kernels\n\n{format_table(HEADINGS, list_rows(files))}"


def list_rows(files: list[Path]) -> Iterator[tuple[str, ...]]:
    """Yield the rows; files that aren't traces with GPU activity are left out."""
    for path in files:
        try:
            run = prepare_run(tk.load(path))
        except TracekitError:
            continue
        yield format_run(path.name.removesuffix(".json.gz"), run)
    ranks = [path for path in files if RANK.search(path.name)]
    for job, paths in groupby(ranks, key=lambda path: RANK.split(path.name)[0]):
        together = list(paths)
        if len(together) > 1:
            yield format_run(f"{job}, {len(together)} ranks together", prepare_run(tk.load(together)))


def format_run(name: str, run: MeasuredRun) -> tuple[str, ...]:
    """Return the cells of one run."""
    step_us, timer = run.measured_step.step_time_us, run.program.tables.step_timer
    streams = run.kernels.select(*({"rank"} & {*run.kernels.columns}), "device", "stream").n_unique()
    return (
        *(name, str(run.chosen_steps["step"].n_unique()), str(run.kernels.height), str(streams)),
        f"{step_us / 1e3:.1f}",
        f"{run.self_replay.error_pct:+.2f}",
        f"{100 * (run.self_replay.span_us / run.measured_step.span_us - 1):+.2f}",
        f"{100 * run.self_replay.derived_wait_us / step_us:.0f}",
        f"{100 * run.self_replay.kept_wait_us / step_us:.0f}",
        f"{100 * timer.compute_median_sum_us(run.graph.waits.hidden_ns) / step_us:.0f}",
        *map(str, (run.graph.recorded_waits, run.graph.inferred_waits, run.graph.dropped)),
    )
