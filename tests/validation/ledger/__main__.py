"""Predictions of the next round of MLPerf Training, frozen by the commit that adds their file, and their scores.

    python -m tests.validation.ledger write tests/validation/ledger/mlperf_training_2026-11-29.csv
    python -m tests.validation.ledger score tests/validation/ledger/mlperf_training_2026-11-29.csv results.csv

``write`` predicts each system's samples per second and never overwrites a file: what is committed stays as it was.
``score`` takes the published results as a CSV with the columns ``benchmark``, ``system`` and ``samples_per_s`` (of a
result in minutes: samples to the target quality, by the reference's convergence points, over the seconds), and prints
the errors and how many results the 90 % intervals hold.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import exp, log
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import polars as pl
from typer.testing import CliRunner

from tests.validation.study import format_table
from tracekit.capturing.torchtitan import FLAVOURS
from tracekit.cli.app import app
from tracekit.prediction.experience import identify_weights
from tracekit.version import __version__

LLAMA_2_70B = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8192, "intermediate_size": 28672,
    "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8, "vocab_size": 32000,
}  # fmt: skip
MODELS = {"llama31_8b": FLAVOURS["llama3"]["8B"](), "llama2_70b_lora": LLAMA_2_70B}
"""Configs of the benchmarks' models: github.com/mlcommons/training, large_language_model_pretraining and
llama2_70b_lora."""
COLUMNS = ("date", "benchmark", "system", "precision", "samples_per_s", "low", "high", "version", "weights", "command")


@dataclass(frozen=True)
class Entry:
    """What is asked for systems that run a benchmark alike.

    Attributes:
        benchmark: Its name in the results.
        precision: Of the products.
        systems: Clusters.
        options: Of ``tracekit predict``, without precision and clusters. What submitters will choose isn't known: these
            are the layouts of earlier rounds on one node.
    """

    benchmark: str
    precision: str
    systems: tuple[str, ...]
    options: str

    @property
    def command(self) -> str:
        """The options of all its systems."""
        clusters = " ".join(f"--cluster {one}" for one in self.systems)
        return f"{self.options} --precision {self.precision} {clusters}"


PRETRAINING = "--train --stack megatron --seq 8192 --batch 2 --dp 8 --zero 1"
FINE_TUNING = "--train --stack megatron --optimizer fused-adamw --lora 16 --seq 8192 --batch 1 --tp 4 --dp 2"
HOPPER, BLACKWELL = ("8xh100-sxm", "8xh200-sxm", "8xmi300x"), ("8xb200", "8xb300")
ENTRIES = (
    Entry("llama31_8b", "fp8", HOPPER, PRETRAINING),
    Entry("llama31_8b", "mxfp8", BLACKWELL, PRETRAINING),
    Entry("llama2_70b_lora", "fp8", HOPPER, FINE_TUNING),
    Entry("llama2_70b_lora", "mxfp8", BLACKWELL, FINE_TUNING),
)
TOKENS = 8192
"""Of a sample of both benchmarks."""


def predict_entry(entry: Entry, date: str) -> Iterator[tuple[object, ...]]:
    """Yield a row for each system.

    Raises:
        RuntimeError: The command fails.
    """
    with TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(MODELS[entry.benchmark]))
        done = CliRunner().invoke(
            app, ["predict", str(config), *entry.command.split(), "--no-scoreboard", "--json", "-q"]
        )
        if done.exit_code:
            raise RuntimeError(f"{entry.command}: {done.exception}")
        for target in json.loads(done.stdout)["targets"]:
            samples = target["batch"]["size"] / TOKENS
            rates = [1e6 * samples / target[end] for end in ("step_time_us", "high_us", "low_us")]
            own = (entry.precision, *(float(f"{rate:.4g}") for rate in rates), __version__, identify_weights())
            yield (date, entry.benchmark, target["cluster"], *own, f"tracekit predict config.json {entry.command}")


def write_ledger(path: Path) -> None:
    """Predict all entries and write them to a new file.

    Raises:
        FileExistsError: There is one already.
    """
    date = datetime.now(UTC).date().isoformat()
    rows = [row for entry in ENTRIES for row in predict_entry(entry, date)]
    with path.open("x") as file:
        file.write(pl.DataFrame(rows, schema=COLUMNS, orient="row").write_csv())


def score_ledger(predicted: pl.DataFrame, results: pl.DataFrame) -> str:
    """Score the predictions that have results: the error of each, their median, and how many lie inside.

    Args:
        predicted: The ledger.
        results: ``benchmark``, ``system`` and ``samples_per_s``.
    """
    keys = ("benchmark", "system")
    measured = results.select(*keys, measured=pl.col("samples_per_s").cast(pl.Float64))
    both = predicted.join(measured, on=keys, how="inner", maintain_order="left")
    rows = both.select(*keys, "samples_per_s", "low", "high", "measured").rows()
    errors = [log(likely / found) for *_, likely, _, _, found in rows]
    inside = [low <= found <= high for *_, low, high, found in rows]
    if not rows:
        return "No result is of a system that was predicted.\n"
    table = format_table(
        ("benchmark", "system", "predicted", "90 % interval", "measured", "error", "inside"),
        [
            (
                name,
                system,
                f"{likely:g}",
                f"{low:g} to {high:g}",
                f"{found:g}",
                f"{100 * (exp(error) - 1):+.1f} %",
                "yes" if held else "no",
            )
            for (name, system, likely, low, high, found), error, held in zip(rows, errors, inside, strict=True)
        ],
    )
    middle, left = 100 * (exp(median(map(abs, errors))) - 1), len(predicted) - len(rows)
    return f"{table}\nMedian error {middle:.1f} %, {sum(inside)} of {len(rows)} inside; {left} without a result.\n"


def main(arguments: Sequence[str]) -> int:
    """Write or score a ledger."""
    match arguments:
        case ["write", path]:
            write_ledger(Path(path))
        case ["score", path, results]:
            print(score_ledger(pl.read_csv(path), pl.read_csv(results)), end="")
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
