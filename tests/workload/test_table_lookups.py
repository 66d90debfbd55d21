"""Look-ups in embedding tables and updates of their rows: by hand, by simulation, and what holds for all of them."""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictors import predict
from tests.kernels import kernel_of
from tracekit.models.lookups import IndexDistribution, ZipfPattern, get_distribution, join_distributions
from tracekit.workload.ops.embedding import BAG_CLOCKS, BAG_LOAD_CLOCKS
from tracekit.workload.ops.table_lookups import BAG_CLOCKS as FBGEMM_BAG_CLOCKS
from tracekit.workload.ops.table_lookups import (
    OPTIMIZER_STATE,
    ROW_CLOCKS,
    Placement,
    TableLookup,
    compute_cache_fill,
    compute_fbgemm_lookup,
    compute_lookup_columns,
    compute_update_columns,
)

EVEN = ZipfPattern(0.0)
# One row, of which 4 of 10 draws are all of one table's.
ONE_ROW = TableLookup(rows=1, width=8, indices=10, bags=5, pattern=EVEN)

tables = st.builds(
    TableLookup,
    rows=st.integers(1, 10**9),
    width=st.sampled_from([1, 16, 82, 128]),
    indices=st.integers(1, 10**6),
    bags=st.integers(1, 10**5),
    weight_bytes=st.sampled_from([1.0, 2.0, 4.0]),
    pattern=st.sampled_from([None, EVEN, ZipfPattern(1.05), ZipfPattern(2.0)]),
    placement=st.sampled_from(Placement),
    tables=st.integers(1, 4),
)


def test_a_row_drawn_again_comes_from_the_cache():
    columns = compute_lookup_columns([ONE_ROW])
    # One row of 8 numbers, 5 sums, 10 indices, 5 starts and an end.
    assert columns["bytes"] == 8 * 4 + 5 * 8 * 4 + (10 + 5 + 1) * 8
    assert columns["accessed_bytes"] - columns["bytes"] == pytest.approx(9 * 8 * 4, abs=8)
    assert columns["reuse_bytes"] == pytest.approx(8 * 4)
    assert columns["distinct_bytes"] == pytest.approx(8 * 4)
    assert (columns["rows"], columns["cols"], columns["flops"]) == (10, 8, 80)


def test_the_rows_of_one_of_equal_tables_are_what_a_cache_must_hold():
    table = TableLookup(rows=1000, width=16, indices=100_000, bags=1000, pattern=EVEN, tables=8)
    columns = compute_lookup_columns([table, replace(table, rows=10, tables=1)])
    assert columns["distinct_bytes"] == pytest.approx(1000 * 16 * 4)
    assert columns["reuse_bytes"] == pytest.approx(columns["distinct_bytes"] / 2, rel=0.01)


def test_rows_in_the_hosts_memory_come_over_the_link():
    row = TableLookup(rows=1, width=8, indices=10, bags=5, pattern=EVEN, placement=Placement.MANAGED)
    columns = compute_lookup_columns([row])
    # Nine times the row is drawn again, of which 45 % come over the link.
    assert columns["host_bytes"] == pytest.approx(32 * (1 + 4.05))
    assert columns["bytes"] == 5 * 8 * 4 + 16 * 8


def test_bags_of_pytorch_take_as_long_as_an_h200_measured():
    """8,192 bags of 1 and of 20 rows, 128 wide: 11.8 and 39.1 us."""
    kernel = "void at::native::EmbeddingBag_updateOutputKernel_sum_mean<float, long>"
    types = ["float", "long int", "long int"]
    rows = [kernel_of("aten::_embedding_bag", kernel, [[10**5, 128], [8192 * n], [8192]], types) for n in (1, 20)]
    times = predict(pl.DataFrame(rows, infer_schema_length=None), "h200-sxm")["time_us"].to_list()
    assert times == pytest.approx([11.8, 39.1], rel=0.15)


