"""Outcomes on this machine: what is kept, by whom, and what predictions make of it."""

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from math import log
from pathlib import Path

import pytest

from tests.cli.test_compare import save
from tests.report.test_comparison import H100
from tracekit import scoreboard
from tracekit.errors import OutputError
from tracekit.prediction.experience import identify_weights
from tracekit.scoreboard import LawTime, Outcome
from tracekit.scoreboard.summary import summarize_outcomes
from tracekit.testing import A100

OUTCOME = Outcome(
    target="h100-sxm", gpus=1, source="a100-sxm-80gb", kind="inference", low_us=800.0, likely_us=1000.0,
    high_us=1250.0, version="0.1.0", weights="0123456789abcdef", measured_us=1100.0, date="2026-11-28",
)  # fmt: skip
ALLOWED = {"target", "gpus", "source", "kind", "low_us", "likely_us", "high_us", "version", "weights"} | {
    "measured_us",
    "date",
    "laws",
}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def prediction(run, tmp_path):
    """A GEMM of 1 ms on an A100, and where it is predicted for the H100."""
    path = tmp_path / "secret_customer.json"
    trace = save(tmp_path / "secret_model.json.gz", 1000, device=A100)
    assert run("predict", trace, "--gpu", "h100-sxm", "-o", path)[0] == 0
    return path


def get_target(path: Path) -> dict:
    return json.loads(path.read_text())["targets"][0]


def keep_all(*scores: float, weights: str) -> None:
    for place, score in enumerate(scores):
        measured = OUTCOME.likely_us * (OUTCOME.high_us / OUTCOME.likely_us) ** score
        scoreboard.keep(replace(OUTCOME, weights=weights, measured_us=measured + place * 1e-6))


def test_the_score_is_the_error_in_half_widths():
    assert OUTCOME.score == pytest.approx(log(1.1) / log(1.25))
    assert replace(OUTCOME, measured_us=800.0).score == pytest.approx(1)
    assert replace(OUTCOME, measured_us=640.0).score == pytest.approx(2)
    assert OUTCOME.error_pct == pytest.approx(100 * (1000 / 1100 - 1))


def test_an_outcome_is_kept_only_where_it_is_asked_for(run, prediction, tmp_path):
    since = save(tmp_path / "since.json.gz", 600, device=H100)
    assert run("compare", prediction, since)[0] == 0
    assert scoreboard.load().outcomes == ()
    code, _, err = run("compare", prediction, since, "--keep")
    assert (code, str(scoreboard.get_file()) in err) == (0, True)
    (kept,) = scoreboard.load().outcomes
    target = get_target(prediction)
    assert (kept.target, kept.source, kept.kind, kept.gpus) == ("h100-sxm", "a100-sxm-80gb", "inference", 1)
    assert (kept.low_us, kept.likely_us, kept.high_us) == (target["low_us"], target["step_time_us"], target["high_us"])
    assert kept.measured_us == pytest.approx(614)
    assert run("compare", prediction, since, "--keep")[0] == 0
    assert len(scoreboard.load().outcomes) == 1  # the same one isn't counted twice


def test_nothing_private_is_kept_or_exported(run, prediction, tmp_path, home):
    run("compare", prediction, save(tmp_path / "since.json.gz", 600, device=H100), "--keep")
    export = tmp_path / "outcomes.md"
    assert run("scoreboard", "--export", export)[0] == 0
    assert run("scoreboard", "--export", export)[0] == 1  # it isn't overwritten
    (line,) = scoreboard.get_file().read_text().split()
    assert json.loads(line).keys() == ALLOWED
    assert {key for law in json.loads(line)["laws"] for key in law} == {"family", "predicted_us", "measured_us"}
    for text in (line, export.read_text(), run("scoreboard", "--json")[1]):
        assert not {"secret", "sgemm", "aten", str(home)} & {
            word for word in ("secret", "sgemm", "aten", str(home)) if word in text
        }
    assert "| h100-sxm | inference | 1 |" in export.read_text()


@pytest.mark.parametrize("swapped", [False, True])
def test_what_is_no_prediction_with_its_measurement_is_not_kept(run, prediction, tmp_path, swapped):
    on_a100 = save(tmp_path / "other.json.gz", 600, device=A100)
    sides = (prediction, on_a100) if not swapped else (on_a100, save(tmp_path / "b.json.gz", 500, device=A100))
    code, _, err = run("compare", *sides, "--keep")
    assert (code, "[outcome-not-scored]" in err) == (1, True)
    assert scoreboard.load().outcomes == ()


