"""Build a DLRM of any sizes on the meta device, as facebookresearch/dlrm and TorchRec have it.

    dense features ── bottom MLP ──┐
    indices, per table ── sums ────┴─ interaction ── top MLP ── loss

The dot interaction multiplies all results of a sample with each other and takes what lies below the diagonal.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tracekit.capturing.loaded_program import LoadedProgram
from tracekit.capturing.options import DTYPES
from tracekit.capturing.table_lookups import BatchedLookup, BatchedTables, SparseBagLookup
from tracekit.models.dlrm import FBGEMM, DlrmConfig, TableSpec
from tracekit.workload.ops.table_lookups import compute_state_bytes


def build_dlrm(config: DlrmConfig, batch: int, dtype: str, *, training: bool) -> LoadedProgram:
    """Build a DLRM and its inputs.

    ``dtype`` is 'bf16', 'fp16' or 'fp32'. In training the labels are given too, so that it returns its loss.
    """
    with torch.device("meta"):
        model = Dlrm(config, batch).to(getattr(torch, DTYPES[dtype]))
        dense = torch.empty(batch, config.dense_features, dtype=getattr(torch, DTYPES[dtype]))
        lookups = [_make_lookup(tables, batch, model.lookups.ends) for tables in model.lookups.list_inputs()]
        labels = torch.empty(batch, dtype=dense.dtype) if training else None
    return LoadedProgram(config.name.rpartition("/")[2], model, (dense, lookups, labels))


def _make_lookup(tables: Sequence[TableSpec], batch: int, ends: int) -> tuple[Tensor, Tensor]:
    """Make the indices of some tables, and where those of each sum begin, with or without the last one's end."""
    indices = sum(_count_indices(table, batch) for table in tables)
    return torch.empty(indices, dtype=torch.int64), torch.empty(len(tables) * batch + ends, dtype=torch.int64)


def _count_indices(table: TableSpec, batch: int) -> int:
    """Return how many rows of a table a batch looks up."""
    return round(batch * table.pooling)