def test_a_table_of_fewer_rows_than_indices_is_read_once():
    """1,000 indices of 8 bytes pick rows of 64 floats: each is written; all of 10 rows are read, 1,000 of 5,000."""
    types = ["float", "long int"]
    small, large = (
        kernel_of("aten::embedding", "indexSelectLargeIndex", [[rows, 64], [1000]], types)["bytes"]
        for rows in (10, 5000)
    )
    assert small == (10 + 1000) * 64 * 4 + 1000 * 8
    assert large == (1000 + 1000) * 64 * 4 + 1000 * 8


@pytest.mark.parametrize(
    ("optimizer", "state"), [("sgd", 0), ("rowwise_adagrad", 4), ("adagrad", 4 * 8), ("adam", 8 * 8), ("lamb", 8 * 8)]
)
@pytest.mark.parametrize("placement", Placement)
def test_an_update_changes_each_different_row_and_its_state(optimizer, state, placement):
    row = TableLookup(rows=1, width=8, indices=10, bags=5, pattern=EVEN, placement=placement)
    columns = compute_update_columns([row], optimizer)
    assert columns is not None
    read = 10 * (8 * 4 + 8 + 4)
    weights, states = 2 * 32, 2 * state
    on_gpu = {Placement.DEVICE: weights + states, Placement.MANAGED_CACHING: weights, Placement.MANAGED: 0}[placement]
    assert columns["bytes"] == read + on_gpu
    assert 2 * columns.get("host_bytes", 0) == weights + states - on_gpu


def test_a_cache_is_filled_with_the_rows_that_it_lacks():
    """Of 1,000 rows drawn evenly, a cache of all has none to fetch; one of half lacks half of those drawn."""
    table = TableLookup(1000, 8, 10_000, 10_000, pattern=EVEN, placement=Placement.MANAGED_CACHING, cached_fraction=0.5)
    assert table.expect_missed() == pytest.approx(500, rel=0.01)
    assert replace(table, cached_fraction=1.0).expect_missed() == 0
    columns = compute_cache_fill([table])
    assert columns["host_bytes"] == pytest.approx(32 * np.sqrt(500 * 1000), rel=0.01)
    assert columns["work_low"] * columns["host_bytes"] == pytest.approx(32 * 500, rel=0.01)
    assert columns["work_high"] * columns["host_bytes"] == pytest.approx(32 * 1000, rel=0.01)
    unknown = compute_cache_fill([replace(table, pattern=None)])
    assert unknown["work_low"] < columns["work_low"]


def test_an_unknown_optimizer_has_no_known_work():
    assert compute_update_columns([ONE_ROW], "shampoo") is None


@pytest.mark.parametrize(("width", "bags"), [(8, 4), (32, 4), (33, 2), (64, 2), (65, 1), (512, 1)])
def test_a_warp_of_fbgemm_waits_for_each_row_of_its_bags(width, bags):
    columns = compute_fbgemm_lookup([TableLookup(rows=1, width=width, indices=10, bags=5, pattern=EVEN)])
    assert columns["warp_clocks"] == (5 * FBGEMM_BAG_CLOCKS + 10 * ROW_CLOCKS) / bags
    assert columns["serial_clocks"] == FBGEMM_BAG_CLOCKS + 2 * ROW_CLOCKS


def test_a_warp_of_pytorch_takes_32_columns_of_a_bag():
    """40 rows of 64 halves, in 8 bags: two warps a bag, with five rows each."""
    kernel = "void at::native::EmbeddingBag_updateOutputKernel_sum_mean<c10::Half, long>"
    row = kernel_of("aten::_embedding_bag", kernel, [[5000, 64], [40], [8]], ["c10::Half", "long int", "long int"])
    unique = get_distribution(5000).expect_unique(40)
    assert row["bytes"] == round((unique + 8) * 64 * 2 + 8 * 48) + 8
    assert row["warp_clocks"] == 16 * (BAG_CLOCKS + 5 * BAG_LOAD_CLOCKS)
    assert row["serial_clocks"] == BAG_CLOCKS + 5 * BAG_LOAD_CLOCKS


