"""Infer from a trace's process groups how its job is laid out: data, tensor, pipeline and expert parallelism."""

from collections.abc import Mapping

import polars as pl

from tracekit.arrays import mark_any
from tracekit.kept import keep_on_first
from tracekit.messages import layouts
from tracekit.parallelism.collective_calls import list_collectives
from tracekit.parallelism.layout import Layout, LayoutError, LayoutRequest
from tracekit.program import Program
from tracekit.workload.module_paths import BACKWARD, OPTIMIZER
from tracekit.workload.ops.fbgemm import LOOKUP_OPS

DP_GROUP, TP_GROUP, CP_GROUP = "data parallel ranks", "tensor parallel ranks", "context parallel ranks"
"""Descriptions of process groups for inserted collectives."""
NEAR_GROUP = "neighbouring replicas"
"""The same of replicas that reduce gradients in each step, where all of them only average parameters now and then."""

GROUP_NAME_PATTERNS: Mapping[str, str] = {
    "cp": f"^{CP_GROUP}$",
    "near": f"^{NEAR_GROUP}$",
    "tp": r"(?i)tensor|(?:^|_)tp(?:_|$)",
    "pp": r"(?i)pipe|(?:^|_)pp(?:_|$)",
    "edp": r"(?i)expert data parallel ranks|expert_data|(?:^|_)edp(?:_|$)",
    "ep": r"(?i)expert|(?:^|_)ep(?:_|$)",
    "dp": r"(?i)data|fsdp|ddp|shard|replicate|(?:^|_)dp(?:_|$)",
}
"""Patterns of group names: torch's device meshes (mesh_tp) and Megatron (TENSOR_MODEL_PARALLEL_GROUP).

A trace's own context-parallel ranks count as data-parallel ones.
"""

EP_GROUP, EXPERT_DP_GROUP = "expert parallel ranks", "expert data parallel ranks"
"""The same for expert parallelism."""

GROUP_COLUMNS = ("process_group", "group_description", "ranks", "stride")


def infer_group_roles(program: Program) -> pl.DataFrame:
    """Infer the role of each collective's process group.

    The first rule that matches decides; the largest messages of a group decide for all of them::

        evidence                              role
        group name matches a pattern          as in ``GROUP_NAME_PATTERNS``
        custom all-reduce kernel              tp
        send or receive                       pp
        all-to-all                            ep
        anything else                         dp in training, tp in inference

    Args:
        program: The program.

    Returns:
        ``row`` in the kernel table, ``role``, and ``put_in``, whether the collective was inserted.
    """
    return _infer_roles(program, list_collectives(program.kernels, program.trace.world_size))


def _infer_roles(program: Program, calls: pl.DataFrame) -> pl.DataFrame:
    """Infer the roles of listed collectives, as :func:`infer_group_roles` returns them."""
    rows = program.kernels.select("process_group", "group_description")[calls["row"]]
    table = calls.hstack(rows)
    inside = pl.lit("dp" if is_training(program) else "tp")
    named = [
        pl.when(pl.col("group_description").str.contains(text)).then(pl.lit(role))
        for role, text in GROUP_NAME_PATTERNS.items()
    ]
    role = pl.coalesce(
        *named,
        pl.when("custom").then(pl.lit("tp")),
        pl.when(pl.col("collective") == "send_recv").then(pl.lit("pp")),
        pl.when(pl.col("collective") == "all_to_all").then(pl.lit("ep")),
        inside,
    )
    apart = pl.when(pl.col("collective").is_in(["all_to_all", "send_recv"])).then(pl.col("collective"))
    return table.with_columns(role=role, apart=apart).select(
        "row",
        put_in=pl.col("group_description")
        .is_in([DP_GROUP, TP_GROUP, CP_GROUP, EP_GROUP, EXPERT_DP_GROUP, NEAR_GROUP])
        .fill_null(False),
        role=pl.col("role")
        .sort_by(pl.col("bytes").fill_null(0.0), descending=True)
        .first()
        .over(*GROUP_COLUMNS, "apart"),
    )


@keep_on_first
def infer_layout(program: Program) -> Layout:
    """Infer the layout of a traced job.

    Args:
        program: The program.

    Raises:
        LayoutError: The sizes of its groups don't match its number of ranks.
    """
    world = program.trace.world_size
    if not (program.kernels["family"] == "collective").any():
        return Layout(dp=world)
    listed = list_collectives(program.kernels, world)
    calls = listed.join(_infer_roles(program, listed), on="row")
    sizes = dict(calls.group_by("role").agg(pl.col("ranks").max()).iter_rows())
    tp, pp = sizes.get("tp", 1), sizes.get("pp", 1)
    dp = world // (tp * pp)
    if dp * tp * pp != world or sizes.get("dp", dp) not in (dp, world):
        groups = [f"{name} {ranks}" for name, ranks in sorted(sizes.items())]
        raise LayoutError(layouts.GROUPS_CONTRADICT_RANKS(groups=groups, ranks=world))
    summed = calls.filter(pl.col("role") == "dp").group_by("collective").agg(pl.col("bytes").sum())
    moved = dict(summed.iter_rows())
    sharded = moved.get("reduce_scatter", 0.0) > moved.get("all_reduce", 0.0)
    ep = sizes.get("ep", 1)
    tables = ep > 1 and program.kernels["op"].str.contains(LOOKUP_OPS).any()
    return Layout(dp=dp, tp=tp, pp=pp, ep=ep, sharded=sharded, splits_tables=tables)


def infer_layout_if_needed(program: Program, request: LayoutRequest) -> Layout | None:
    """Infer the layout of a traced job; None where it is unknown and not needed.

    Raises:
        LayoutError: It is unknown, and another layout is requested.
    """
    try:
        return infer_layout(program)
    except LayoutError:
        if request.has_changes:
            raise
        return None


@keep_on_first
def is_training(program: Program) -> bool:
    """Return whether the trace has a backward pass; its kernels show it where autograd's ops weren't recorded."""
    if program.trains is not None:
        return program.trains
    recorded = program.trace.has_named("ops", "autograd::|AccumulateGrad")
    return recorded or bool(mark_any(program.kernels["phase"], (BACKWARD, OPTIMIZER)).any())
