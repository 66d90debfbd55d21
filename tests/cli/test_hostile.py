"""Damaged and hostile files end in a documented way, whatever is asked of them."""

import json
from pathlib import Path

import pytest

HOSTILE = Path(__file__).parent.parent / "ingest" / "hostile"
VERBS = {"info": (), "report": (), "predict": ("--gpu", "h100-sxm"), "doctor": ()}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("file", sorted(path.name for path in HOSTILE.iterdir()))
def test_hostile_files_end_in_a_result_or_in_one_line(file, verb, run):
    code, out, err = run(verb, HOSTILE / file, *VERBS[verb])
    assert (code, bool(out), err.count("\n")) in [(0, True, 0), (1, False, 1)]
    assert "bug in tracekit" not in err


UNTIMED = {"no duration": {"dur": None}, "overflowed": {"dur": 1e13}, "zeros": {"ts": 0, "dur": 0}, "far": {"ts": 9e18}}


@pytest.mark.parametrize("times", UNTIMED)
@pytest.mark.parametrize("category", ["cuda_sync", "overhead", "user_annotation", "cpu_op", "gpu_memset"])
def test_a_table_without_a_usable_time_is_as_good_as_none(category, times, run, tmp_path):
    document = json.loads((HOSTILE / "dur_zero_all.json").read_text())
    kept = [event for event in document["traceEvents"] if event["cat"] != category]
    event = {"ph": "X", "cat": category, "name": "alone", "pid": 0, "tid": 7, "ts": 1500, "dur": 5, "args": {}}
    documents = {"without": kept, "with": [*kept, event | UNTIMED[times]]}
    for name, events in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document | {"traceEvents": events}))
    reports = [json.loads(run("report", tmp_path / f"{name}.json", "--json")[1]) for name in documents]
    assert "1 events without a time were left out" in reports[1]["warnings"]
    assert [report["source"]["kernel_time_us"] for report in reports] == [reports[0]["source"]["kernel_time_us"]] * 2


@pytest.mark.parametrize("times", UNTIMED)
@pytest.mark.parametrize("verb", VERBS)
def test_a_trace_without_any_usable_time_is_one_line(verb, times, run, tmp_path):
    document = json.loads((HOSTILE / "dur_zero_all.json").read_text())
    document["traceEvents"] = [event | UNTIMED[times] for event in document["traceEvents"]]
    (tmp_path / "trace.json").write_text(json.dumps(document))
    code, out, err = run(verb, tmp_path / "trace.json", *VERBS[verb])
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert f"holds {len(document['traceEvents'])} events, but none with a usable time" in err