def test_a_prediction_of_an_older_version_is_not_kept(run, prediction, tmp_path):
    document = json.loads(prediction.read_text())
    del document["targets"][0]["forecast"]
    prediction.write_text(json.dumps(document))
    code, _, err = run("compare", prediction, save(tmp_path / "since.json.gz", 600, device=H100), "--keep")
    assert (code, "[forecast-missing]" in err) == (1, True)


def test_misses_widen_later_predictions_and_a_switch_leaves_them_out(run, prediction, tmp_path):
    shipped = get_target(prediction)
    keep_all(3.0, 3.1, 3.2, weights=shipped["forecast"]["weights"])
    trace = tmp_path / "secret_model.json.gz"
    found = json.loads(run("predict", trace, "--gpu", "h100-sxm", "--json")[1])["targets"][0]
    assert found["experience"] == {"outcomes": 3, "inside": 0, "factor": pytest.approx(3.1), "law_offsets": {}}
    for end in ("low_us", "high_us"):
        moved = (found[end] / found["step_time_us"], shipped[end] / shipped["step_time_us"])
        assert log(moved[0]) == pytest.approx(3.1 * log(moved[1]))
        assert found["forecast"][end] == shipped[end]  # later outcomes count against the shipped interval
    assert "interval-widened" in [note["code"] for note in found["notes"]]
    alone = json.loads(run("predict", trace, "--gpu", "h100-sxm", "--json", "--no-scoreboard")[1])["targets"][0]
    assert (alone["low_us"], alone["high_us"], alone["experience"]) == (shipped["low_us"], shipped["high_us"], None)


def test_exact_predictions_narrow_later_ones(run, prediction, tmp_path):
    shipped = get_target(prediction)
    keep_all(*[0.4] * 60, weights=shipped["forecast"]["weights"])
    found = json.loads(run("predict", tmp_path / "secret_model.json.gz", "--gpu", "h100-sxm", "--json")[1])["targets"]
    assert shipped["low_us"] < found[0]["low_us"] < found[0]["step_time_us"] < found[0]["high_us"] < shipped["high_us"]
    assert "interval-narrowed" in [note["code"] for note in found[0]["notes"]]


@pytest.mark.parametrize(
    "change", [{"target": "h200-sxm"}, {"kind": "training"}, {"gpus": 8}, {"weights": "f" * 16}, {"source": "h100-sxm"}]
)
def test_outcomes_of_other_predictions_change_nothing(run, prediction, tmp_path, change):
    shipped = get_target(prediction)
    for place in range(3):
        known = replace(OUTCOME, weights=shipped["forecast"]["weights"], measured_us=5000.0 + place)
        scoreboard.keep(replace(known, **change))
    found = json.loads(run("predict", tmp_path / "secret_model.json.gz", "--gpu", "h100-sxm", "--json")[1])["targets"]
    assert (found[0]["low_us"], found[0]["experience"]) == (shipped["low_us"], None)


def test_the_table_counts_by_gpu_and_kind(run):
    keep_all(0.5, 2.0, weights="a" * 16)
    scoreboard.keep(replace(OUTCOME, kind="training", measured_us=1000.0))
    rows = json.loads(run("scoreboard", "--json")[1])["groups"]
    assert [(row["kind"], row["outcomes"], row["inside"]) for row in rows] == [("inference", 2, 1), ("training", 1, 1)]
    assert rows[1]["median_error_pct"] == 0
    assert "training" in run("scoreboard")[1]


def test_an_empty_scoreboard_says_how_to_fill_it(run):
    code, out, _ = run("scoreboard")
    assert (code, "--keep" in out) == (0, True)


