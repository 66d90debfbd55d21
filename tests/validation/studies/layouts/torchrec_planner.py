"""torchrec's planner beside the prices of sharding plans, on the same tables.

MLPerf's DLRM-DCNv2 is planned by torchrec's ``EmbeddingShardingPlanner``, once with the rates that it has, a V100's,
and once with those of the cluster. Both plans are priced as ``tracekit shard`` does and put beside the plan that it
finds. For one table alone, the sum of torchrec's four estimates of its slowest shard (forward and backward pass,
computing and sending) stands beside what the table costs its rank here. Neither is a measurement.

Needs ``pip install torchrec fbgemm-gpu-cpu``; no GPU.
"""

import importlib
import io
import logging
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np

from tests.validation.studies.whole_jobs.recommenders import DCNV2
from tests.validation.study import MissingInputError, format_table
from tracekit.arrays import Floats
from tracekit.comm import load_cluster
from tracekit.sharding import PlannedTable, ShardingSetting, plan_sharding
from tracekit.sharding.candidates import ShardingType, TableOption
from tracekit.sharding.loads import Candidate, Exchange, price_options
from tracekit.sharding.program_tables import evaluate_plan_file
from tracekit.sharding.search import compute_rank_us, compute_shared_us
from tracekit.sharding.tables import TableDefaults, read_table_file

INPUTS = ()
CASES = (("8xh100-sxm", 6912), ("2x8xh100-sxm@ndr400", 3456), ("8xa100-sxm-80gb", 6912))
"""Clusters, and samples of a rank."""
TYPES = (ShardingType.TABLE_WISE, ShardingType.ROW_WISE, ShardingType.TABLE_ROW_WISE)
"""Ways that both price for one table alone; torchrec leaves columns of 128 numbers whole."""
NIC_GBPS = 50.0
"""Of a 400 Gbit/s NIC."""
BYTES_PER_MS = 1e6
"""Of a GB/s."""
GIB = 2**30
PLANS = (
    "cluster",
    "rates",
    "torchrec's plan, by torchrec",
    "by tracekit",
    "tracekit's plan",
    "ratio",
    "ways of torchrec",
)
ALONE = ("cluster", "rates", "way", "tables", "tracekit over torchrec, median", "10th percentile", "90th")


def run() -> str:
    """Return the plans of both by their prices, then what each says of single tables."""
    tables, _ = read_table_file(DCNV2, TableDefaults())
    plans: list[tuple[str, ...]] = []
    alone: list[tuple[str, ...]] = []
    for name, batch in CASES:
        setting = ShardingSetting(load_cluster(name), batch)
        best_us = plan_sharding(tables, setting).best.time_us
        for rates in ("V100", "cluster"):
            theirs = TorchrecPlanner(tables, setting, own_rates=rates == "V100")
            plans.append((name, rates, *_compare_plans(theirs, best_us)))
            alone += [(name, rates, *cells) for cells in _compare_tables(theirs)]
    return "\n".join(
        ("# torchrec's planner\n", format_table(PLANS, plans), "", "## One table alone\n", format_table(ALONE, alone))
    )


