"""Holds recorded samples against what tracekit makes of them: python scripts/validate_samples.py FOLDER.

FOLDER is what record_samples.py wrote on one GPU. Two Markdown tables for docs/accuracy.md: each sample's step without
the profiler, with it, and replayed without its waits; and what an edit of one sample predicts for the sample that was
recorded with that change made.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import tracekit as tk
from tracekit.replay.edit import edit
from tracekit.replay.run import Run, prepare
from tracekit.replay.whatif import step_time_us

# Sample, what is done to it, and the sample that was recorded so.
WHAT_IFS = (
    ("gpt2_train", ("compile()", "fuse(family=elementwise|norm|copy|reduction)"), "gpt2_train_compiled"),
    ("llama_decode", ("no-sync()", "cuda-graph()"), "llama_decode_graph"),
)


def main() -> None:
    """Prints both tables."""
    folder = Path(sys.argv[1])
    runs = {
        path.name.split("_", 1)[1].removesuffix(".json.gz"): _run(path) for path in sorted(folder.glob("*.json.gz"))
    }
    if not runs:
        sys.exit(f"validate_samples: no traces in {folder}")
    for table in (steps(runs), what_ifs(runs)):
        sys.stdout.write("\n".join(table) + "\n\n")


def steps(runs: dict[str, Run]) -> Iterator[str]:
    """How the profiler and the replay change each sample's step."""
    yield "| sample | without the profiler | with it | replayed | replay's error |"
    yield "|---|---|---|---|---|"
    for name, run in runs.items():
        without = run.trace.unprofiled_step_us
        alone = "–" if without is None else f"{without / 1e3:.3g} ms"
        measured, replayed = run.measured.step_time_us, run.replay.step_time_us
        error = f"{run.replay.error_pct:+.2f} %"
        yield f"| {name} | {alone} | {measured / 1e3:.3g} ms | {replayed / 1e3:.3g} ms | {error} |"


def what_ifs(runs: dict[str, Run]) -> Iterator[str]:
    """What edits predict, and what the edited program took."""
    yield "| sample | edits | step before | predicted | measured | error |"
    yield "|---|---|---|---|---|---|"
    for name, edits, changed in WHAT_IFS:
        if name in runs and changed in runs:
            before, measured = runs[name].measured.step_time_us, runs[changed].measured.step_time_us
            predicted = step_time_us(edit(runs[name], edits).run)
            times = " | ".join(f"{time / 1e3:.3g} ms" for time in (before, predicted, measured))
            yield f"| {name} | `{'` `'.join(edits)}` | {times} | {100 * (predicted / measured - 1):+.1f} % |"


def _run(path: Path) -> Run:
    return prepare(tk.load(str(path)))


if __name__ == "__main__":
    main()