DAMAGE = (
    b"{",
    b"\xff\xfe",
    b"[]",
    b'{"target": "h100-sxm"}',
    b"1e999",
    b"[" * 100_000,
    *(json.dumps({name: getattr(OUTCOME, name) for name in ALLOWED} | change).encode() for change in (
        {"target": "../../etc"},
        {"kind": "x" * 100},
        {"measured_us": 0},
        {"low_us": 2000.0},
        {"gpus": -1},
        {"date": "yesterday"},
    )),
)  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE, ids=range(len(DAMAGE)))
def test_a_damaged_line_is_skipped_and_said(run, damage):
    scoreboard.keep(OUTCOME)
    with scoreboard.get_file().open("ab") as file:
        file.write(damage)  # without a line's end, as a crash may leave it
    scoreboard.keep(replace(OUTCOME, measured_us=900.0))
    found = scoreboard.load()
    assert [one.measured_us for one in found.outcomes] == [1100, 900]
    assert [(warning.code, warning.values["lines"]) for warning in found.warnings] == [("outcomes-skipped", 1)]
    code, _, err = run("scoreboard")
    assert (code, "1 line" in err) == (0, True)


def test_two_processes_keep_all_of_their_outcomes():
    script = (
        "import json, sys; from tracekit import scoreboard\n"
        "for place in range(20): scoreboard.keep(scoreboard.Outcome(**json.loads(sys.argv[1]) | {'gpus': 1 + place}))"
    )
    outcomes = (json.dumps(asdict(replace(OUTCOME, target=target))) for target in ("h100-sxm", "h200-sxm"))
    running = [subprocess.Popen([sys.executable, "-c", script, outcome]) for outcome in outcomes]
    assert [process.wait() for process in running] == [0, 0]
    found = scoreboard.load()
    assert (len(found.outcomes), found.warnings) == (40, ())


def test_a_home_that_can_not_be_written_is_one_line(home, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(OutputError, match="Permission denied") as told:
        scoreboard.keep(OUTCOME)
    assert "\n" not in str(told.value)
    assert told.value.catalogue_message.code == "outcome-not-written"


def test_a_scoreboard_that_can_not_be_read_is_said(home):
    scoreboard.get_file().mkdir(parents=True)
    assert [warning.code for warning in scoreboard.load().warnings] == ["scoreboard-unreadable"]


def test_predictions_take_the_offset_and_say_so(run, tmp_path):
    """The jobs' GEMMs took 1.1 times as long: three tell 1.1 ** (3 / 5) = 1.0588."""
    trace = save(tmp_path / "one.json.gz", 1000, device=A100)
    before, after, export = (tmp_path / name for name in ("before.json", "after.json", "team.json"))
    assert run("predict", trace, "--gpu", "h100-sxm", "-o", before)[0] == 0
    law = LawTime(family="gemm", predicted_us=100.0, measured_us=110.0)
    job = replace(OUTCOME, weights=identify_weights(), laws=(law,))
    scales = (1, 2, 4)
    scoreboard.add_all(
        replace(job, low_us=800.0 * one, likely_us=1000.0 * one, high_us=1250.0 * one, measured_us=1000.0 * one)
        for one in scales
    )
    assert run("scoreboard", "--export", export)[0] == 0
    scoreboard.get_file().unlink()
    assert run("scoreboard", "--import", export)[0] == 0
    assert len(scoreboard.load().outcomes) == 3
    assert run("scoreboard", "--import", export)[0] == 0
    assert len(scoreboard.load().outcomes) == 3
    assert run("predict", trace, "--gpu", "h100-sxm", "-o", after)[0] == 0
    old, new = get_target(before), get_target(after)
    assert new["time"]["gemm"] / old["time"]["gemm"] == pytest.approx(1.1 ** (3 / 5), rel=1e-3)
    assert new["experience"]["law_offsets"] == {"gemm": pytest.approx(0.6 * log(1.1))}
    assert any("law-offsets" in json.dumps(note) for note in new["notes"])
    assert run("predict", trace, "--gpu", "h100-sxm", "--no-scoreboard", "-o", after, "--force")[0] == 0
    assert get_target(after)["time"] == old["time"]


def test_outcomes_of_other_weights_count_but_widen_nothing():
    """Ten misses by twice the half-width."""
    missed = [replace(OUTCOME, measured_us=1000.0 * 1.25**2) for _ in range(10)]
    (same,) = summarize_outcomes(missed, OUTCOME.weights)
    (other,) = summarize_outcomes(missed, "fedcba9876543210")
    assert (same.outcomes, same.inside, same.worst_error_pct) == (10, 0, pytest.approx(-36.0))
    assert (same.factor, other.factor) == (pytest.approx(2.0), 1.0)
    assert other.outcomes == 10