class Dlrm(nn.Module):
    """A DLRM."""

    def __init__(self, config: DlrmConfig, batch: int) -> None:
        super().__init__()
        tables = [table for table in config.tables for _ in range(table.count)]
        self.bottom = _build_mlp(config.dense_features, config.bottom_widths) if config.bottom_widths else None
        self.lookups: BagLookups | BatchedLookups = (
            BatchedLookups(tables, config.table_optimizer, batch)
            if config.lookup == FBGEMM
            else BagLookups(tables, sparse=config.has_sparse_gradients)
        )
        widths = [*config.bottom_widths[-1:], *(table.width for table in tables)]
        self.interaction = _build_interaction(config, widths)
        self.top = _build_mlp(self.interaction.out_width, config.top_mlp, ends=True)

    def forward(self, dense: Tensor, lookups: Sequence[tuple[Tensor, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss; without labels the probabilities."""
        results = list(self.lookups(lookups))
        if self.bottom is not None:
            results.insert(0, self.bottom(dense))
        logits = self.top(self.interaction(results))
        if labels is None:
            return torch.sigmoid(logits)
        return functional.binary_cross_entropy_with_logits(logits.squeeze(-1), labels)


class BagLookups(nn.Module):
    """Look-ups of PyTorch, table by table.

    Args:
        sparse: Whether the backward pass updates the tables by a sparse gradient, in place of a dense one.
    """

    ends = 0
    """How many ends follow the starts of sums."""

    def __init__(self, tables: Sequence[TableSpec], *, sparse: bool) -> None:
        super().__init__()
        self._specs = tables
        self.tables = nn.ModuleList(nn.EmbeddingBag(one.rows, one.width, mode="sum") for one in tables)
        self.needs_gradient = nn.Parameter(torch.empty(0)) if sparse else None
        self.tables.requires_grad_(not sparse)

    def list_inputs(self) -> Iterator[Sequence[TableSpec]]:
        """List the tables of each pair of indices and offsets."""
        return ([one] for one in self._specs)

    def forward(self, lookups: Sequence[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
        """Look up; yield the sums of each table."""
        for table, (indices, offsets) in zip(self.tables, lookups, strict=True):
            if self.needs_gradient is None:
                yield table(indices, offsets)
            else:
                yield SparseBagLookup.apply(self.needs_gradient, table.weight, indices, offsets)


class BatchedLookups(nn.Module):
    """Look-ups of FBGEMM, in all tables at once.

    Args:
        optimizer: What updates the tables, in the backward pass.
    """

    ends = 1

    def __init__(self, tables: Sequence[TableSpec], optimizer: str, batch: int) -> None:
        super().__init__()
        self._specs = tables
        self._widths = [one.width for one in tables]
        rows, indices = [one.rows for one in tables], [_count_indices(one, batch) for one in tables]
        self._sizes = BatchedTables(rows, self._widths, indices, optimizer)
        self.weights = nn.Parameter(torch.empty(sum(one.rows * one.width for one in tables)), requires_grad=False)
        self.needs_gradient = nn.Parameter(torch.empty(0))
        states = sum(one.rows * compute_state_bytes(optimizer, one.width) for one in tables)
        self.register_buffer("states", torch.empty(round(states), dtype=torch.uint8))

    def list_inputs(self) -> Iterator[Sequence[TableSpec]]:
        """List the tables of each pair of indices and offsets."""
        return iter([self._specs])

    def forward(self, lookups: Sequence[tuple[Tensor, Tensor]]) -> Iterator[Tensor]:
        """Look up; yield the sums of each table, which lie beside each other."""
        ((indices, offsets),) = lookups
        sums = BatchedLookup.apply(self.needs_gradient, self._sizes, self.weights, indices, offsets)
        return iter(sums.split(self._widths, dim=1))


class DotInteraction(nn.Module):
    """The dot products of all results of a sample, beside the dense one.

    Args:
        width: Of each result.
        has_dense: Whether the first one is that of dense features.
    """

    rows: Tensor
    columns: Tensor

    def __init__(self, results: int, width: int, *, has_dense: bool) -> None:
        super().__init__()
        self._has_dense = has_dense
        rows, columns = torch.tril_indices(results, results, offset=-1, device="meta")
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)
        self.out_width = results * (results - 1) // 2 + has_dense * width

    def forward(self, results: Sequence[Tensor]) -> Tensor:
        """Combine results."""
        stacked = torch.cat(list(results), dim=1).view(results[0].shape[0], len(results), -1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        chosen = products[:, self.rows, self.columns]
        return torch.cat([results[0], chosen], dim=1) if self._has_dense else chosen


class CrossInteraction(nn.Module):
    """Low-rank cross layers (DCN v2): each multiplies its input with that of the first one.

    Args:
        width: Of all results together.
        rank: Of their matrices.
    """

    def __init__(self, width: int, layers: int, rank: int) -> None:
        super().__init__()
        self.narrow = nn.ModuleList(nn.Linear(width, rank, bias=False) for _ in range(layers))
        self.wide = nn.ModuleList(nn.Linear(rank, width) for _ in range(layers))
        self.out_width = width

    def forward(self, results: Sequence[Tensor]) -> Tensor:
        """Combine results."""
        first = crossed = torch.cat(list(results), dim=1)
        for narrow, wide in zip(self.narrow, self.wide, strict=True):
            crossed = first * wide(narrow(crossed)) + crossed
        return crossed


class Concatenation(nn.Module):
    """The results side by side.

    Args:
        width: Of all results together.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.out_width = width

    def forward(self, results: Sequence[Tensor]) -> Tensor:
        """Combine results."""
        return torch.cat(list(results), dim=1)


def _build_interaction(config: DlrmConfig, widths: Sequence[int]) -> Any:
    if config.interaction == "dot":
        return DotInteraction(len(widths), widths[0], has_dense=bool(config.dense_features))
    if config.interaction == "dcn":
        return CrossInteraction(sum(widths), config.cross_layers, config.cross_rank)
    return Concatenation(sum(widths))


def _build_mlp(width: int, widths: Sequence[int], *, ends: bool = False) -> nn.Sequential:
    """Build an MLP, with a ReLU behind each layer, but not behind the last of a model."""
    layers: list[nn.Module] = []
    for out in widths:
        layers += [nn.Linear(width, out), nn.ReLU()]
        width = out
    return nn.Sequential(*(layers[:-1] if ends else layers))
