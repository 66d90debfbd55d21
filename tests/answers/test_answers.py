"""What each command answers, with every figure and every message: `pytest --update-golden` accepts a change.

A case is a command line; its golden holds its JSON in six digits. Messages stand as codes and values, so that their
wording may change.
"""

import json
import math
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.answers.compositions import make_config
from tests.jobs import gradient_step
from tracekit.cli.app import app

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden" / "answers"
RECORDED = sorted(path.name for path in (ROOT / "sample_traces" / "recorded").glob("*.json.gz"))
TRAIN, GPT2, RANKS, CONFIG = "TRAIN", "GPT2", "RANKS", "CONFIG"
PLACES = {
    TRAIN: "sample_traces/synthetic_transformer_train.json.gz",
    GPT2: "sample_traces/recorded/h100-sxm_gpt2_train.json.gz",
}
PRICES = "--price h100-sxm=2.5 --price l40s=0.9 --price a100-sxm-80gb=1.2"
PAIR = "sample_traces/recorded/h100-sxm_gpt2_train.json.gz sample_traces/recorded/h200-sxm_gpt2_train.json.gz"
COMMANDS = {
    "info": "info TRAIN -v",
    "report": "report TRAIN --top 5",
    "predict": "predict TRAIN --gpu h100-sxm --gpu l40s --gpu mi300x --top 5",
    "edits": "predict GPT2 --gpu b200 --what-if 'scale(family=gemm, 0.5)' --what-if 'cuda-graph()' --top 2",
    "host": "predict GPT2 --gpu b200 --host typical --top 2",
    "host_speed": "predict GPT2 --gpu b200 --host-speed 1.3 --top 2",
    "prices": f"predict TRAIN --gpu h100-sxm --gpu l40s {PRICES} --tokens-to-run 1e12 --top 2",
    "rank_by": f"predict TRAIN --gpu h100-sxm --gpu l40s {PRICES} --rank-by dollars --top 2",
    "power": "predict GPT2 --gpu b200 --power-cap 600W --top 2",
    "clock": "predict GPT2 --gpu b200 --clock 1200MHz --source-clock 1500MHz --top 2",
    "batch": "predict GPT2 --gpu b200 --batch 2 --top 2",
    "framework": "predict GPT2 --gpu b200 --framework vllm==0.19.0 --top 2",
    "without_rules": "predict GPT2 --gpu b200 --without-rule event-waits --without-rule thread-handovers --top 2",
    "dp": "predict GPT2 --cluster 8xh100-sxm --dp 8 --top 2",
    "tp": "predict TRAIN --cluster 8xh100-sxm --tp 8 --top 2",
    "pp": "predict TRAIN --cluster 2x8xh100-sxm@ndr400 --pp 2 --micro-batches 8 --top 2",
    "fsdp": "predict TRAIN --cluster 8xh100-sxm --dp 8 --fsdp --top 2",
    "sweep": "sweep TRAIN --cluster 8xh100-sxm --price h100-sxm=2.5",
    "ranks_info": "info RANKS -v",
    "ranks_report": "report RANKS --top 5",
    "ranks": "predict RANKS --cluster 8xh100-sxm --top 5",
    "fleet": "predict RANKS --cluster 8xh100-sxm --engine local",
    "shard": "shard --table 8*1Mx128:20 --table 2*40Mx64:1 --batch 4096 --cluster 8xa100-sxm-80gb",
    "recommender": "predict sample_traces/dlrm_dcnv2.json --gpu h100-sxm --gpu b200 --batch 4096 --train --top 5",
    "engine_step": "predict CONFIG --framework vllm==0.11.0 --decode --batch 8 --context 512 --gpu b200 --top 2",
    "served": "serving CONFIG --gpu h100-sxm --concurrency 4 --input-tokens 128 --output-tokens 32 --price h100-sxm=2",
    "compare": f"compare {PAIR}",
    "doctor": "doctor TRAIN",
}
"""A command line of each kind; names in capitals stand for traces."""
UNSTABLE = {"text", "link", "seconds", "read_seconds"}
"""Keys that aren't figures: sentences of messages, and times of this machine."""
MOST_ENTRIES = 5
"""Most entries of a list that a golden holds: the longest kernels, of which a trace has hundreds of kinds."""
SAID_BY_INFO = {"events", "source", "warnings", "replay", "schema_version"}
"""Sections that `report` and `predict` repeat."""
TOLERANCE = 1.01e-5
"""Relative: six digits, of which the last may be one more or less, whatever the compiler does with the last bit."""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks of data-parallel training, one of which is late."""
    folder = tmp_path_factory.mktemp("job")
    for rank, step in enumerate((gradient_step(150, 412), gradient_step(350, 412, clock=30))):
        step.save(folder / f"rank{rank}.json")
    make_config(folder.parent)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command(name: str, ranks: Path, request: pytest.FixtureRequest) -> None:
    places = PLACES | {RANKS: str(ranks), CONFIG: str(ranks.parent / "config.json")}
    words = [places.get(word, word) for word in shlex.split(COMMANDS[name])]
    check(name, answer(*words), request)


@pytest.mark.heavy
@pytest.mark.parametrize("trace", RECORDED)
def test_each_recorded_trace(trace: str, request: pytest.FixtureRequest) -> None:
    path = f"sample_traces/recorded/{trace}"
    targets = ("--gpu", "b200", "--gpu", "mi300x")
    told = {name: answer(name, path, *more) for name, more in (("report", ()), ("predict", targets))}
    got = {name: {key: said[key] for key in said if key not in SAID_BY_INFO} for name, said in told.items()}
    got["info"] = answer("info", path, "-v")
    check(f"recorded/{trace.removesuffix('.json.gz')}", got, request)


def answer(*words: str) -> Any:
    """Return what a command prints as JSON."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        done = CliRunner().invoke(app, [*words, "--json", "-q"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def check(name: str, got: Any, request: pytest.FixtureRequest) -> None:
    """Compare an answer with its golden, figure by figure, or write it."""
    path = GOLDEN / f"{name}.txt"
    lines = {key: value for key, value in flatten(got) if not is_place(value)}
    if request.config.getoption("--update-golden"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{key} {json.dumps(value, ensure_ascii=False)}\n" for key, value in lines.items()))
    golden = {key: json.loads(value) for key, value in (line.split(" ", 1) for line in path.read_text().splitlines())}
    assert list(lines) == list(golden)
    assert {key: (value, golden[key]) for key, value in lines.items() if not is_equal(value, golden[key])} == {}


def flatten(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each figure of a JSON value with its place; floats in six digits, lists with their first entries."""
    if isinstance(value, dict) and value:
        for key, entry in value.items():
            if key not in UNSTABLE:
                yield from flatten(entry, f"{place}.{key}".strip(".").replace(" ", "_"))
    elif isinstance(value, list) and value:
        for number, entry in enumerate(value[:MOST_ENTRIES]):
            yield from flatten(entry, f"{place}.{number}")
    else:
        yield place, float(f"{value:.6g}") if isinstance(value, float) else value


def is_place(value: Any) -> bool:
    """Return whether a value is the path of a trace of this test run."""
    return isinstance(value, str) and value.startswith(tempfile.gettempdir())


def is_equal(got: Any, golden: Any) -> bool:
    """Return whether two figures are equal in six digits."""
    if isinstance(got, float) and isinstance(golden, float):
        return math.isclose(got, golden, rel_tol=TOLERANCE)
    return bool(got == golden)
