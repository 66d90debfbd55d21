"""Measure sharding plans on this machine's GPUs, beside their predictions.

    python -m tests.validation.on_gpu.plans tables.json --cluster 8xh100-sxm -o plans.csv

Every plan that ``tracekit shard`` finds for the tables is run: look-ups, the exchange of sums and of their gradients,
and updates, with indices that are drawn as the tables say. The file has a row for each plan with its measured and its
predicted time; the share of pairs that are ordered rightly is printed.

Needs PyTorch and FBGEMM (``pip install fbgemm-gpu``); not torchrec. ``--device cpu --ranks 2`` tries the script out
with PyTorch's own look-ups.
"""

import argparse
import csv
import importlib
import importlib.util
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, multiprocessing
from torch import distributed as dist
from torch.nn import functional

from tests.validation.on_gpu.lookups import draw_indices
from tracekit.comm import load_cluster
from tracekit.errors import TracekitError
from tracekit.models.lookups import ZipfPattern
from tracekit.sharding import PlannedTable, ShardingPlan, ShardingSetting, plan_sharding
from tracekit.sharding.candidates import ShardingType
from tracekit.sharding.tables import TableDefaults, read_table_file

WARM_STEPS, TIMED_STEPS = 3, 15
COLUMNS = ("plan", "measured_us", "predicted_us", "low_us", "high_us")
BACKENDS = {"cuda": "nccl", "cpu": "gloo"}


@dataclass(frozen=True)
class Shard:
    """A part of a table on a rank.

    Attributes:
        seed: Which indices are drawn: the same for all shards of a table.
        rows: Of the whole table.
        first: First row of the shard.
        held: Rows of the shard.
        width: Columns of the shard.
    """

    seed: int
    type: str
    rows: int
    first: int
    held: int
    width: int
    pooling: int
    alpha: float


def main(arguments: list[str] | None = None) -> int:
    """Measure the plans of the tables, and write them beside their predictions."""
    options = parse(arguments)
    gpus = torch.cuda.device_count()
    if options.device == "cuda" and gpus < 2:
        print(f"plans: PyTorch finds {gpus} GPUs; two are needed. --device cpu tries the script out", file=sys.stderr)
        return 1
    if options.device == "cuda" and importlib.util.find_spec("fbgemm_gpu") is None:
        print("plans: FBGEMM isn't installed: pip install fbgemm-gpu", file=sys.stderr)
        return 1
    try:
        cluster = load_cluster(options.cluster)
        tables, batch = read_table_file(options.tables, TableDefaults(pattern=ZipfPattern(options.zipf)))
        if cluster.nodes > 1 or cluster.gpus != (options.ranks or gpus):
            print(f"plans: {options.cluster} isn't one node of {options.ranks or gpus} GPUs", file=sys.stderr)
            return 1
        plans = plan_sharding(tables, ShardingSetting(cluster, options.batch or batch or 1024)).plans
    except TracekitError as error:
        print(f"plans: {error}", file=sys.stderr)
        return 1
    rows = [(plan.name, measure_plan(plan, options.device), plan.time_us, plan.low_us, plan.high_us) for plan in plans]
    with options.output.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    print(describe_order(rows))
    return 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.validation.on_gpu.plans", description="Measure plans.")
    parser.add_argument("tables", type=Path, help="a file of tables, as tracekit shard takes it")
    parser.add_argument("--cluster", required=True, help="this machine, such as 8xh100-sxm")
    parser.add_argument("--batch", type=int, help="samples of a rank; the file's by default")
    parser.add_argument("--zipf", type=float, default=1.05, help="of tables that don't tell it (1.05)")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.csv")
    parser.add_argument("--device", choices=list(BACKENDS), default="cuda", help="cpu: to try it out")
    parser.add_argument("--ranks", type=int, help="processes on the CPU; all GPUs by default")
    return parser.parse_args(arguments)


