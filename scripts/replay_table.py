"""The error of the wait-free self-replay of every trace in a folder, as a Markdown table.

python -P scripts/replay_table.py /path/to/traces
"""

import argparse
from pathlib import Path

import tracekit as tk
from tracekit.errors import TracekitError
from tracekit.replay.run import Run, prepare

COLUMNS = (
    "trace",
    "steps",
    "activities",
    "streams",
    "step ms",
    "error %",
    "span error %",
    "derived wait %",
    "hidden in graphs %",
    "waits recorded",
    "waits inferred",
    "dropped",
)


def row(name: str, run: Run) -> str:
    """One line of the table."""
    step = run.measured.step_time_us
    cells = (
        name,
        run.chosen.height,
        run.kernels.height,
        run.kernels.select("device", "stream").n_unique(),
        f"{step / 1e3:.1f}",
        f"{run.replay.error_pct:+.2f}",
        f"{100 * (run.replay.span_us / run.measured.span_us - 1):+.2f}",
        f"{100 * run.replay.derived_wait_us / step:.0f}",
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
    for path in sorted(parser.parse_args().folder.glob("*.json.gz")):
        try:
            print(row(path.name.removesuffix(".json.gz"), prepare(tk.load(path))), flush=True)
        except TracekitError:
            continue


if __name__ == "__main__":
    main()
