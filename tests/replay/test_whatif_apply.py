"""Edits as text, one after the other; and what holds for every run."""

import pytest
from hypothesis import given, settings

from tests.codes import has_code
from tests.replay.test_idle import after_a_sync
from tests.test_properties import many, trace_of
from tracekit.errors import WhatIfError
from tracekit.run import MeasuredRun, prepare_run
from tracekit.trace import Trace
from tracekit.whatif import EDITS, apply_edits, compute_step_time_us, parse_edit


def run_of(launches) -> MeasuredRun:
    return prepare_run(Trace((trace_of(launches),)))


@pytest.mark.parametrize(
    "text",
    [
        "scale(family=gemm, 0.5)",
        "scale( 0.5 )",
        "scale(name='a, (b)', stream=7, 2)",
        'remove(op="aten::mm")',
        "no-sync",
        "no-sync()",
        "no-sync(aten::item)",
        "compile(within=forward)",
        "compile(within=forward, 0.2)",
        "host-speed(1.3)",
        "host-speed(python=1.3, launch=2)",
        "prefetch()",
        "infinite-queue",
    ],
)
def test_what_can_be_read(text):
    assert callable(parse_edit(text))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("scale", "edit-needs-argument"),
        ("scale(family=gemm)", "edit-needs-argument"),
        ("scale(0.5, 2)", "edit-selection-unknown"),
        ("scale(half)", "number-invalid"),
        ("remove(3)", "edit-selection-unknown"),
        ("remove(name='a)", "edit-unreadable"),
        ("scale(0.5", "edit-bracket-missing"),
        ("prefetch(op=a)", "edit-argument-unknown"),
        ("host-speed", "edit-needs-argument"),
        ("host-speed(gpu=2)", "edit-argument-unknown"),
        ("no-sync('(')", "pattern-invalid"),
    ],
)
def test_what_can_not(text, cause):
    with pytest.raises(WhatIfError, check=has_code("edit-malformed")) as refused:
        parse_edit(text)
    assert refused.value.catalogue_message.values["error"].code == cause


@pytest.mark.parametrize("text", ["speed-up(2)", ""])
def test_an_unknown_edit_is_refused_with_the_known_ones(text):
    with pytest.raises(WhatIfError, match="scale, remove, ", check=has_code("edit-unknown")):
        parse_edit(text)


def test_every_edit_has_a_usage_that_begins_with_its_name():
    assert all(edit.usage.startswith(name) for name, edit in EDITS.items())


def test_savings_add_up_in_the_order_given():
    run = prepare_run(after_a_sync(50).load())
    done = apply_edits(run.program, ["scale(name=gemm, 0.5)", "no-sync()"])
    # The synchronisation returns 50 earlier; without it the second kernel, launched at 80, is what ends the step.
    assert [edit.saving_us for edit in done.edits] == pytest.approx([50, 154 - 120])
    assert done.saving_us == pytest.approx(204 - 120)
    assert compute_step_time_us(done.program) == pytest.approx(120)
    assert done.edits[-1].step_time_us == pytest.approx(120)


def test_an_edit_that_finds_nothing_is_named():
    run = prepare_run(after_a_sync(50).load())
    with pytest.raises(WhatIfError, check=has_code("edit-refused")) as refused:
        apply_edits(run.program, ["no-sync()", "remove(name=x)"])
    assert refused.value.catalogue_message.values["edit"] == "remove(name=x)"


@pytest.mark.parametrize(
    "edits", [["scale(1e300)"], ["host-speed(1e-300)"], ["scale(1e6)"] * 3, ["host-speed(1e-6)"] * 3]
)
def test_times_beyond_what_can_be_added_up_are_refused(edits):
    with pytest.raises(WhatIfError):
        apply_edits(prepare_run(after_a_sync(50).load()).program, edits)


def test_without_edits_nothing_changes():
    run = prepare_run(after_a_sync(50).load())
    assert apply_edits(run.program, []).program is run.program
    assert apply_edits(run.program, []).saving_us == 0


@settings(max_examples=15, deadline=None)
@given(many)
def test_edits_that_change_nothing(launches):
    run = run_of(launches)
    for text in ("scale(1)", "host-speed(1)", "compile(1)"):
        assert apply_edits(run.program, [text]).saving_us == 0


@settings(max_examples=15, deadline=None)
@given(many)
def test_less_work_never_takes_longer(launches):
    run, applied = run_of(launches), set()
    for text in ("scale(0.3)", "host-speed(2)", "compile(0.5)", "remove(stream=9)", "no-sync()", "fuse()"):
        try:
            saving_us = apply_edits(run.program, [text]).saving_us
        except WhatIfError:
            continue  # nothing of the kind in this run
        assert saving_us >= 0, text
        applied.add(text)
    assert applied >= {"scale(0.3)", "host-speed(2)"}


@settings(max_examples=15, deadline=None)
@given(many)
def test_the_order_of_independent_edits_is_irrelevant(launches):
    run = run_of(launches)
    edits = ["scale(stream=7|9, 0.5)", "host-speed(python=2)", "compile(0.5)", "scale(kind=kernel, 3)"]
    assert apply_edits(run.program, edits).saving_us == pytest.approx(
        apply_edits(run.program, edits[::-1]).saving_us, abs=0.05
    )