def describe_order(rows: Sequence[tuple[str, float, float, float, float]]) -> str:
    """Return how many pairs of plans are predicted in the measured order, and how far off they are."""
    pairs = list(combinations(rows, 2))
    right = sum((one[1] < other[1]) == (one[2] < other[2]) for one, other in pairs)
    errors = [100 * (predicted / measured - 1) for _, measured, predicted, *_ in rows]
    inside = sum(low <= measured <= high for _, measured, _, low, high in rows)
    order = f"{right} of {len(pairs)} pairs ordered rightly" if pairs else "one plan"
    return f"{order}; error {median(errors):+.0f} % in the median; {inside} of {len(rows)} inside their interval"


def measure_plan(plan: ShardingPlan, device: str) -> float:
    """Measure a plan's step on all ranks, in microseconds: the median of the slowest rank's."""
    shards = list_shards(plan)
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        result = multiprocessing.get_context("spawn").SimpleQueue()
        arguments = (len(shards), shards, plan.setting.batch, device, meeting, result)
        spawn: Callable[..., Any] = vars(multiprocessing)["spawn"]
        spawn(run_rank, arguments, nprocs=len(shards))
        return float(result.get())


def list_shards(plan: ShardingPlan) -> list[list[Shard]]:
    """List the shards of each rank."""
    found: list[list[Shard]] = [[] for _ in range(plan.setting.ranks)]
    for number, one in enumerate(plan.tables):
        for shard in one.shards:
            found[shard.rank].append(_build_shard(number, one.table, str(one.type), shard))
    return found


def _build_shard(number: int, table: PlannedTable, kind: str, shard: Any) -> Shard:
    pattern = table.pattern
    assert isinstance(pattern, ZipfPattern)
    pooling = max(round(table.pooling * table.features), 1)
    return Shard(number, kind, table.rows, shard.row, shard.rows, shard.columns, pooling, pattern.alpha)


def run_rank(
    rank: int, ranks: int, shards: list[list[Shard]], batch: int, device: str, meeting: str, result: Any
) -> None:
    """Time a rank's steps; the first rank reports the slowest's."""
    if device == "cuda":
        torch.cuda.set_device(rank)
    dist.init_process_group(BACKENDS[device], init_method=meeting, rank=rank, world_size=ranks)
    try:
        step = Step(rank, shards, batch, device)
        times = [time_call(step.run, device) for _ in range(WARM_STEPS + TIMED_STEPS)][WARM_STEPS:]
        slowest = torch.tensor(times, device=device)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        if rank == 0:
            result.put(float(slowest.median()) * 1e6)
    finally:
        dist.destroy_process_group()


def time_call(call: Callable[[], None], device: str) -> float:
    """Time a call that all ranks begin together, in seconds."""
    dist.barrier()
    if device == "cuda":
        torch.cuda.synchronize()
    begin = perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return perf_counter() - begin


