"""Steps of recommenders whose tables replicas split: the plan's kernels and exchanges are the step's."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

import tracekit as tk
from tests.codes import has_code, list_codes
from tracekit.comm import load_cluster
from tracekit.models.lookups import ZipfPattern
from tracekit.parallelism.layout import Layout, LayoutError
from tracekit.parallelism.sharded_tables import ExchangeGroup, TableExchange
from tracekit.parallelism.table_exchange import compute_message_bytes
from tracekit.reporting.plain import decode_plain, encode_plain
from tracekit.request import PredictRequest, SweepRequest, answers
from tracekit.request.program_options import ProgramOptions
from tracekit.sharding import PlannedTable, ShardingSetting, plan_sharding
from tracekit.sharding.candidates import ShardingType
from tracekit.sharding.loads import Exchange, build_candidates
from tracekit.sharding.plan import ShardingPlan, encode_torchrec_plan
from tracekit.sharding.planner import evaluate_assignment
from tracekit.sharding.program_tables import (
    describe_step,
    evaluate_plan_file,
    find_program_tables,
    find_sum_bytes,
    take_ranks,
)
from tracekit.sharding.search import Assignment
from tracekit.sharding.tables import ShardingError, is_table_file

CONFIG = {
    "model_type": "dlrm", "tables": ["4*2Mx128:20:1.05", "100x128:1:1.05"], "dense_features": 13,
    "bottom_mlp": [64, 128], "top_mlp": [256, 1], "lookup": "fbgemm", "table_optimizer": "adagrad",
}  # fmt: skip
WHOLE = '{"": {"table_0": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": %s}}}'
BATCH = 4096
EIGHT = ShardingSetting(load_cluster("8xh100-sxm"), batch=BATCH)
TABLES = [
    PlannedTable(f"table_{number}", rows, 128, pooling, ZipfPattern(1.05), optimizer="adagrad")
    for number, (rows, pooling) in enumerate([(2_000_000, 20.0)] * 4 + [(100, 1.0)])
]


def test_a_plan_that_is_written_is_read_and_takes_as_long(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    for plan in plan_sharding(TABLES, EIGHT).plans:
        path.write_bytes(encode_torchrec_plan(plan))
        again = evaluate_plan_file(path, TABLES, EIGHT)
        assert again.tables == plan.tables
        assert again.time_us == pytest.approx(plan.time_us)


@pytest.mark.parametrize(
    ("plan", "code"),
    [
        ("[]", "plan-unreadable"),
        ('{"": {}}', "plan-without-table"),
        ('{"": {"table_0": {"sharding_type": "grid", "compute_kernel": "fused"}}}', "plan-unreadable"),
        (
            '{"": {"table_0": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": [8]}}}',
            "plan-impossible",
        ),
        (
            '{"": {"table_0": {"sharding_type": "table_wise", "compute_kernel": "fused", "ranks": []}}}',
            "plan-impossible",
        ),
    ],
)
def test_a_plan_that_is_none_of_these_tables_is_refused(tmp_path: Path, plan: str, code: str) -> None:
    (tmp_path / "plan.json").write_text(plan)
    with pytest.raises(ShardingError, check=has_code(code)):
        evaluate_plan_file(tmp_path / "plan.json", TABLES, EIGHT)


SIXTEEN = ShardingSetting(load_cluster("2x8xh100-sxm@ndr400"), batch=BATCH)


def evaluate(path: Path, way: str, ranks: range, setting: ShardingSetting) -> ShardingPlan:
    """Evaluate a plan of one table that lies on some ranks."""
    given = {"sharding_type": way, "compute_kernel": "fused", "ranks": [*ranks]}
    path.write_text(json.dumps({"": {"table_0": given}}))
    return evaluate_plan_file(path, TABLES[:1], setting)


def test_rows_are_split_over_some_ranks_as_hugectr_does(tmp_path: Path) -> None:
    """Four of eight ranks hold a quarter of 2 M rows, and send 32,768 sums of 128 numbers of their own each."""
    plan = evaluate(tmp_path / "plan.json", "row_wise", range(2, 6), EIGHT)
    shards = plan.shards.select("rank", "row", "rows", "columns").rows()
    assert shards == [(2 + place, 500_000 * place, 500_000, 128) for place in range(4)]
    sent = [exchange for exchange in describe_step(plan).sums if exchange.collective == "all_to_all"]
    assert [exchange.buffer_bytes for exchange in sent] == [8 * BATCH * 128 * 4]
    assert plan.assignment.shared_bytes.tolist() == [0, 0]


def test_rows_are_split_over_some_nodes_which_reduce_their_sums(tmp_path: Path) -> None:
    """Each of two nodes reduces 65,536 partial sums; a rank sends an eighth of them to those of other nodes."""
    plan = evaluate(tmp_path / "plan.json", "table_row_wise", range(16), SIXTEEN)
    assert plan.shards["row"].to_list() == [125_000 * place for place in range(16)]
    sums = {exchange.group: exchange.buffer_bytes for exchange in describe_step(plan).sums}
    whole = 16 * BATCH * 128 * 4
    assert sums == {ExchangeGroup.NODE: whole, ExchangeGroup.RAIL: whole / 8}


@pytest.mark.parametrize("ranks", [range(4, 12), range(4)])
def test_rows_in_nodes_are_split_over_whole_nodes(tmp_path: Path, ranks: range) -> None:
    with pytest.raises(ShardingError, check=has_code("plan-impossible")):
        evaluate(tmp_path / "plan.json", "table_row_wise", ranks, SIXTEEN)


def test_the_step_has_the_work_of_the_slowest_rank() -> None:
    plan = plan_sharding(TABLES, EIGHT).best
    busy = plan.ranks["lookup_us"] + plan.ranks["update_us"]
    parts = {part.name: part for part in plan.parts}
    assert parts["lookup"].rank == parts["update"].rank == busy.arg_max()
    assert parts["lookup"].time_us + parts["update"].time_us == pytest.approx(busy.max())
    step = describe_step(plan)
    assert step.tables == 5
    assert step.whole_bytes == 2 * 512 * (4 * 2_000_000 + 100)
    assert step.held_bytes == plan.ranks["memory_bytes"].max()


def test_ranks_of_a_cluster_by_hand() -> None:
    half = take_ranks(load_cluster("4x8xh100-sxm@ndr400"), 4)
    assert (half.nodes, half.gpus_per_node, half.nics_per_node) == (1, 4, 4)
    assert take_ranks(load_cluster("4x8xh100-sxm@ndr400"), 16).nodes == 2
    with pytest.raises(LayoutError, check=has_code("tables-fill-nodes")):
        take_ranks(load_cluster("4x8xh100-sxm@ndr400"), 12)


def test_a_part_of_a_node_has_its_part_of_the_host_s_memory() -> None:
    node = load_cluster("8xa100-sxm-80gb")
    assert (node.host_memory_gib, take_ranks(node, 2).host_memory_gib) == (2048, 512)


@pytest.mark.parametrize(("dtypes", "bytes_"), [(["bf16", "bf16", "fp32"], 2), (["fp32"], 4), ([], 4)])
def test_sums_have_the_type_of_most_products(dtypes: list[str], bytes_: int) -> None:
    kernels = pl.DataFrame({"family": ["gemm"] * len(dtypes), "dtype": dtypes}, schema_overrides={"dtype": pl.String})
    assert find_sum_bytes(SimpleNamespace(kernels=kernels)) == bytes_  # type: ignore[arg-type]


def test_gradients_take_the_way_of_the_sums_back() -> None:
    """Sums of rows are reduced in a node, then sent between nodes; their gradients come from there first."""
    setting = ShardingSetting(load_cluster("2x8xh100-sxm@ndr400"), batch=BATCH)
    (ways,) = build_candidates(TABLES[:1], setting)
    choice = next(n for n, way in enumerate(ways) if way.option.type is ShardingType.TABLE_ROW_WISE)
    assignment = Assignment([ways], Exchange(setting))
    assignment.put(0, choice, np.arange(8))
    step = describe_step(evaluate_assignment("rows in a node", TABLES[:1], assignment))
    sums, gradients = ([(one.collective, one.group) for one in part] for part in (step.sums, step.gradients))
    assert sums == [("reduce_scatter", ExchangeGroup.NODE), ("all_to_all", ExchangeGroup.RAIL)]
    assert gradients == [("all_to_all", ExchangeGroup.RAIL), ("all_gather", ExchangeGroup.NODE)]


def test_a_saved_layout_keeps_its_tables() -> None:
    layout = Layout(dp=8, ep=8, tables=describe_step(plan_sharding(TABLES, EIGHT).plans[0]))
    saved = encode_plain(layout)
    assert encode_plain(decode_plain(saved, Layout)) == saved
    assert msgspec.json.decode(saved)["tables"]["tables"] == len(TABLES)


def test_parts_of_ranks_are_gathered_where_a_layout_counts_each() -> None:
    layout = Layout(dp=16, ep=8, batch=2.0)
    assert compute_message_bytes(TableExchange("sums", "all_to_all", 1600.0), layout) == 1600
    assert compute_message_bytes(TableExchange("sums", "reduce_scatter", 1600.0), layout) == 100
    in_node = TableExchange("sums", "reduce_scatter", 1600.0, ExchangeGroup.NODE)
    between = TableExchange("sums", "all_to_all", 1600.0, ExchangeGroup.RAIL)
    assert (compute_message_bytes(in_node, layout), compute_message_bytes(between, layout)) == (100, 12_800)


@dataclass(frozen=True)
class Asked:
    """A captured step of a small recommender."""

    trace: Any

    def predict(self, **options: Any) -> Any:
        return tk.predict(self.trace, cluster="8xh100-sxm", **options).targets[0]


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """The small recommender."""
    pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("recommender") / "dlrm.json"
    path.write_text(json.dumps(CONFIG))
    return Asked(tk.capture(str(path), batch=BATCH, training=True, cuda_graph=True))


def sum_exchanges(found: Any, name: str) -> float:
    """Sum the time of the exchanges whose names begin so, in microseconds."""
    timeline = found.replay_timeline()
    rows = found.program.kernels["name"].str.starts_with(name).to_numpy()
    return float((timeline.activity_end_ns - timeline.activity_start_ns)[rows].sum() / 1e3)


def test_the_parts_of_the_plan_are_those_of_the_step(recommender: Asked) -> None:
    plan = plan_sharding(TABLES, EIGHT).best
    parts = {part.name: part.time_us for part in plan.parts}
    found = recommender.predict(dp=8)
    assert found.inserted_us["embedding"] == pytest.approx(parts["lookup"], rel=1e-3)
    assert found.inserted_us["optimizer"] == pytest.approx(parts["update"], rel=1e-3)
    for name, rows in (("sums", "sums"), ("gradients", "gradients of sums"), ("indices", "indices")):
        assert sum_exchanges(found, rows) == pytest.approx(parts[name], rel=0.02)
    own = found.kernels.filter(found.program.kernels["op"].head(found.kernels.height).str.contains("fbgemm"))
    assert np.allclose(own["time_us"], 0.0)
    assert "tables-sharded" in list_codes(found.notes)


def test_edited_tables_are_exchanged(recommender: Asked, tmp_path: Path) -> None:
    """Half as wide rows: the plan of these tables is the step's, and less is exchanged."""
    path = tmp_path / "dlrm.json"
    path.write_text(json.dumps(CONFIG | {"interaction": "cat"}))
    options = ProgramOptions(train=True, cuda_graph=True, table=("4*2Mx64:20:1.05", "100x64:1:1.05"))
    trace, request = options.capture_trace(str(path), PredictRequest(cluster="8xh100-sxm", batch=BATCH))
    (found,) = answers.predict(answers.measure(trace, request), request).targets
    plan = plan_sharding([replace(table, width=64) for table in TABLES], EIGHT).best
    parts = {part.name: part.time_us for part in plan.parts}
    assert found.inserted_us["embedding"] == pytest.approx(parts["lookup"], rel=1e-3)
    assert sum_exchanges(found, "sums") == pytest.approx(parts["sums"], rel=0.02)
    assert sum_exchanges(found, "sums") < sum_exchanges(recommender.predict(), "sums")


