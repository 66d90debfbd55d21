"""What a shard costs the rank that holds it, for all tables and all ways to shard them in one prediction.

Kernels of a rank look rows of all its tables up at once, so that their times add up but for one start. A shard's time
is that of a kernel of its own, less the time of a kernel with next to nothing to do. What ranks send is added up too;
the rank with most of it sets the time of the exchange.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
import polars as pl

from predictors import predict
from tracekit.arrays import Floats
from tracekit.comm import predict as predict_collectives
from tracekit.parallelism.sharded_tables import ExchangeGroup
from tracekit.parallelism.unknown_work import BOUNDED, WORK_BOUNDS, apply_work_bounds, widen_intervals
from tracekit.sharding.candidates import (
    ComputeKernel,
    ShardingSetting,
    ShardingType,
    TableOption,
    compute_host_bytes,
    compute_row_shares,
    compute_shard_bytes,
    describe_shard,
    list_options,
)
from tracekit.sharding.tables import PlannedTable
from tracekit.workload.ops.memory_traffic import INDEX_BYTES, Columns
from tracekit.workload.ops.table_lookups import (
    DENSE,
    UPDATING_CLOCKS,
    Placement,
    TableLookup,
    compute_cache_fill,
    compute_fbgemm_lookup,
    compute_update_columns,
    count_block_clocks,
)

MESSAGE_SIZES = np.geomspace(1.0, 2.0**40, 81)
"""Bytes at which collectives are predicted; in between, the time is interpolated."""
LOG_MESSAGE_SIZES = np.log(MESSAGE_SIZES)

SAFE_GPU_MEMORY_FRACTION = 0.5
"""Of the GPUs' memory, up to which tables fit into it: their rows can be split evenly, beside the sums of a step."""


class Load(IntEnum):
    """What adds up on a rank: two times in us, and bytes.

    Bytes are of sums for all ranks, of indices, of sums in its node and those for the ranks with its place in other
    nodes, and of two memories.

    Those of exchanges are of the whole buffer, as ``comm.predict`` takes it: what stays on the rank is left out there.
    """

    LOOKUP = 0
    UPDATE = 1
    SENT = 2
    INDICES = 3
    NODE = 4
    RAIL = 5
    MEMORY = 6
    HOST_MEMORY = 7


@dataclass(frozen=True)
class Candidate:
    """A way to shard a table, with what it costs.

    Attributes:
        shards: Ranks that hold a shard.
        load: What the busiest shard costs its rank, by ``Load``.
        shard_loads: What each shard costs, in the order of its ranks; one row where all cost the same.
        scattered_bytes: Buffer of sums that all ranks reduce-scatter, and whose gradients they gather.
        reduced_bytes: Gradient that all ranks reduce.
    """

    option: TableOption
    shards: int
    load: Floats
    shard_loads: Floats
    scattered_bytes: float = 0.0
    reduced_bytes: float = 0.0

    @property
    def shared_bytes(self) -> Floats:
        """What all ranks exchange alike: bytes that they reduce-scatter, and that they reduce."""
        return np.array([self.scattered_bytes, self.reduced_bytes])


def build_candidates(
    tables: Sequence[PlannedTable], setting: ShardingSetting, *, on_host: bool = False
) -> list[list[Candidate]]:
    """Build all ways to shard each table: in the hosts' memory where asked for, or where the GPUs' may not suffice."""
    on_host = on_host or needs_hosts(tables, setting)
    listed = (list_options(table, setting) for table in tables)
    return price_options(tables, [[one for one in ways if on_host or not one.is_hosted] for ways in listed], setting)


def price_options(
    tables: Sequence[PlannedTable], listed: Sequence[Sequence[TableOption]], setting: ShardingSetting
) -> list[list[Candidate]]:
    """Predict what the listed ways to shard each table cost."""
    options = [(number, option) for number, ways in enumerate(listed) for option in ways]
    ways = [(tables[number], option) for number, option in options]
    shares = [compute_row_shares(table, option.count_row_shards(setting)) for table, option in ways]
    ends = [
        (way, int(place)) for way, mine in zip(ways, shares, strict=True) for place in (mine.argmin(), mine.argmax())
    ]
    lookups = [describe_shard(*way, setting, place) for way, place in ends]
    lookup_us = predict_bodies(lookups, None, setting) + _predict_fills(lookups, setting)
    update_us = predict_bodies(lookups, [choose_update(*way) for way, _ in ends], setting)
    update_us = update_us + np.repeat(_predict_dense_steps(ways, setting), 2)
    times = np.stack((lookup_us, update_us), axis=-1).reshape(-1, 2, 2)
    found: list[list[Candidate]] = [[] for _ in tables]
    for (number, option), mine, of_ends in zip(options, shares, times, strict=True):
        found[number].append(_build_candidate(tables[number], option, setting, mine, of_ends))
    return found


