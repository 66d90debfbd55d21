"""Hostile calibrations: results of the bench script, and what is kept on this machine."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.command import check_command, use_data_home
from tests.fuzz.documents import BASES, apply_edits, dump_case, load_base, make_edits
from tests.fuzz.promises import check_prediction, read_json
from tests.fuzz.target import Target

TRACE = str(BASES / "training.json")


def check(case: dict[str, Any]) -> None:
    """Import a result, or find a kept calibration, and predict with it."""
    document = apply_edits(load_base(case["base"]), case["edits"])
    with tempfile.TemporaryDirectory() as folder, use_data_home(folder):
        check_file(case["base"], json.dumps(document), Path(folder))


def check_file(kind: str, text: str, folder: Path) -> None:
    """Use one file as what it is."""
    if kind == "bench.json":
        (folder / "bench.json").write_text(text, encoding="utf-8")
        if check_command("calibrate", str(folder / "bench.json"), "--json").code:
            return
    else:
        kept = folder / "tracekit" / "calibrations"
        kept.mkdir(parents=True)
        (kept / "h100-sxm.json").write_text(text, encoding="utf-8")
    check_command("calibrate", "--list", "--json")
    outcome = check_command("predict", TRACE, "--gpu", "h100-sxm", "--json")
    if outcome.code == 0:
        check_prediction(read_json(outcome.out))


def make_case(base: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return the strategy of cases made of a good file."""
    return make_edits(base).map(lambda edits: {"base": base, "edits": edits})


TARGET = Target(
    name="calibrations",
    cases=st.one_of(*map(make_case, ("bench.json", "calibration.json"))),
    check=check,
    load=json.loads,
    dump=dump_case,
    suffix=".json",
    examples=8,
)