def test_a_sweep_takes_the_samples_of_a_configuration_as_a_prediction_does(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    path = tmp_path / "dlrm.json"
    path.write_text(json.dumps(CONFIG | {"batch_size": 64}))
    asked = SweepRequest(cluster="8xh100-sxm", batch=256)
    trace, left = ProgramOptions(train=True, cuda_graph=True).capture_trace(str(path), asked)
    assert left.batch is None
    assert find_program_tables(answers.measure(trace, left).program)[1] == 256


@pytest.mark.parametrize("layout", [{"tp": 8}, {"tp": 2, "dp": 4}, {"cp": 2, "dp": 4}])
def test_what_else_would_split_a_recommender_is_refused(recommender: Asked, layout: dict[str, int]) -> None:
    with pytest.raises(tk.TracekitError, check=has_code("tables-over-replicas")):
        recommender.predict(**layout)


def test_dense_gradients_are_reduced_after_they_are_computed(recommender: Asked) -> None:
    """Exchanges of tables lie on the stream of the backward pass without contradicting its order."""
    found, alone = recommender.predict(dp=8), recommender.predict(dp=1)
    assert found.program.graph.dropped == alone.program.graph.dropped
    kernels, timeline = found.program.kernels, found.replay_timeline()
    starts, ends = timeline.activity_start_ns, timeline.activity_end_ns
    is_backward = (kernels["phase"] == "backward").to_numpy() & (kernels["family"] == "gemm").to_numpy()
    reduces = np.flatnonzero((kernels["collective"] == "all_reduce").to_numpy())
    assert starts[reduces].min() > ends[is_backward].min()


def test_a_recommender_takes_all_gpus_of_a_cluster_and_a_plan_changes_its_step(
    recommender: Asked, tmp_path: Path
) -> None:
    default, eight = recommender.predict(), recommender.predict(dp=8)
    assert default.ranks == 8
    assert default.step.step_time_us == pytest.approx(eight.step.step_time_us)
    assert recommender.predict(dp=1).ranks == 1
    slow = next(plan for plan in plan_sharding(TABLES, EIGHT).plans if plan.name == "row-wise")
    path = tmp_path / "plan.json"
    path.write_bytes(encode_torchrec_plan(slow))
    assert recommender.predict(plan=str(path)).step.step_time_us > default.step.step_time_us


@pytest.mark.parametrize(
    ("content", "lists_tables"),
    [
        ([{"name": "user"}], True), ([], True), ({"tables": []}, True), ({"traceEvents": []}, False),
        ([{"ph": "X", "name": "mm"}], False), ("tables", False), (3, False), (None, False),
    ],
)  # fmt: skip
def test_a_file_of_tables_is_told_from_a_trace(tmp_path, content, lists_tables):
    path = tmp_path / "given.json"
    path.write_text(json.dumps(content))
    assert is_table_file(path) is lists_tables
