"""Progress: stages in order, the share of the work that is done, quiet where there is no terminal."""

import sys

import pytest

from tracekit.messages import requests
from tracekit.request.stage_plan import EFFORTS, MEASURING, compute_share_done
from tracekit.testing import TraceBuilder

PLAN = (*MEASURING, requests.PREDICTING, requests.BUILDING_REPORT)


def test_the_share_grows_with_files_stages_and_targets():
    begun = [
        requests.READING_FILE(number=1, files=2),
        requests.READING_FILE(number=2, files=2),
        requests.CLASSIFYING_KERNELS(),
        requests.LINKING_DEPENDENCIES(),
        requests.REPLAYING(),
        *(requests.PREDICTING_TARGET(target="t4", number=number, targets=3) for number in (1, 2, 3)),
        requests.BUILDING_REPORT(),
    ]
    shares = [compute_share_done(stage, PLAN) for stage in begun]
    assert shares[0] == 0
    assert shares == sorted(set(shares))
    assert shares[-1] < 1
    # The second of two files begins at the half of reading.
    assert shares[1] == pytest.approx(EFFORTS[requests.READING_TRACE] / 2 / sum(EFFORTS[stage] for stage in PLAN))


def test_a_stage_that_is_not_planned_leaves_the_share():
    assert compute_share_done(requests.COMPILING_LOOPS(), PLAN) is None
    assert compute_share_done(requests.BUILDING_REPORT(), MEASURING) is None


def test_a_terminal_shows_stages_and_shares_and_leaves_none_behind(tmp_path):
    pexpect = pytest.importorskip("pexpect")
    trace = TraceBuilder().kernel("ampere_sgemm", 20, 100, launch=10).save(tmp_path / "trace.json")
    shell = pexpect.spawn(sys.executable, ["-m", "tracekit", "report", str(trace)], encoding="utf-8", timeout=120)
    # The shortest match: a fast report stands in the same chunk, and may hold a share of its own.
    shell.expect(r"put the report together.*?[0-9]+ %")
    shell.expect_exact("where the time goes")
    shell.expect(pexpect.EOF)
