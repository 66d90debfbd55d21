"""The picture of a step: its blocks by hand, and what holds for every one."""

import polars as pl
import pytest

import tracekit as tk
from tests.conftest import SAMPLES
from tracekit.analysis.over_time import rasterize


def intervals(*rows):
    return pl.DataFrame(rows, schema=["lane", "key", "begin_ns", "end_ns"], orient="row")


def test_the_longest_of_each_part_stands_for_it():
    """Four parts of 10 ns: a fills one and a half of them, b a fifth of the second, c is in the last by a quarter."""
    rows = intervals((0, "a", 0, 15), (0, "b", 16, 18), (0, "c", 32, 34), (1, "a", 0, 40))
    assert rasterize(rows, 0, 40, 4).rows() == [
        (0, 0, 1, 4, "a"),
        (0, 1, 1, 3, "a"),
        (0, 3, 1, 1, "c"),
        (1, 0, 4, 4, "a"),
    ]


def test_what_lies_outside_or_takes_no_time_leaves_no_block():
    rows = intervals((0, "a", -20, -10), (0, "b", -5, 2), (0, "c", 5, 5), (0, "d", 40, 50))
    assert rasterize(rows, 0, 40, 4).rows() == [(0, 0, 1, 1, "b")]
    assert rasterize(rows.clear(), 0, 40, 4).is_empty()


@pytest.fixture(scope="module")
def report():
    trace = tk.load(SAMPLES / "synthetic_transformer_train.json.gz")
    return tk.report(tk.predict(trace, gpu=["l40s", "h100-sxm"]))


def test_measured_and_predicted_steps_are_those_of_the_report(report):
    section = report.timelines
    assert section.measured.time_us == pytest.approx(report.source.step_time_us, rel=0.02)
    assert [one.label for one in section.predicted] == [target.label for target in report.decision.targets]
    for one, target in zip(section.predicted, report.targets, strict=True):
        assert one.time_us == pytest.approx(target.step.step_time_us, rel=0.02)


def test_blocks_lie_in_order_within_the_step_and_name_their_kernels(report):
    for timeline in (report.timelines.measured, *report.timelines.predicted):
        for lane in timeline.lanes:
            ends = [block.begin + block.length for block in lane.blocks]
            assert all(end <= block.begin for end, block in zip(ends, lane.blocks[1:], strict=False))
            assert ends[-1] <= timeline.columns
            assert all(report.kernels[block.kernel].family == block.family for block in lane.blocks)
        assert sum(part.length for part in timeline.path) == timeline.columns


def test_a_busy_stream_is_drawn_busy(report):
    """The step's time in blocks, weighted by how busy each is, is the time in which the GPU works."""
    for timeline, bar in zip((report.timelines.measured, *report.timelines.predicted), report.bars, strict=True):
        drawn = sum(block.length * block.quarters / 4 for lane in timeline.lanes for block in lane.blocks)
        busy = 1 - dict(bar.parts)["idle"] / bar.step_time_us
        assert drawn / timeline.columns == pytest.approx(busy, abs=0.15)
