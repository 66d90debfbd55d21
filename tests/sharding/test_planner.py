"""Plans of sharded tables: against the exact best, invariants, and by hand."""

from dataclasses import replace

import msgspec
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.validation.exact_sharding import measure_excess
from tracekit.comm import load_cluster, predict
from tracekit.models.lookups import IndexDistribution, RecordedPattern, ZipfPattern
from tracekit.parallelism.sharded_tables import ExchangeGroup
from tracekit.sharding import PlannedTable, ShardingSetting, plan_sharding
from tracekit.sharding.candidates import (
    ComputeKernel,
    ShardingType,
    TableOption,
    compute_host_bytes,
    compute_row_shares,
    compute_shard_bytes,
    describe_shard,
    list_options,
)
from tracekit.sharding.loads import Exchange, Load, build_candidates, predict_times
from tracekit.sharding.plan import PartTime, encode_torchrec_plan
from tracekit.sharding.planner import BEST, evaluate_assignment
from tracekit.sharding.search import Assignment, allow_all, assign_greedily, compute_rank_us, improve
from tracekit.sharding.tables import ShardingError

EIGHT = ShardingSetting(load_cluster("8xh100-sxm"), batch=1024)
TWO_NODES = ShardingSetting(load_cluster("2x8xh100-sxm@ndr400"), batch=1024)
TABLE = PlannedTable("user", rows=1_000_000, width=128, pooling=20.0, pattern=ZipfPattern(1.05))

tables_of_any_kind = st.lists(
    st.builds(
        lambda rows, width, pooling, alpha: (rows, width, pooling, alpha),
        st.sampled_from([3, 1000, 10**6, 4 * 10**7, 3 * 10**8]),
        st.sampled_from([16, 64, 128, 256]),
        st.sampled_from([1.0, 5.0, 40.0]),
        st.sampled_from([None, 0.0, 1.2]),
    ),
    min_size=1,
    max_size=12,
)


def name_tables(kinds):
    patterns = {alpha: None if alpha is None else ZipfPattern(alpha) for *_, alpha in kinds}
    return [
        PlannedTable(f"table_{number}", rows, width, pooling, patterns[alpha])
        for number, (rows, width, pooling, alpha) in enumerate(kinds)
    ]


@pytest.mark.heavy
def test_plans_are_within_five_percent_of_the_best():
    excess = [measure_excess(seed) for seed in range(60)]
    assert min(excess) > -1e-9
    assert np.quantile(excess, 0.95) <= 0.05


def test_what_a_shard_looks_up_by_hand():
    """8 ranks of 1,024 samples: 163,840 rows for the owner of a table, 20,480 for each of eight owners of its rows."""
    whole = describe_shard(TABLE, TableOption(ShardingType.TABLE_WISE), EIGHT)
    assert (whole.rows, whole.width, whole.indices, whole.bags) == (10**6, 128, 163_840, 8192)
    half = describe_shard(TABLE, TableOption(ShardingType.COLUMN_WISE, columns=2), EIGHT)
    assert (half.rows, half.width, half.indices, half.bags) == (10**6, 64, 163_840, 8192)
    rows = describe_shard(TABLE, TableOption(ShardingType.ROW_WISE), EIGHT)
    assert (rows.rows, rows.width, rows.indices, rows.bags) == (125_000, 128, 20_480, 8192)
    copy = describe_shard(TABLE, TableOption(ShardingType.DATA_PARALLEL), EIGHT)
    assert (copy.rows, copy.indices, copy.bags) == (10**6, 20_480, 1024)


def test_a_grid_splits_columns_over_nodes_and_rows_in_them():
    """Each of 16 ranks sums up half the columns of an eighth of 327,680 rows; its node reduces 16,384 sums of 64."""
    option = TableOption(ShardingType.GRID, columns=2)
    part = describe_shard(TABLE, option, TWO_NODES)
    assert (part.rows, part.width, part.indices, part.bags) == (125_000, 64, 40_960, 16_384)
    candidates = build_candidates([TABLE], TWO_NODES)
    choice = next(place for place, way in enumerate(candidates[0]) if way.option == option)
    assert candidates[0][choice].load[[Load.NODE, Load.RAIL]].tolist() == [16_384 * 64 * 4, 16_384 * 64 * 4 / 8]
    assignment = Assignment(candidates, Exchange(TWO_NODES))
    (ranks,) = assignment.find_ranks(0, [choice])
    assert ranks.tolist() == [*range(16)]
    assignment.put(0, choice, ranks)
    shards = evaluate_assignment("grid", [TABLE], assignment).shards
    assert shards["column"].to_list() == [0] * 8 + [64] * 8
    assert shards["row"].to_list() == [*range(0, 10**6, 125_000)] * 2
    assert set(shards.select("rows", "columns").rows()) == {(125_000, 64)}


