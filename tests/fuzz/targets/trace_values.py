"""Traces of hostile values, through the command line: names, times, ids, shapes, categories, phases, types."""

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.command import check_command
from tests.fuzz.documents import BASES as DOCUMENTS
from tests.fuzz.documents import apply_edits, dump_case, load_base, make_edits
from tests.fuzz.promises import check_numbers, check_prediction, read_json, require
from tests.fuzz.target import Target
from tracekit.ingest.fields import ARGUMENTS

BASES = ("training.json", "two_ranks.json", "serving.json")
SAMPLES = Path(__file__).parents[3] / "sample_traces"
MAX_LONG_BYTES = 200_000
PREDICT = "predict --json --gpu h100-sxm"
COMMANDS: dict[str, Sequence[str]] = {
    PREDICT: ("predict", "{trace}", "--json", "--gpu", "h100-sxm"),
    "predict --json on a cluster": ("predict", "{trace}", "--json", "--cluster", "2x8xh100-sxm@ndr400", "--dp", "4"),
    "predict --json on its own GPU": ("predict", "{trace}", "--json", "--gpu", "a100-sxm-80gb", "--gpu", "t4"),
    "predict": (
        "predict",
        "{trace}",
        "--gpu",
        "mi300x",
        "--what-if",
        "scale(family=gemm, 0.5)",
        "--price",
        "mi300x=2",
        "-v",
    ),
    "predict html": ("predict", "{trace}", "--gpu", "t4", "--format", "html", "--stacks"),
    "predict md": ("predict", "{trace}", "--gpu", "t4", "--format", "md"),
    "predict xlsx": ("predict", "{trace}", "--gpu", "t4", "--format", "xlsx"),
    "predict csv": ("predict", "{trace}", "--gpu", "t4", "--format", "csv"),
    "predict parquet": ("predict", "{trace}", "--gpu", "t4", "--format", "parquet"),
    "sweep": ("sweep", "{trace}", "--json", "--cluster", "2x8xh100-sxm@ndr400"),
    "info": ("info", "{trace}", "--json", "-v", "--stacks"),
    "report": ("report", "{trace}", "--stacks"),
    "report --json": ("report", "{trace}", "--json", "--unprofiled-step", "0.3ms"),
    "doctor": ("doctor", "{trace}"),
    "compare": ("compare", "{trace}", str(DOCUMENTS / "training.json"), "--json"),
    "redact": ("redact", "{trace}", "-o", "{folder}/redacted.json"),
    "export perfetto": ("export", "{trace}", "--gpu", "t4", "-o", "{folder}/timeline.json"),
    "export kineto": ("export", "{trace}", "--gpu", "t4", "--format", "kineto", "-o", "{folder}/trace.json.gz"),
    "export csv": ("export", "{trace}", "--gpu", "t4", "-o", "{folder}/launches.csv"),
}


def make_case(base: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy of cases made of a good trace."""
    commands = st.one_of(st.just(PREDICT), st.sampled_from([*COMMANDS]))
    return st.builds(
        lambda command, edits: {"base": base, "command": command, "edits": edits},
        commands,
        make_edits(base, tuple(ARGUMENTS)),
    )


def count_events(trace: Any) -> int | None:
    """Return how many events a trace has; None if it isn't written as one, or lists other things among them."""
    documents = trace if isinstance(trace, list) else [trace]
    lists = [one.get("traceEvents") if isinstance(one, dict) else None for one in documents]
    if not all(isinstance(one, list) and all(isinstance(event, dict) for event in one) for one in lists):
        return None
    return sum(map(len, lists))


def check_ledger(ledger: Any, events: int | None) -> None:
    """Check that a ledger has all events of the file, or says that something of it is damaged.

    Raises:
        BrokenPromiseError: Some are missing.
    """
    is_damaged = any(group["unit"] == "bytes" or group["kind"] == "events-lost" for group in ledger["groups"])
    require(events in (None, ledger["events"]) or is_damaged, "the ledger has all events", (events, ledger))


def check(case: dict[str, Any]) -> None:
    """Ask for what the case says of its trace."""
    trace = apply_edits(load_base(case["base"]), case["edits"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.json"
        path.write_text(json.dumps(trace), encoding="utf-8")
        command = [word.format(trace=path, folder=folder) for word in COMMANDS[case["command"]]]
        outcome = check_command(*command)
    if outcome.code or "--json" not in command:
        return
    document = read_json(outcome.out)
    if command[0] == "predict":
        check_prediction(document)
        check_ledger(document["events"], count_events(trace))
    elif command[0] != "compare":
        check_numbers(document)


def list_long_bases() -> list[str]:
    """List the sample traces and small real ones besides, where there are some."""
    real = os.environ.get("TRACEKIT_REAL_TRACES", "")
    found = [*SAMPLES.glob("*.json.gz"), *(Path(real).glob("*.json.gz") if real else ())]
    return [
        *BASES,
        *sorted(str(path) for path in found if path.stat().st_size < MAX_LONG_BYTES and ".et." not in path.name),
    ]


TARGET = Target(
    name="trace_values",
    cases=st.sampled_from(BASES).flatmap(make_case),
    long_cases=st.sampled_from(list_long_bases()).flatmap(make_case),
    check=check,
    load=json.loads,
    dump=dump_case,
    suffix=".json",
    examples=8,
)