def needs_hosts(tables: Sequence[PlannedTable], setting: ShardingSetting) -> bool:
    """Return whether tables may not fit into the GPUs' memory, however they are split."""
    held = sum(table.weight_bytes + table.state_bytes for table in tables)
    return held > SAFE_GPU_MEMORY_FRACTION * setting.capacity_bytes * setting.ranks


def _predict_dense_steps(options: Sequence[tuple[PlannedTable, TableOption]], setting: ShardingSetting) -> Floats:
    """Predict the passes over the whole of replicated tables, in us; none for others."""
    bytes_ = [table.dense_step_bytes if option.kernel is ComputeKernel.DENSE else 0.0 for table, option in options]
    rows: list[Columns] = [{"bytes": max(one, 1.0)} for one in (*bytes_, 0.0)]
    times: Floats = predict_times(rows, True, setting)["time_us"].to_numpy()
    return np.asarray(np.maximum(times[:-1] - times[-1], 0.0))


def _predict_fills(lookups: Sequence[TableLookup], setting: ShardingSetting) -> Floats:
    """Predict how long the caches of look-ups are filled, in us; none without one."""
    times = np.zeros(len(lookups))
    cached = [place for place, one in enumerate(lookups) if one.placement is Placement.MANAGED_CACHING]
    if cached:
        rows = [compute_cache_fill([lookups[place]]) for place in cached]
        times[cached] = predict_times(rows, False, setting)["time_us"].to_numpy()
    return times


def choose_update(table: PlannedTable, option: TableOption) -> str:
    """Return what updates a table: of a replica, PyTorch's optimizer after a dense gradient."""
    return DENSE if option.kernel is ComputeKernel.DENSE else table.optimizer


def _build_candidate(
    table: PlannedTable, option: TableOption, setting: ShardingSetting, shares: Floats, times: Floats
) -> Candidate:
    """Build a candidate from the ``shares`` of look-ups of the ranks that split its rows.

    ``times`` of look-up and update are those of the smallest and of the largest share; in between they grow with it.
    """
    lookup = describe_shard(table, option, setting)
    sums = lookup.bags * lookup.width * setting.sum_bytes
    indices = 0.0 if option.type is ShardingType.DATA_PARALLEL else lookup.indices * shares.size * INDEX_BYTES
    in_node = sums if option.is_split_in_nodes else 0.0
    sent = sums if option.is_placed else 0.0
    memories = [one(table, option, setting) for one in (compute_shard_bytes, compute_host_bytes)]
    costs = np.tile([0.0, 0.0, sent, 0.0, in_node, in_node / setting.ranks_per_node, *memories], (shares.size, 1))
    spread = np.ptp(shares)
    part = ((shares - shares.min()) / spread if spread else np.zeros_like(shares))[:, None]
    costs[:, [Load.LOOKUP, Load.UPDATE]] = times[0] + part * (times[1] - times[0])
    costs[:, Load.INDICES] = indices * shares
    return Candidate(
        option,
        option.count_shards(setting),
        costs.max(axis=0),
        np.tile(costs, (option.columns, 1)) if shares.size > 1 else costs,
        scattered_bytes=sums if option.type is ShardingType.ROW_WISE and not option.is_placed else 0.0,
        reduced_bytes=table.weight_bytes if option.type is ShardingType.DATA_PARALLEL else 0.0,
    )


def predict_bodies(
    lookups: Sequence[TableLookup], optimizers: Sequence[str] | None, setting: ShardingSetting
) -> Floats:
    """Predict look-ups, or with ``optimizers`` updates, without the start of their kernels, in us."""
    kinds: Sequence[str | None] = [None] * len(lookups) if optimizers is None else optimizers
    # Single threads of many tables wait at the same time.
    rows = [_compute_kernels([one], kind) | {"serial_clocks": None} for one, kind in zip(lookups, kinds, strict=True)]
    nothing: Columns = {name: 0.0 for name in rows[0] if name not in ("serial_clocks", "work_low", "work_high")}
    predicted = predict_times([*rows, nothing | {"bytes": 1}], optimizers is not None, setting)
    times: Floats = predicted["time_us"].to_numpy()
    return np.asarray(np.maximum(times[:-1] - times[-1], 0.0))