def test_the_rank_of_a_hot_row_has_more_to_do():
    """One row is drawn half the time: its owner has 0.5 and an eighth of the other half, the rest 0.0625 each."""
    pattern = RecordedPattern(IndexDistribution(np.array([1.0, 1000.0]), np.array([0.5, 0.0005])))
    table = replace(TABLE, rows=1001, pattern=pattern)
    shares = compute_row_shares(table, 8)
    assert np.sort(shares).tolist() == pytest.approx([0.0625] * 7 + [0.5625])
    option, hot = TableOption(ShardingType.ROW_WISE), int(shares.argmax())
    part = describe_shard(table, option, EIGHT, hot)
    assert part.indices == pytest.approx(0.5625 * 163_840)
    assert part.expect_most_frequent() == pytest.approx(81_920)
    assert part.expect_unique() == pytest.approx(126, abs=0.5)
    assert describe_shard(table, option, EIGHT, (hot + 1) % 8).expect_unique() == pytest.approx(125, abs=0.5)
    candidates = build_candidates([table], EIGHT)
    choice = next(place for place, way in enumerate(candidates[0]) if way.option == option)
    assignment = Assignment(candidates, Exchange(EIGHT))
    assignment.put(0, choice, np.arange(8))
    assert assignment.loads[:, Load.INDICES] == pytest.approx(8 * 163_840 * shares)
    plan = evaluate_assignment("rows", [table], assignment)
    assert plan.parts[0].rank == hot
    assert plan.ranks["update_us"].arg_max() == hot
    assert plan.imbalance > 1.2


def test_the_memory_of_a_shard_by_hand():
    """A million rows of 512 bytes and 4 of row-wise Adagrad; sums of 8,192 samples and their gradients; indices."""
    held = compute_shard_bytes(TABLE, TableOption(ShardingType.TABLE_WISE), EIGHT)
    assert held == 10**6 * (512 + 4) + 2 * 8192 * 128 * 4 + 163_840 * 8
    part = compute_shard_bytes(TABLE, TableOption(ShardingType.ROW_WISE), EIGHT)
    assert part == 10**6 * (512 + 4) / 8 + 2 * 8192 * 128 * 4 + 20_480 * 8


def test_a_replica_holds_a_dense_gradient_too():
    """A million rows of 512 bytes, as many of their gradient, and 4 of the optimizer; sums of the rank's samples."""
    held = compute_shard_bytes(TABLE, TableOption(ShardingType.DATA_PARALLEL, ComputeKernel.DENSE), EIGHT)
    assert held == 10**6 * (512 + 512 + 4) + 2 * 1024 * 128 * 4 + 20_480 * 8


def test_a_small_replica_adds_no_launch_to_those_of_others():
    """Four rows of 64 bytes are updated in no time: a pass over replicas starts once, not for each of them."""
    (ways,) = build_candidates([PlannedTable("tiny", 4, 16, pattern=ZipfPattern(0.0))], EIGHT)
    copied = next(way for way in ways if way.option.type is ShardingType.DATA_PARALLEL)
    launch_us = predict_times([{"bytes": 1.0}], True, EIGHT)["time_us"].item()
    assert 0 < copied.load[Load.UPDATE] < 0.1 < launch_us


def test_sums_of_rows_are_scattered_and_their_gradients_gathered():
    """Of 8,192 samples and 128 numbers of 4 bytes: 4 MiB."""
    (ways,) = build_candidates([TABLE], EIGHT)
    choice = next(n for n, way in enumerate(ways) if way.option.type is ShardingType.ROW_WISE)
    assignment = Assignment([ways], Exchange(EIGHT))
    assignment.put(0, choice, np.arange(8))
    parts = {part.name: part.time_us for part in evaluate_assignment("rows", [TABLE], assignment).parts}
    for name, collective in (("sums", "reduce_scatter"), ("gradients", "all_gather")):
        call = {"collective": [collective], "bytes": [2**22], "ranks": [8], "dtype": ["fp32"]}
        assert parts[name] == pytest.approx(predict(pl.DataFrame(call), EIGHT.cluster)["time_us"].item(), rel=1e-6)