class TorchrecPlanner:
    """torchrec's planner for some tables on a cluster.

    Attributes:
        own_rates: Whether it takes the rates that it comes with.
    """

    def __init__(self, tables: Sequence[PlannedTable], setting: ShardingSetting, *, own_rates: bool) -> None:
        self.tables, self.setting = tables, setting
        modules, bags, planner = (_import(f"torchrec.{name}") for name in (
            "modules.embedding_modules", "distributed.embeddingbag", "distributed.planner"))  # fmt: skip
        config = _import("torchrec.modules.embedding_configs").EmbeddingBagConfig
        self._module = modules.EmbeddingBagCollection(
            tables=[
                config(num_embeddings=one.rows, embedding_dim=one.width, name=one.name, feature_names=[one.name])
                for one in tables
            ],
            device=_import("torch").device("meta"),
        )
        self._topology = planner.Topology(
            world_size=setting.ranks,
            local_world_size=setting.ranks_per_node,
            compute_device="cuda",
            hbm_cap=round(setting.cluster.gpu.memory_bytes),
            ddr_cap=round(setting.host_capacity_bytes),
            **({} if own_rates else _list_rates(setting)),
        )
        limits = {one.name: planner.ParameterConstraints(pooling_factors=[one.pooling]) for one in tables}
        self._planner = planner.EmbeddingShardingPlanner(
            topology=self._topology, batch_size=setting.batch, constraints=limits
        )
        self._enumerator = _import("torchrec.distributed.planner.enumerators").EmbeddingEnumerator(
            topology=self._topology, batch_size=setting.batch, constraints=limits
        )
        self._sharders = [bags.EmbeddingBagCollectionSharder()]

    def plan(self) -> bytes:
        """Return its plan as a file of ``tracekit shard`` has it."""
        logging.getLogger("torchrec").setLevel(logging.ERROR)
        with redirect_stdout(io.StringIO()):
            parameters = self._planner.plan(self._module, self._sharders).plan[""]
        told = {
            name: {"sharding_type": one.sharding_type, "compute_kernel": one.compute_kernel, "ranks": one.ranks}
            for name, one in parameters.items()
        }
        return msgspec.json.encode({"": told})

    def estimate_plan_ms(self) -> float:
        """Return its estimate of its own plan: that of the rank with most."""
        busy = np.zeros(self.setting.ranks)
        for option in self._planner._best_plan:
            for shard in option.shards:
                busy[shard.rank] += shard.perf.total
        return float(busy.max())

    def estimate_tables_ms(self, kind: ShardingType) -> dict[str, float]:
        """Return its estimate of each table on the GPUs alone, sharded in one way: that of its slowest shard."""
        options = self._enumerator.enumerate(self._module, self._sharders)
        mine = (one for one in options if (one.sharding_type, one.compute_kernel) == (kind, "fused"))
        return {one.name: max(shard.perf.total for shard in one.shards) for one in mine}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise MissingInputError(f"pip install torchrec fbgemm-gpu-cpu ({error})") from error


def _list_rates(setting: ShardingSetting) -> dict[str, float]:
    gpu = setting.cluster.gpu
    rates = {"hbm_mem_bw": gpu.bandwidth_gbps, "intra_host_bw": gpu.link_gbps, "inter_host_bw": NIC_GBPS}
    return {name: gbps * BYTES_PER_MS for name, gbps in rates.items() if gbps is not None}


def _compare_plans(theirs: TorchrecPlanner, best_us: float) -> tuple[str, ...]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(theirs.plan())
        plan = evaluate_plan_file(path, theirs.tables, theirs.setting)
    kinds = [str(one.type).replace("_", "-") for one in plan.tables]
    ways = ", ".join(f"{kinds.count(kind)} {kind}" for kind in dict.fromkeys(kinds))
    times = (theirs.estimate_plan_ms(), plan.time_us / 1e3, best_us / 1e3)
    return *(f"{time:.3g} ms" for time in times), f"{plan.time_us / best_us:.2f}", ways


def _compare_tables(theirs: TorchrecPlanner) -> Iterator[tuple[str, ...]]:
    exchange = Exchange(theirs.setting)
    for kind in TYPES:
        known = theirs.estimate_tables_ms(kind)
        tables = [one for one in theirs.tables if one.name in known and one.rows >= theirs.setting.ranks]
        if not tables or (kind is ShardingType.TABLE_ROW_WISE and theirs.setting.cluster.nodes == 1):
            continue
        ways = price_options(tables, [[TableOption(kind)]] * len(tables), theirs.setting)
        ours = np.array([_time_alone(way, exchange) for (way,) in ways])
        ratios: Floats = ours / 1e3 / np.array([known[one.name] for one in tables])
        ends = np.quantile(ratios, (0.5, 0.1, 0.9))
        yield str(kind).replace("_", "-"), str(len(tables)), *(f"{end:.2f}" for end in ends)


def _time_alone(way: Candidate, exchange: Exchange) -> float:
    return float(compute_rank_us(way.load, exchange) + compute_shared_us(way.shared_bytes, exchange))
