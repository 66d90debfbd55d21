"""Find the parameter units that FSDP gathers and scatters at once: each repeated layer, and all the rest."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

from tracekit.messages import layouts
from tracekit.parallelism.ddp_buckets import require_gradients
from tracekit.parallelism.inserted import build_collective_columns
from tracekit.parallelism.layers import RepeatedLayers
from tracekit.parallelism.layout import LayoutError
from tracekit.parallelism.process_groups import EXPERT_DP_GROUP, infer_group_roles
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD
from tracekit.workload.signature import ITEM_BYTES, Tensor

BUFFER_COPY_OP = "fsdp::copy"
"""Op name of copies of a unit into or out of its buffer."""

EXPERT_BUFFER_COPY_OP = "fsdp::copy_experts"
"""Op name of copies of an expert-parallel unit's buffer."""

ParameterFilter = Callable[[Tensor], bool]
"""Selects parameters, such as experts'."""


@dataclass(frozen=True, slots=True)
class FsdpUnits:
    """The units' sizes, in bytes of the type that is reduce-scattered.

    Attributes:
        layer_bytes: One layer, without its experts where replicas split these.
        expert_bytes: Experts of one layer where replicas split them.
        rest_bytes: Everything outside the layers.
        largest_rest_bytes: Largest parameter of the rest, likely the embedding.
        scatter_dtype: Type of most reduce-scattered bytes.
        gather_dtype: Type that is all-gathered.
    """

    layer_bytes: int
    expert_bytes: int
    rest_bytes: int
    largest_rest_bytes: int
    scatter_dtype: str
    gather_dtype: str

    @property
    def item_bytes(self) -> int:
        """Bytes per element of ``scatter_dtype``."""
        return ITEM_BYTES.get(self.scatter_dtype, 4)


def list_fsdp_collectives(program: Program) -> pl.DataFrame:
    """List the recorded FSDP collectives: rows of the kernel table with their ``row``."""
    rows = infer_group_roles(program).filter(pl.col("role") == "dp").select("row", "put_in")
    collective = pl.col("collective").is_in(["all_gather", "reduce_scatter"])
    return program.kernels.with_row_index("row").join(rows, on="row").filter(collective & ~pl.col("put_in"))


def find_fsdp_units(program: Program, layers: RepeatedLayers, is_expert: ParameterFilter | None = None) -> FsdpUnits:
    """Find the units of a job.

    Parameters of a shape that occurs as often as there are layers, or a multiple of that, belong to the layers. In a
    job that uses FSDP, the same holds for the reduce-scatters of a step's last backward pass.

    Example with 12 layers: a shape that occurs 25 times is in each layer twice; one of the 25 belongs to the rest.

    Args:
        program: The program.
        layers: Its layers.
        is_expert: Selects the parameters of experts that replicas split; None where they don't.

    Raises:
        LayoutError: The parameters are unknown, or none of them belongs to the layers.
    """
    recorded = list_fsdp_collectives(program)
    scatters = recorded.filter(pl.col("collective") == "reduce_scatter")
    table = _list_accumulated(program, is_expert) if scatters.is_empty() else _list_scattered(program, layers, scatters)
    number = pl.len() // layers.count
    by_shape = table.group_by("shape", "dtype", "apart").agg(
        pl.first("bytes"), count=number, outside=pl.len() > number * layers.count
    )
    layer, experts = (
        int(by_shape.filter(of).select((pl.col("bytes") * pl.col("count")).sum()).item())
        for of in (~pl.col("apart"), pl.col("apart"))
    )
    if not layer:
        raise LayoutError(layouts.PARAMETERS_OUTSIDE_LAYERS(layers=layers.count))
    if by_shape.filter(pl.col("apart") & pl.col("outside")).height:
        raise LayoutError(layouts.EXPERTS_OUTSIDE_LAYERS(layers=layers.count))
    dtype = table.group_by("dtype").agg(pl.col("bytes").sum()).sort("bytes", "dtype")["dtype"][-1]
    largest = by_shape.select(pl.col("bytes").filter("outside").max().fill_null(0)).item()
    gathers = recorded.filter(pl.col("collective") == "all_gather")["dtype"].drop_nulls().mode().sort()
    rest = int(table["bytes"].sum()) - (layer + experts) * layers.count
    return FsdpUnits(layer, experts, rest, int(largest), dtype, gathers[0] if gathers.len() else dtype)


def _list_accumulated(program: Program, is_expert: ParameterFilter | None) -> pl.DataFrame:
    """List the gradients of one backward pass: ``shape``, ``bytes``, ``dtype``; ``apart`` if an expert's."""
    each = [
        (
            str(one.shape),
            one.numel * one.get_item_bytes(4),
            one.dtype or "fp32",
            is_expert is not None and is_expert(one),
        )
        for one in require_gradients(program)
    ]
    return pl.DataFrame(each, schema=["shape", "bytes", "dtype", "apart"], orient="row")


def _list_scattered(program: Program, layers: RepeatedLayers, scatters: pl.DataFrame) -> pl.DataFrame:
    """List the reduce-scatters of the first step's last backward pass: ``shape``, ``bytes``, ``dtype``, ``apart``."""
    last = int(np.append(layers.is_first_pass[1:], True).argmax())
    row = int(layers.kernels["row"][int(layers.passes[last, 1])])
    of_pass = (pl.col("step") == program.kernels["step"][row]) & (pl.col("ts_ns") >= program.kernels["ts_ns"][row])
    scattered = scatters.filter(of_pass).select("bytes", "dtype", shape=pl.col("bytes").cast(pl.String)).drop_nulls()
    return scattered.with_columns(apart=pl.lit(value=False))


def build_fsdp_rows(program: Program, calls: pl.DataFrame, units: FsdpUnits) -> pl.DataFrame:
    """Build kernel-table rows for collectives of units, then for their buffer copies.

    Args:
        program: The program.
        calls: One row each: ``collective``, ``bytes``, ``step``, ``at``, the activity beside which it is launched, and
            ``group``, the description of its process group.
        units: The units.
    """
    nodes = program.graph.nodes
    ran = program.kernels.select("device", "stream")[calls["at"] - nodes.n_host]
    table = calls.with_columns(device=ran["device"], ts_ns=nodes.origin_ns + nodes.start_ns[calls["at"].to_numpy()])
    own = "step", "device", "ts_ns"
    moved = table.select(
        *own, "collective", "bytes", **build_collective_columns(program, pl.col("group")), name="collective",
        dtype=pl.lit(units.scatter_dtype),
    )  # fmt: skip
    of_experts = pl.col("group") == EXPERT_DP_GROUP
    copied = table.select(
        *own, bytes=2 * pl.col("bytes"), cols=pl.col("bytes") // units.item_bytes, rows=1, flops=0,
        dtype=pl.lit(units.scatter_dtype), stream=ran["stream"], family=pl.lit("copy"),
        name=pl.lit("copy of a shard's buffer"),
        op=pl.when(of_experts).then(pl.lit(EXPERT_BUFFER_COPY_OP)).otherwise(pl.lit(BUFFER_COPY_OP)),
    )  # fmt: skip
    return pl.concat([moved, copied], how="diagonal_relaxed").with_columns(phase=pl.lit(BACKWARD))