def test_a_cache_of_a_hosted_table_takes_a_fifth_of_its_weights():
    cached = TableOption(ShardingType.TABLE_WISE, ComputeKernel.CACHED)
    without = TableOption(ShardingType.TABLE_WISE, ComputeKernel.HOST)
    held = [compute_shard_bytes(TABLE, option, EIGHT) for option in (cached, without)]
    assert held[0] - held[1] == pytest.approx(0.2 * 10**6 * 512)
    assert compute_host_bytes(TABLE, cached, EIGHT) == compute_host_bytes(TABLE, without, EIGHT) == 10**6 * (512 + 4)


def test_a_cache_of_a_hosted_table_is_filled_before_the_look_up():
    """Filling it takes longer than the look-up, but not as long as reading all rows over the link."""
    ways = {way.option.kernel: way for way in build_candidates([TABLE], EIGHT, on_host=True)[0] if way.shards == 1}
    kinds = (ComputeKernel.FUSED, ComputeKernel.CACHED, ComputeKernel.HOST)
    fused, cached, hosted = (ways[kind].load[Load.LOOKUP] for kind in kinds)
    assert 2 * fused < cached < hosted


def test_ways_to_shard_a_table():
    assert [option.label for option in list_options(TABLE, EIGHT)] == [
        "table_wise", "column_wise over 2", "column_wise over 4", "row_wise", "data_parallel",
        "table_wise, in host memory with a cache", "column_wise over 2, in host memory with a cache",
        "column_wise over 4, in host memory with a cache", "row_wise, in host memory with a cache",
        "table_wise, in host memory", "column_wise over 2, in host memory", "column_wise over 4, in host memory",
        "row_wise, in host memory",
    ]  # fmt: skip
    between_nodes = [option.label for option in list_options(TABLE, TWO_NODES)]
    assert {"table_row_wise", "grid_shard over 2 nodes"} <= {*between_nodes}
    assert "grid_shard over 4 nodes" not in between_nodes
    narrow = PlannedTable("narrow", rows=4, width=16)
    assert [option.label for option in list_options(narrow, EIGHT)] == [
        "table_wise", "data_parallel", "table_wise, in host memory with a cache", "table_wise, in host memory",
    ]  # fmt: skip


def check_plan(plan, tables):
    """Check that the shards of each table cover it once, and that no rank holds more than it can."""
    assert [one.table for one in plan.tables] == tables
    for one in plan.tables:
        held = sum(shard.rows * shard.columns for shard in one.shards)
        copies = len(one.shards) if one.type is ShardingType.DATA_PARALLEL else 1
        assert held == copies * one.table.rows * one.table.width
        assert len({shard.rank for shard in one.shards}) == len(one.shards)
        places = sorted((shard.row, shard.column) for shard in one.shards if shard.rows)
        assert copies > 1 or len(set(places)) == len(places)
    assert (plan.ranks["memory_bytes"] <= plan.ranks["capacity_bytes"] * (1 + 1e-9)).all()
    assert plan.low_us <= plan.time_us <= plan.high_us


@pytest.mark.heavy
@settings(max_examples=15, deadline=None)
@given(tables_of_any_kind, st.sampled_from([EIGHT, TWO_NODES]))
def test_every_plan_holds_every_table(kinds, setting):
    tables = name_tables(kinds)
    found = plan_sharding(tables, setting)
    assert BEST in [plan.name for plan in found.plans]
    for plan in found.plans:
        check_plan(plan, tables)
    assert found.to_polars()["time_us"].is_sorted()


def test_the_same_tables_give_the_same_plan():
    tables = name_tables([(10**6, 128, 20.0, 1.05), (4 * 10**7, 64, 1.0, None), (1000, 16, 1.0, None)] * 5)
    assert plan_sharding(tables, EIGHT).best.tables == plan_sharding(tables, EIGHT).best.tables


