"""What outcomes tell of a GPU's laws: the offset by hand, and that it is used only where it helps each job."""

from dataclasses import replace
from math import log

import polars as pl
import pytest

from tests.cli.test_scoreboard import OUTCOME
from tracekit.errors import TracekitError
from tracekit.messages import predictions as messages
from tracekit.prediction.part import move_laws
from tracekit.scoreboard import LawTime, Outcome, read_outcomes
from tracekit.scoreboard.law_offsets import choose_factors, find_law_offsets, summarize_laws

WEIGHTS = OUTCOME.weights


def make_jobs(*ratios: float, family: str = "gemm", **given: object) -> list[Outcome]:
    """One outcome of each job, whose kernels of a family took as many times as long as predicted."""
    return [
        replace(
            OUTCOME,
            low_us=900.0 * 2**number, likely_us=1000.0 * 2**number, high_us=1100.0 * 2**number,
            laws=(LawTime(family=family, predicted_us=100.0, measured_us=100.0 * ratio),),
            **given,
        )
        for number, ratio in enumerate(ratios)
    ]  # fmt: skip


def find(outcomes: list[Outcome], **given: object):
    asked = {"target": "h100-sxm", "source": "a100-sxm-80gb", "kind": "inference", "weights": WEIGHTS} | given
    return find_law_offsets(outcomes, **asked)


def test_an_offset_is_the_shrunken_mean():
    """Of 1.10, 1.14 and 1.12: ln 0.0953, 0.1310, 0.1133; 0.3396 / 5 = 0.0679."""
    (law,) = find(make_jobs(1.10, 1.14, 1.12))
    a, b, c = map(log, (1.10, 1.14, 1.12))
    assert law.offset == pytest.approx((a + b + c) / 5) == pytest.approx(0.0679, abs=1e-4)
    assert law.error_before == pytest.approx((a + b + c) / 3)
    assert law.error_after == pytest.approx((abs(a - (b + c) / 4) + abs(b - (a + c) / 4) + abs(c - (a + b) / 4)) / 3)
    assert (law.jobs, law.helps) == (3, True)
    assert choose_factors([law]) == {"gemm": law.offset}


def test_a_law_that_would_make_one_job_worse_stays():
    (law,) = find(make_jobs(1.2, 1.2, 1.2, 1.01))
    assert law.error_after < law.error_before
    assert not law.helps
    assert choose_factors([law]) == {}


def test_two_jobs_tell_nothing_and_one_job_counts_once():
    assert find(make_jobs(1.2, 1.2)) == ()
    assert find(make_jobs(1.2) * 5) == ()


@pytest.mark.parametrize(
    "given",
    [{"target": "b200"}, {"source": "v100-sxm-16gb"}, {"weights": "fedcba9876543210"}, {"kind": "captured inference"}],
)
def test_other_predictions_have_offsets_of_their_own(given: dict[str, str]):
    assert find(make_jobs(1.2, 1.2, 1.2), **given) == ()


def test_captured_programs_share_what_they_tell_whatever_their_kind():
    jobs = make_jobs(1.2, 1.2, kind="captured training") + make_jobs(1.1, kind="captured inference")
    assert find(jobs, kind="captured training", source="b200")[0].jobs == 3
    (summary,) = summarize_laws(jobs, WEIGHTS)
    assert (summary.target, summary.source, summary.law.jobs) == ("h100-sxm", "captured", 3)


def test_factors_move_predicted_times_of_their_family_alone():
    times = pl.DataFrame(
        {
            "family": ["gemm", "norm", "collective"],
            "time_us": [10.0, 5, 1],
            "low_us": [8.0, 4, 1],
            "high_us": [12.0, 6, 1],
        }
    )
    moved = move_laws(times, {"gemm": log(1.1), "collective": 1.0})
    assert moved["time_us"].to_list() == pytest.approx([11.0, 5, 1])
    assert moved["low_us"].to_list() == pytest.approx([8.8, 4, 1])
    assert moved["high_us"].to_list() == pytest.approx([13.2, 6, 1])


@pytest.mark.parametrize("content", ["{}", '{"outcomes": [{"target": "/home/me"}]}', "no JSON"])
def test_what_holds_no_outcomes_isnt_imported(tmp_path, content: str):
    (tmp_path / "team.json").write_text(content)
    with pytest.raises(TracekitError) as failure:
        read_outcomes(tmp_path / "team.json")
    assert failure.value.code == messages.OUTCOMES_UNREADABLE.code