@given(tables)
def test_a_bracket_holds_the_likely_and_nothing_is_moved_twice(table):
    for columns in (compute_lookup_columns([table]), compute_update_columns([table], "adam")):
        assert columns is not None
        assert columns["bytes"] >= 0
        assert columns.get("accessed_bytes", columns["bytes"]) >= columns["bytes"] - 8
        assert columns.get("work_low", 1.0) <= 1 <= columns.get("work_high", 1.0)
        assert ("work_low" in columns) <= (table.pattern is None)


@given(st.lists(tables, min_size=1, max_size=3), st.sampled_from(sorted(OPTIMIZER_STATE)))
def test_tables_add_up(several, optimizer):
    whole = compute_update_columns(several, optimizer)
    single = [compute_update_columns([one], optimizer) for one in several]
    assert whole is not None
    assert whole["bytes"] == pytest.approx(sum(one["bytes"] for one in single), abs=len(several))


@pytest.mark.parametrize(("rows", "alpha", "draws"), [(1000, 0.0, 5000), (1000, 1.05, 5000), (20_000, 1.05, 20_000)])
def test_half_of_the_rows_drawn_again_are_in_the_cache(rows, alpha, draws):
    """Counted in a cache that drops what was used least recently."""
    held = round(get_distribution(rows, alpha).expect_reuse_rows(draws))
    share = np.arange(1, rows + 1) ** -alpha
    cache: OrderedDict[int, None] = OrderedDict()
    seen: set[int] = set()
    hits = again = 0
    for index in np.random.default_rng(0).choice(rows, draws, p=share / share.sum()).tolist():
        again += index in seen
        hits += index in cache
        seen.add(index)
        cache[index] = cache.pop(index, None)
        if len(cache) > held:
            cache.popitem(last=False)
    assert hits / again == pytest.approx(0.5, abs=0.05)


def test_a_cache_of_the_most_frequent_rows():
    """Of 3 rows drawn with 6/11, 3/11 and 2/11."""
    drawn = get_distribution(3, 1.0)
    assert [drawn.expect_hits(rows) for rows in (0, 1, 2, 3, 9)] == pytest.approx([0, 6 / 11, 9 / 11, 1, 1])


def test_the_mean_of_two_tables():
    one, other = IndexDistribution(np.ones(1), np.ones(1)), IndexDistribution(np.array([4.0]), np.array([0.25]))
    both = join_distributions([one, other])
    assert both.expect_unique(2) == pytest.approx((1 + 1.75) / 2)
    assert both.expect_hits(1) == pytest.approx((1 + 0.25) / 2)


@pytest.mark.parametrize("gpu", ["t4", "v100-sxm-16gb", "h100-sxm", "mi300x"])
def test_more_work_takes_longer(gpu):
    base = TableLookup(rows=10**6, width=128, indices=65536, bags=8192, pattern=ZipfPattern(1.05), tables=8)
    cases = [
        base,
        TableLookup(rows=10**6, width=128, indices=131072, bags=8192, pattern=ZipfPattern(1.05), tables=8),
        TableLookup(rows=10**6, width=128, indices=131072, bags=8192, pattern=EVEN, tables=8),
        TableLookup(10**6, 128, 131072, 8192, 4.0, EVEN, Placement.MANAGED, 8),
    ]
    kernels = pl.DataFrame([{"family": "embedding", "dtype": "fp32"} | compute_fbgemm_lookup([one]) for one in cases])
    times = predict(kernels, gpu)
    assert times["time_us"].is_sorted()
    assert (times["bound_us"] <= times["time_us"]).all()


def test_even_draws_of_a_table_that_the_cache_holds_all_hit():
    """An H100's L2 holds 34 MB, of which a table has 24; half of its rows would need 12."""
    row = {"family": "embedding", "dtype": "fp32", "rows": 1e6, "cols": 128, "bytes": 4e8, "accessed_bytes": 1e10}
    row["warp_clocks"] = 0.0
    again = [{"reuse_bytes": 12e6, "distinct_bytes": size} for size in (24e6, 68e6, None)] + [{"reuse_bytes": 1.0}]
    times = predict(pl.DataFrame([row | one for one in again]), "h100-sxm")["time_us"].to_list()
    assert times[0] == pytest.approx(times[3], rel=1e-3)
    assert times[0] < times[1] < times[2]
