"""The error of the wait-free self-replay of every trace in a folder, and of jobs' ranks together, as Markdown.

python -m tests.validation.studies.replay /path/to/traces
"""

import argparse
import re
from itertools import groupby
from pathlib import Path

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.run import MeasuredRun, prepare_run

RANK = re.compile(r"_rank\d+")
COLUMNS = (
    "trace",
    "steps",
    "activities",
    "streams",
    "step ms",
    "error %",
    "span error %",
    "derived wait %",
    "kept wait %",
    "hidden in graphs %",
    "waits recorded",
    "waits inferred",
    "dropped",
)


def row(name: str, run: MeasuredRun) -> str:
    """One line of the table."""
    step = run.measured_step.step_time_us
    cells = (
        name,
        run.chosen_steps["step"].n_unique(),
        run.kernels.height,
        run.kernels.select(*({"rank"} & {*run.kernels.columns}), "device", "stream").n_unique(),
        f"{step / 1e3:.1f}",
        f"{run.self_replay.error_pct:+.2f}",
        f"{100 * (run.self_replay.span_us / run.measured_step.span_us - 1):+.2f}",
        f"{100 * run.self_replay.derived_wait_us / step:.0f}",
        f"{100 * run.self_replay.kept_wait_us / step:.0f}",
        f"{run.graph.hidden_ns / 1e1 / step / run.steps.height:.0f}",
        run.graph.recorded_waits,
        run.graph.inferred_waits,
        run.graph.dropped,
    )
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    print(f"| {' | '.join(COLUMNS)} |\n|---|{'--:|' * (len(COLUMNS) - 1)}")
    files = sorted(parser.parse_args().folder.glob("*.json.gz"))
    for path in files:
        try:
            print(row(path.name.removesuffix(".json.gz"), prepare_run(tk.load(path))), flush=True)
        except TracekitError:
            continue
    ranks = [path for path in files if RANK.search(path.name) and ".et." not in path.name]
    for job, paths in groupby(ranks, key=lambda path: RANK.split(path.name)[0]):
        together = list(paths)
        if len(together) > 1:
            print(row(f"{job}, {len(together)} ranks together", prepare_run(tk.load(together))), flush=True)


if __name__ == "__main__":
    main()
