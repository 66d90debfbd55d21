import sys

import pytest

from tracekit.errors import TracekitError
from tracekit.testing import TraceBuilder


@pytest.fixture
def trace():
    return TraceBuilder().op("aten::mm", 0, 9).kernel("k", 9, 9, launch=1).kernel("l", 19, 9).load()


def test_frames_hold_what_the_tables_hold(trace):
    pytest.importorskip("pandas")
    frames = trace.to_pandas()
    tables = trace.to_polars()
    assert list(frames) == list(tables)
    for name, table in tables.items():
        assert list(frames[name].columns) == table.columns
        assert [
            tuple(row) for row in frames[name].astype(object).where(frames[name].notna(), None).values
        ] == table.rows()


def test_whole_numbers_stay_whole_where_some_are_missing(trace):
    pytest.importorskip("pandas")
    assert str(trace.to_pandas()["activities"]["bytes"].dtype) == "Int64"
    assert str(trace.to_pandas()["activities"]["ts_ns"].dtype) == "int64"


def test_frames_can_be_changed_without_changing_the_trace(trace):
    pytest.importorskip("pandas")
    before = trace.to_polars()["activities"]
    frame = trace.to_pandas()["activities"]
    frame["dur_ns"] += 1
    frame.loc[0, "bytes"] = 1
    assert trace.to_polars()["activities"].equals(before)


@pytest.mark.parametrize(
    ("module", "method", "install"),
    [("pandas", "to_pandas", "pip install pandas"), ("hta", "to_hta", "`pip install 'tracekit-gpu[hta]'`")],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(trace, monkeypatch, module, method, install):
    for name in [name for name in sys.modules if name == module or name.startswith(f"{module}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TracekitError) as refused:
        getattr(trace, method)()
    assert install in str(refused.value)
    assert "\n" not in str(refused.value)
