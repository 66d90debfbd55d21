"""Published jobs in parallel layouts: how they are read, and a small one predicted."""

import numpy as np
import pytest

from tests.validation.studies.layouts import (
    data_parallel,
    pipeline_parallel,
    plan_order,
    tensor_parallel,
    torchrec_planner,
)
from tests.validation.studies.layouts.tensor_parallel import LlamaJob
from tests.validation.study import MissingInputError, Result, read_published
from tracekit.comm import load_cluster
from tracekit.sharding import PlannedTable, ShardingSetting
from tracekit.sharding.candidates import ShardingType


def test_a_model_on_more_gpus_is_predicted_from_its_rate_on_the_fewest() -> None:
    job = LlamaJob("tiny", 2, 1024, 2048, 8, 8, 4096, {1: 5000.0, 2: 8000.0})
    results: list[Result] = []
    ((name, gpus, measured, predicted, error, _, _),) = tensor_parallel.predict_decoding(job, results)
    assert (name, gpus, measured) == ("tiny", "1 → 2", "8000")
    assert abs(float(predicted) / 8000 - 1 - float(error.removesuffix(" %")) / 100) < 1e-3
    assert 5000 < float(predicted) < 10000
    assert [f"{result.error_pct:+.1f} %" for result in results] == [error]


def test_a_pipelines_published_step_is_read_as_layout_and_cluster() -> None:
    jobs = {steps[0].job: steps for steps in pipeline_parallel.read_jobs()}
    assert sum(map(len, jobs.values())) == 104
    first, *_, half = jobs["Llama 405B"]
    assert (first.cluster, half.cluster) == ("64x8xh100-sxm@roce400",) * 2
    assert half.layout == {
        "pp": 8, "micro_batches": 16, "pp_schedule": "interleaved:2", "batch": 0.5, "dp": 8, "tp": 8, "fsdp": True,
    }  # fmt: skip
    assert half.describe(first) == "interleaved, 16, 0.5 times as large, dp 8, tp 8, 2 chunks"
    assert half.samples == 16 * 0.5 * 4 / 64


def test_a_smaller_pipeline_takes_only_the_options_that_it_needs() -> None:
    (step,) = (steps[0] for steps in pipeline_parallel.read_jobs() if steps[0].job == "1.5B")
    assert step.layout == {"pp": 8, "micro_batches": 64}
    assert step.cluster == "8xa100-sxm-80gb"


def test_fsdp_jobs_are_read_with_their_rates_by_number_of_gpus() -> None:
    jobs = {job.name: job for job in data_parallel.read_fsdp_jobs()}
    assert len(jobs) == 12
    assert jobs["Llama 3.1 8B"].tokens_per_s == {8: 5762, 128: 5605}
    assert jobs["Llama 3.1 8B"].tokens == 2 * 8192


def test_owners_of_tables_are_ranks_or_nodes() -> None:
    one, two = (ShardingSetting(load_cluster(name), 64) for name in ("8xh100-sxm", "2x8xh100-sxm@ndr400"))
    whole, rows, copied = plan_order.parse_owners("3 1+5 all", one)
    assert (whole[0].type, whole[0].parts, whole[1].tolist()) == (ShardingType.TABLE_WISE, 0, [3])
    assert (rows[0].type, rows[0].parts, rows[1].tolist()) == (ShardingType.ROW_WISE, 2, [1, 5])
    assert (copied[0].type, copied[1].size) == (ShardingType.DATA_PARALLEL, 8)
    node, both = plan_order.parse_owners("1 0+1", two)
    assert (node[0].type, node[0].parts, node[1].tolist()) == (ShardingType.TABLE_ROW_WISE, 1, [*range(8, 16)])
    assert (both[0].parts, both[1].size) == (2, 16)


def test_each_published_plan_has_the_26_tables() -> None:
    owners = read_published("sharding_plans")["owners"].str.split(" ")
    assert owners.list.len().to_list() == [26] * len(owners)


def test_tables_are_dealt_out_by_size_forth_and_back() -> None:
    tables = [PlannedTable(str(rows), rows, 4) for rows in (10, 50, 40, 20, 30)]
    assert np.concatenate(plan_order.deal_by_size(tables, 2)).tolist() == [0, 0, 1, 0, 1]


def test_a_step_on_more_gpus_has_the_rest_of_the_one_on_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exchanges take 1 ms; of the rest, whose kernels take 8 ms divided by the GPUs, the same part is left."""
    monkeypatch.setattr(plan_order, "_price_dealt", lambda row: (1.0, 8.0 / row["gpus"]))
    first = next(plan_order.carry_steps())
    assert (first.model, first.few, first.many, first.few_ms) == ("large", 32, 128, 67.57)
    assert first.predicted_ms == pytest.approx(66.57 / 4 + 1)
    assert {pair.is_right for pair in plan_order.compare_clusters()} == {True}


def test_a_pair_is_right_where_the_faster_one_is_predicted_faster() -> None:
    pairs = [plan_order.Pair("kind", "source", "case", "a", "b", 1.5, ratio) for ratio in (1.2, 0.9)]
    assert next(iter(plan_order.summarise(pairs))) == ("kind", "2", "1, 50 %", "1.50", "1.05")


def test_torchrec_s_planner_is_asked_for_where_it_is_missing() -> None:
    with pytest.raises(MissingInputError, match="pip install torchrec"):
        torchrec_planner._import("torchrec_that_is_missing")


@pytest.mark.heavy
def test_torchrec_s_plan_is_priced() -> None:
    pytest.importorskip("torchrec")
    setting = ShardingSetting(load_cluster("8xh100-sxm"), 1024)
    tables = [PlannedTable(f"table_{number}", 10**6, 128, 20.0) for number in range(4)]
    planner = torchrec_planner.TorchrecPlanner(tables, setting, own_rates=True)
    assert b"table_3" in planner.plan()
    assert planner.estimate_plan_ms() > 0
    assert set(planner.estimate_tables_ms(ShardingType.TABLE_WISE)) == {one.name for one in tables}
