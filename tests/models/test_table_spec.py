"""How users write embedding tables."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.codes import has_code
from tracekit.bounds import MAX_POOLING, MAX_TABLE_ROWS, MAX_TABLE_WIDTH, MAX_TABLES, MAX_ZIPF_ALPHA
from tracekit.errors import RequestError
from tracekit.models.captured import CaptureFacts
from tracekit.models.dlrm import TableSpec, parse_table_spec
from tracekit.models.lookups import TableSkews, find_table_skews


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("1000x128", TableSpec(1, 1000, 128, 1.0, None)),
        ("40Mx128", TableSpec(1, 40_000_000, 128)),
        ("1.1Mx64:2.5", TableSpec(1, 1_100_000, 64, 2.5)),
        ("26*1000000x128:20", TableSpec(26, 1_000_000, 128, 20.0)),
        (" 3 * 2k x 16 : 4 : 0 ", TableSpec(3, 2_000, 16, 4.0, 0.0)),
        ("1Gx8:1:1.2", TableSpec(1, 1_000_000_000, 8, 1.0, 1.2)),
    ],
)
def test_a_table_is_written_in_one_word(text: str, spec: TableSpec) -> None:
    assert parse_table_spec(text) == spec


@pytest.mark.parametrize(
    "text",
    ["", "1000", "x128", "1000x", "1.5x8", "-3x8", "1ex8", "1000x128:", "1000x128:1:1:1", "1e6x8", "nanx8"],
)
def test_what_is_no_table_is_refused(text: str) -> None:
    with pytest.raises(RequestError, check=has_code("table-malformed")):
        parse_table_spec(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("0x8", "rows"),
        ("2000Gx8", "rows"),
        ("10x0", "width"),
        ("10x65537", "width"),
        ("0*10x8", "count"),
        ("10001*10x8", "count"),
        ("10x8:1000001", "pooling"),
        ("10x8:1:5.1", "alpha"),
    ],
)
def test_a_number_that_no_table_has_is_named(text: str, name: str) -> None:
    with pytest.raises(RequestError, check=has_code("table-beyond-bounds")) as refused:
        parse_table_spec(text)
    assert f" as its {name}." in str(refused.value)


@given(
    st.builds(
        TableSpec,
        count=st.integers(1, MAX_TABLES),
        rows=st.integers(1, MAX_TABLE_ROWS),
        width=st.integers(1, MAX_TABLE_WIDTH),
        pooling=st.integers(0, 8 * MAX_POOLING).map(lambda eighths: eighths / 8),
        alpha=st.none() | st.integers(0, 8 * MAX_ZIPF_ALPHA).map(lambda eighths: eighths / 8),
    )
)
def test_a_table_that_is_written_out_is_read_as_it_was(spec: TableSpec) -> None:
    skew = "" if spec.alpha is None else f":{spec.alpha}"
    assert parse_table_spec(f"{spec.count}*{spec.rows}x{spec.width}:{spec.pooling}{skew}") == spec


def test_tables_of_one_size_have_their_mean_skew() -> None:
    def find(*tables: TableSpec) -> Mapping[int, float] | None:
        found = find_table_skews(CaptureFacts("l4", 0, 0, 0, 0, False, tables=tables))
        return found.alphas if isinstance(found, TableSkews) else None

    assert find(TableSpec(1, 7, 8), TableSpec(2, 9, 8)) is None
    assert find() is None
    assert find_table_skews(None) is None
    assert find(TableSpec(3, 7, 8, alpha=0.4), TableSpec(1, 7, 8, alpha=2.0), TableSpec(1, 9, 8)) == {
        7: pytest.approx(0.8),
        9: 1.05,
    }
