"""The study of hostile inputs sees faults, and a part of its cases runs with every build."""

import json
from pathlib import Path

import pytest

from tests.validation.studies import reliability

FIGURES = {"step_time_us": 2.0, "low_us": 1.0, "high_us": 3.0, "kernel_time_us": 1.0, "idle_us": 0.0}
COVERAGE = {"modelled": 60.0, "scaled": 40.0, "unknown": 0.0}


@pytest.mark.parametrize(
    ("code", "out", "err"),
    [
        (70, "", "tracekit: this is a bug\n"),
        (-11, "", ""),
        (1, "", "one line\nanother\n"),
        (1, "", ""),
        (0, "", "RuntimeWarning: divide by zero\n"),
        (0, "\x1b[31mred", ""),
        (0, "\u202eder", ""),
        (0, json.dumps({"targets": [FIGURES | {"low_us": -1.0, "coverage": COVERAGE}]}), ""),
        (0, json.dumps({"targets": [FIGURES | {"high_us": float("inf"), "coverage": COVERAGE}]}), ""),
        (0, json.dumps({"targets": [FIGURES | {"coverage": COVERAGE | {"unknown": 1.0}}]}), ""),
    ],
)
def test_a_fault_is_seen(code: int, out: str, err: str) -> None:
    assert reliability.find_fault(code, out, err)


@pytest.mark.parametrize(
    ("code", "out", "err"), [(0, "text\n", ""), (1, "", "line\n"), (2, "", "a\nb\n"), (130, "", "")]
)
def test_results_and_refusals_are_no_faults(code: int, out: str, err: str) -> None:
    assert not reliability.find_fault(code, out, err)


@pytest.mark.parametrize("kind", reliability.KINDS)
def test_some_cases_of_each_kind_end_well(kind: str, tmp_path: Path) -> None:
    cases = [case for case in reliability.KINDS[kind](tmp_path) if case.environment is None]
    assert len({case.name for case in cases}) == len(cases)
    outcomes = {case.name: reliability.run_case(case, tmp_path) for case in cases[::20]}
    assert {name: one.fault for name, one in outcomes.items() if one.fault} == {}