def test_the_best_plan_is_no_slower_than_the_others():
    tables = name_tables([(10**6, 128, 20.0, 1.05)] * 3 + [(10**7, 256, 1.0, 1.05)] * 5)
    candidates, exchange = build_candidates(tables, EIGHT), Exchange(EIGHT)
    start = assign_greedily(candidates, exchange, allow_all)
    assert start is not None
    assert improve(start, allow_all).compute_step_us() <= start.compute_step_us()


def test_loads_are_those_of_the_shards():
    """Tables that are put and taken away leave nothing."""
    candidates, exchange = build_candidates([TABLE, TABLE], EIGHT), Exchange(EIGHT)
    assignment = Assignment(candidates, exchange)
    assignment.put(0, 0, np.array([3]))
    assert assignment.loads[3].tolist() == candidates[0][0].load.tolist()
    assignment.put(1, 3, np.arange(8))
    assignment.take(1)
    assignment.take(0)
    assert np.abs(assignment.loads).max() < 1e-6
    assert np.abs(assignment.shared_bytes).max() < 1e-6


def test_an_exchange_takes_as_long_as_its_all_to_all():
    """The owner of a table has sums of 2 ranks with 1,024 samples each: a buffer of 1 MiB, half of which it sends."""
    two = ShardingSetting(load_cluster("2xa100-sxm-80gb"), batch=1024)
    assignment = Assignment(build_candidates([TABLE], two), Exchange(two))
    assignment.put(0, 0, np.array([1]))
    plan = evaluate_assignment("owned", [TABLE], assignment)
    call = {"collective": ["all_to_all"], "bytes": [2 * 1024 * 128 * 4], "ranks": [2], "dtype": ["fp32"]}
    sums = next(part for part in plan.parts if part.name == "sums")
    assert sums.time_us == pytest.approx(predict(pl.DataFrame(call), two.cluster)["time_us"].item(), rel=0.02)
    assert plan.ranks["sent_bytes"].to_list() == [0, 1024 * 128 * 4]


def test_torchrec_takes_the_plans():
    """Its types are made of them, and PyTorch finds that the shards of each table cover it without overlap."""
    types = pytest.importorskip("torchrec.distributed.types")
    kernels = pytest.importorskip("torchrec.distributed.embedding_types").EmbeddingComputeKernel
    specs = pytest.importorskip("torch.distributed._shard.sharding_spec")
    shards = pytest.importorskip("torch.distributed._shard.metadata")
    tensors = pytest.importorskip("torch.distributed._shard.sharded_tensor.metadata")
    small = replace(TABLE, name="small", rows=1003)
    for plan in plan_sharding([TABLE, small], TWO_NODES).plans:
        for name, told in msgspec.json.decode(encode_torchrec_plan(plan, "sparse"))["sparse"].items():
            spec = told.pop("sharding_spec")
            spec = spec and specs.EnumerableShardingSpec([shards.ShardMetadata(**shard) for shard in spec["shards"]])
            parameter = types.ParameterSharding(**told, sharding_spec=spec)
            assert types.ShardingType(parameter.sharding_type).value == told["sharding_type"]
            assert kernels(parameter.compute_kernel).value == told["compute_kernel"]
            if spec:
                rows = small.rows if name == "small" else TABLE.rows
                placed = spec.build_metadata((rows, TABLE.width), tensors.TensorProperties()).shards_metadata
                assert [shard.placement.rank() for shard in placed] == told["ranks"]


def test_sums_go_there_and_their_gradients_back():
    """4 MiB of a rank, twice; and as much between nodes, twice."""
    exchange = Exchange(TWO_NODES)
    for load, group in ((Load.SENT, ExchangeGroup.ALL), (Load.RAIL, ExchangeGroup.RAIL)):
        loads = np.zeros(len(Load))
        loads[load] = 2**22
        one_way_us = exchange.compute_us("all_to_all", 2**22, group)
        assert compute_rank_us(loads, exchange) == pytest.approx(2 * one_way_us)