def predict_times(rows: Sequence[Columns], updates: bool, setting: ShardingSetting) -> pl.DataFrame:
    """Predict kernels on the cluster's GPU; where indices are assumed, intervals hold other likely ones."""
    family = "optimizer" if updates else "embedding"
    numbers = {name: pl.Float64 for name in (*BOUNDED, *WORK_BOUNDS)}
    described = [dict.fromkeys(numbers) | {"family": family, "dtype": "fp32"} | row for row in rows]
    kernels = pl.DataFrame(described, schema_overrides=numbers, infer_schema_length=None)
    times = predict(kernels, setting.cluster.gpu).select("time_us", "low_us", "high_us")
    ends = [predict(end, setting.cluster.gpu)["time_us"] for end in apply_work_bounds(kernels) if end.height]
    row = kernels.with_row_index("row").drop_nulls("work_low")["row"]
    return widen_intervals(times, row, (ends[0], ends[1])) if ends else times


def describe_rank(lookups: Sequence[TableLookup], optimizer: str | None) -> Columns:
    """Return the columns of a rank's kernels: its look-up, or its two updates together."""
    columns = _compute_kernels(lookups, optimizer)
    if optimizer is None:
        return columns
    return columns | {"serial_clocks": UPDATING_CLOCKS + count_block_clocks(lookups)}


def _compute_kernels(lookups: Sequence[TableLookup], optimizer: str | None) -> Columns:
    columns = compute_fbgemm_lookup(lookups) if optimizer is None else compute_update_columns(lookups, optimizer)
    assert columns is not None
    return columns


@dataclass(frozen=True)
class Exchange:
    """Times of the collectives between ranks, by the bytes of the buffer of the rank that has most."""

    setting: ShardingSetting

    def compute_us(self, collective: str, bytes_: Floats | float, group: ExchangeGroup = ExchangeGroup.ALL) -> Floats:
        """Compute the time of a collective; none where nothing is sent."""
        return self._interpolate(self._log_times[group, collective]["time_us"], bytes_)

    def compute_interval_us(
        self, collective: str, bytes_: float, group: ExchangeGroup = ExchangeGroup.ALL
    ) -> tuple[float, float, float]:
        """Compute the time of a collective and its interval."""
        columns = self._log_times[group, collective]
        low, time, high = (float(self._interpolate(columns[name], bytes_)) for name in ("low_us", "time_us", "high_us"))
        return low, time, high

    @staticmethod
    def _interpolate(log_times: Floats, bytes_: Floats | float) -> Floats:
        size = np.asarray(bytes_, np.float64)
        if not size.any():
            return np.zeros_like(size)
        found = np.exp(np.interp(np.log(np.maximum(size, 1.0)), LOG_MESSAGE_SIZES, log_times))
        return np.asarray(np.where(size > 0, found, 0.0))

    @cached_property
    def _log_times(self) -> dict[tuple[ExchangeGroup, str], dict[str, Floats]]:
        collectives = ("all_to_all", "reduce_scatter", "all_gather", "all_reduce")
        nodes = self.setting.cluster.nodes
        groups = {
            ExchangeGroup.ALL: (self.setting.ranks, nodes),
            ExchangeGroup.NODE: (self.setting.ranks_per_node, 1),
            ExchangeGroup.RAIL: (nodes, nodes),
        }
        keys = [(group, name) for group in groups for name in collectives]
        table = pl.DataFrame(
            {
                "collective": [name for _, name in keys for _ in MESSAGE_SIZES],
                "bytes": np.tile(MESSAGE_SIZES, len(keys)),
                "ranks": [groups[group][0] for group, _ in keys for _ in MESSAGE_SIZES],
                "nodes": [groups[group][1] for group, _ in keys for _ in MESSAGE_SIZES],
                "dtype": "fp32",
            }
        )
        found = predict_collectives(table, self.setting.cluster)
        parts = (found.slice(number * MESSAGE_SIZES.size, MESSAGE_SIZES.size) for number in range(len(keys)))
        columns = ("time_us", "low_us", "high_us")
        return {
            key: {name: np.log(np.maximum(part[name].fill_null(0.0).to_numpy(), 1e-6)) for name in columns}
            for key, part in zip(keys, parts, strict=True)
        }