class Step:
    """The embedding part of a rank's step."""

    def __init__(self, rank: int, shards: list[list[Shard]], batch: int, device: str) -> None:
        ranks, samples = len(shards), batch * len(shards)
        kinds = (ShardingType.DATA_PARALLEL, ShardingType.ROW_WISE)
        copied, of_rows = ([one for one in shards[rank] if one.type == kind] for kind in kinds)
        self._owned = [one for one in shards[rank] if one.type not in kinds]
        widths = [sum(one.width for one in mine if one.type not in kinds) for mine in shards]
        self._sent = [batch * widths[rank]] * ranks
        self._received = [batch * width for width in widths]
        make = FbgemmLookups if device == "cuda" else TorchLookups
        self._whole = make(self._owned, samples, device) if self._owned else None
        self._rows = make(of_rows, samples, device) if of_rows else None
        self._copies = make(copied, batch, device) if copied else None
        self._gradient = torch.zeros(sum(one.rows * one.width for one in copied), device=device)
        self._ranks, self._device = ranks, device

    def run(self) -> None:
        """Run look-ups, exchanges and updates once."""
        if self._copies is not None:
            self._copies.update(self._copies.look_up())
            dist.all_reduce(self._gradient)
        sums = self._whole.look_up() if self._whole is not None else torch.empty(0, device=self._device)
        back = self._exchange(self._exchange(sums.reshape(-1), self._sent, self._received), self._received, self._sent)
        if self._rows is not None:
            parts = self._rows.look_up()
            mine = parts.new_empty(parts.shape[0] // self._ranks, parts.shape[1])
            dist.reduce_scatter_tensor(mine, parts.contiguous())
            whole = torch.empty_like(parts)
            dist.all_gather_into_tensor(whole, mine)
            self._rows.update(whole)
        if self._whole is not None:
            self._whole.update(back.view_as(sums))

    def _exchange(self, sent: Tensor, sizes: list[int], received: list[int]) -> Tensor:
        found = sent.new_empty(sum(received))
        dist.all_to_all_single(found, sent.contiguous(), received, sizes)
        return found


def draw_bags(shard: Shard, bags: int, device: str) -> tuple[Tensor, Tensor]:
    """Draw the rows that bags look up in a shard, and how many each has there."""
    torch.manual_seed(shard.seed)
    rows = draw_indices(shard.rows, bags * shard.pooling, shard.alpha, device).view(bags, -1) - shard.first
    mine = (rows >= 0) & (rows < shard.held)
    return rows[mine], mine.sum(1)


class FbgemmLookups:
    """Look-ups of shards by one kernel of FBGEMM, with row-wise Adagrad."""

    def __init__(self, shards: Sequence[Shard], bags: int, device: str) -> None:
        split = importlib.import_module("fbgemm_gpu.split_table_batched_embeddings_ops_training")
        common = importlib.import_module("fbgemm_gpu.split_table_batched_embeddings_ops_common")
        places = (common.EmbeddingLocation.DEVICE, split.ComputeDevice.CUDA)
        self._tables = split.SplitTableBatchedEmbeddingBagsCodegen(
            [(max(one.held, 1), one.width, *places) for one in shards],
            optimizer=importlib.import_module("fbgemm_gpu.split_embedding_configs").EmbOptimType.EXACT_ROWWISE_ADAGRAD,
            device=torch.device(device, torch.cuda.current_device()),
        )
        drawn = [draw_bags(one, bags, device) for one in shards]
        self._indices = torch.cat([rows for rows, _ in drawn])
        counts = torch.cat([count for _, count in drawn])
        self._offsets = functional.pad(counts.cumsum(0), (1, 0))
        self._sums: Tensor | None = None

    def look_up(self) -> Tensor:
        """Return the sums of the bags, a row each."""
        self._sums = self._tables(self._indices, self._offsets)
        assert self._sums is not None
        return self._sums.detach()

    def update(self, gradient: Tensor) -> None:
        """Update the rows by the gradient of their sums."""
        assert self._sums is not None
        torch.autograd.backward(self._sums, gradient)


class TorchLookups:
    """Look-ups of shards by PyTorch, one after the other, with plain gradients."""

    def __init__(self, shards: Sequence[Shard], bags: int, device: str) -> None:
        self._drawn = [draw_bags(one, bags, device) for one in shards]
        self._weights = [torch.zeros(max(one.held, 1), one.width, device=device) for one in shards]

    def look_up(self) -> Tensor:
        """Return the sums of the bags, a row each."""
        sums = [
            functional.embedding_bag(rows, weight, counts.cumsum(0) - counts, mode="sum")
            for (rows, counts), weight in zip(self._drawn, self._weights, strict=True)
        ]
        return torch.cat(sums, dim=1)

    def update(self, gradient: Tensor) -> None:
        """Update the rows by the gradient of their sums."""
        parts = torch.split(gradient, [weight.shape[1] for weight in self._weights], dim=1)
        for (rows, counts), weight, part in zip(self._drawn, self._weights, parts, strict=True):
            weight.index_add_(0, rows, part.repeat_interleave(counts, dim=0), alpha=-0.01)


if __name__ == "__main__":
    sys.exit(main())