def test_the_last_ranks_of_a_small_table_hold_fewer_rows():
    """10 rows over 8 ranks, 2 each: nothing is left for the last three."""
    small = PlannedTable("small", 10, 16, pattern=ZipfPattern(0.0))
    (ways,) = build_candidates([small], EIGHT)
    assignment = Assignment([ways], Exchange(EIGHT))
    choice = next(n for n, way in enumerate(ways) if way.option.type is ShardingType.ROW_WISE)
    assignment.put(0, choice, np.arange(8))
    shards = evaluate_assignment("rows", [small], assignment).shards
    assert shards["rows"].to_list() == [2, 2, 2, 2, 2, 0, 0, 0]


def test_the_interval_of_a_plan_by_hand():
    """Look-ups and updates add up where rows are unknown; else their errors are as those of other kernels."""
    parts = (PartTime("lookup", 100, 80, 130), PartTime("update", 100, 70, 150), PartTime("sums", 100, 90, 120))
    plan = replace(plan_sharding([TABLE], EIGHT).best, parts=parts)
    unknown = replace(plan, tables=tuple(replace(one, table=replace(TABLE, pattern=None)) for one in plan.tables))
    alone, in_families = (1 - 0.4**2) * (30**2 + 50**2), np.array([0.4 * 30, 0.4 * 50, 20])
    for found, square in (
        (plan, alone + 0.8 * (in_families**2).sum() + 0.2 * in_families.sum() ** 2),
        (unknown, 0.8 * (80**2 + 20**2) + 0.2 * 100**2),
    ):
        assert found.high_us == pytest.approx(300 + np.sqrt(square))
        assert found.low_us < found.time_us == 300


def test_nodes_reduce_their_own_tables_at_the_same_time():
    """Sums of 16 ranks with 1,024 samples each: twice those of a table on one node, as many on each of two."""
    candidates, exchange = build_candidates([TABLE, TABLE], TWO_NODES), Exchange(TWO_NODES)
    way = next(n for n, one in enumerate(candidates[0]) if one.option.type is ShardingType.TABLE_ROW_WISE)
    together, apart = (Assignment(candidates, exchange) for _ in range(2))
    for table in range(2):
        together.put(table, way, np.arange(8))
        apart.put(table, way, np.arange(8) + 8 * table)
    sums = 16 * 1024 * 128 * 4
    assert together.loads[:, Load.NODE].tolist() == [2 * sums] * 8 + [0] * 8
    assert apart.loads[:, Load.NODE].tolist() == [sums] * 16
    assert apart.compute_step_us() < together.compute_step_us()


def test_one_heavy_table_is_split():
    """A table of most of the look-ups makes its owner wait, unless its columns or rows are split."""
    heavy = PlannedTable("heavy", 10**6, 256, 200.0, ZipfPattern(0.0))
    light = [PlannedTable(f"light_{number}", 1000, 16, 1.0, ZipfPattern(0.0)) for number in range(4)]
    found = plan_sharding([heavy, *light], EIGHT).best
    assert len(found.tables[0].shards) > 1
    assert found.imbalance < 2


def test_tables_that_fit_no_gpu_lie_in_the_hosts_memory():
    huge = PlannedTable("huge", 4 * 10**8, 16, 1.0, ZipfPattern(1.05), optimizer="adam")
    one = ShardingSetting(load_cluster("2xl4"), batch=1024)
    found = plan_sharding([huge, huge], one)
    assert {str(each.kernel) for each in found.best.tables} == {"fused_uvm_caching"}
    assert "sharding-on-host" in [note.code for note in found.notes]


A100S = ShardingSetting(load_cluster("8xa100-sxm-80gb"), batch=4096)
HUGE = PlannedTable("huge", 4 * 10**9, 128, 10.0, ZipfPattern(1.05))
"""2,048 GB, and 16 GB of row-wise Adagrad: 1,922 GiB, which a DGX A100's host of 2,048 GiB holds."""


def test_a_huge_table_is_split_by_rows_over_the_hosts_memory():
    """Each rank fetches an eighth of the rows over its own link; one rank alone would fetch all of them."""
    found = plan_sharding([HUGE], A100S)
    best = found.best
    assert (best.tables[0].type, str(best.tables[0].kernel)) == (ShardingType.ROW_WISE, "fused_uvm_caching")
    assert 1.0 < best.imbalance < 1.5
    assert 300 < best.time_us < 900
    assert best.ranks["host_bytes"].to_list() == pytest.approx([4e9 * (512 + 4) / 8] * 8)
    note = next(note for note in found.notes if note.code == "sharding-on-host")
    assert note.values == {"tables": 1, "taken_bytes": pytest.approx(4e9 * 516), "host_bytes": 2048 * 2**30}
    assert "sharding-host-assumed" not in [note.code for note in found.notes]
    plan = msgspec.json.decode(encode_torchrec_plan(best, "sparse"))["sparse"]["huge"]
    assert (plan["sharding_type"], plan["compute_kernel"], plan["ranks"]) == (
        "row_wise",
        "fused_uvm_caching",
        [*range(8)],
    )
    sizes = [shard["shard_sizes"] for shard in plan["sharding_spec"]["shards"]]
    assert sizes == [[5 * 10**8, 128]] * 8


def test_an_unknown_hosts_memory_is_assumed_and_said():
    """An RTX 3070 of 8 GiB: two of them have a host of 32, of which 30.4 are for tables, of 25.6 GB and a sixteenth."""
    two = ShardingSetting(load_cluster("2xrtx-3070"), batch=64)
    found = plan_sharding([PlannedTable("large", 10**8, 64, 1.0)], two)
    note = next(note for note in found.notes if note.code == "sharding-host-assumed")
    assert note.values == {"host_bytes": 2 * 2 * 8 * 2**30, "times": 2.0}


def test_where_the_gpus_hold_all_tables_none_is_offered_to_the_hosts():
    """Eight A100s hold 8 x 76 GB: up to half of that, rows can always be split evenly."""
    roomy, tight = (build_candidates([PlannedTable("one", rows, 128)], A100S)[0] for rows in (5 * 10**8, 7 * 10**8))
    assert {str(way.option.kernel) for way in roomy} == {"fused"}
    assert "fused_uvm" in {str(way.option.kernel) for way in tight}


def test_a_part_of_a_nodes_gpus_has_its_part_of_the_hosts_memory():
    assert load_cluster("dgx-a100").host_memory_bytes == load_cluster("8xa100-sxm-80gb").host_memory_bytes == 2**41
    assert load_cluster("2xa100-sxm-80gb").host_memory_bytes == 2**39


@pytest.mark.parametrize(("count", "nodes"), [(8, 1), (2, 1), (3, 2)])
def test_tables_beyond_the_hosts_memory_are_refused_with_what_a_host_needs(count, nodes):
    """1,922 GiB of a table, of which a host of 2,048 leaves 5 % to its system."""
    cluster = load_cluster("8xa100-sxm-80gb" if nodes == 1 else "2x8xa100-sxm-80gb@hdr200")
    with pytest.raises(ShardingError) as caught:
        plan_sharding([HUGE] * count, ShardingSetting(cluster, 4096))
    assert caught.value.code == "tables-exceed-host-memory"
    values = caught.value.catalogue_message.values
    assert values["host_needs_bytes"] == pytest.approx(count * 4e9 * 516 / nodes / 0.95)
    assert (values["host_bytes"], values["nodes"]) == (2**41, nodes)


def test_one_table_larger_than_any_host_is_refused():
    with pytest.raises(ShardingError) as caught:
        plan_sharding([PlannedTable("endless", 5 * 10**10, 128, 10.0)] * 8, A100S)
    assert caught.value.code == "tables-exceed-host-memory"


@pytest.mark.parametrize(
    ("tables", "setting", "code"),
    [
        ([], EIGHT, "sharding-tables-missing"),
        ([TABLE], ShardingSetting(EIGHT.cluster, 10**9), "table-exceeds-memory"),
        ([TABLE], ShardingSetting(EIGHT.cluster, 8, dense_bytes=1e12), "table-exceeds-memory"),
        ([PlannedTable("wide", 10, 256)] * 40, ShardingSetting(EIGHT.cluster, 10**6), "tables-exceed-memory"),
    ],
)
def test_what_does_not_fit_is_refused(tables, setting, code):
    with pytest.raises(ShardingError) as caught:
        plan_sharding(tables, setting)
    assert caught.value.code == code


def test_dense_layers_hide_the_exchange_of_indices():
    hidden = ShardingSetting(EIGHT.cluster, EIGHT.batch, dense_time_us=1e6)
    times = [
        {part.name: part.time_us for part in plan_sharding([TABLE] * 1, one).best.parts}["indices"]
        for one in (EIGHT, hidden)
    ]
    assert times[1] == 0
