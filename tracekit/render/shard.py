"""Render sharding plans as text and JSON."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from tracekit.format import format_bytes, format_duration, format_interval, format_number, format_quantity
from tracekit.render.json import dump_document
from tracekit.render.screen import ColumnKind, Grid, GridColumn
from tracekit.sharding import ShardingPlan, ShardingPlans
from tracekit.sharding.candidates import HOSTED_LABELS, ComputeKernel

BAR_WIDTH = 24
EXCHANGES = ("sums", "gradients", "reduced", "indices")


def render_plans(found: Sequence[ShardingPlans], top: int) -> RenderableType:
    """Render the plans for each cluster, and the ranks of the fastest one."""
    parts: list[RenderableType] = []
    for plans in found:
        parts += [*_describe_setting(plans), Text(), _render_comparison(plans), Text()]
    best = min(found, key=lambda plans: plans.best.time_us)
    parts += [*_render_best(best.best, top), Text()]
    parts += [Text(f"note: {note}", "dim") for note in dict.fromkeys(note for plans in found for note in plans.notes)]
    return Group(*parts)


def _describe_setting(plans: ShardingPlans) -> Iterator[Text]:
    setting, tables = plans.setting, [one.table for one in plans.best.tables]
    held = sum(table.weight_bytes + table.state_bytes for table in tables)
    yield Text.assemble(
        ("cluster    ", "bold"),
        f"{setting.cluster.slug} · {format_quantity(setting.ranks, 'GPU')} · "
        f"{format_quantity(setting.batch, 'sample')} a rank and step",
    )
    indices = setting.samples * sum(table.pooling * table.features for table in tables)
    yield Text.assemble(
        ("tables     ", "bold"),
        f"{len(tables):,} · {format_bytes(held)} with the optimizer's states · "
        f"{format_number(indices)} look-ups a step",
    )


COMPARISON_HEADINGS = (
    "plan", "embeddings", "90 % interval", "look-up", "update", "exchange", "busiest/mean", "fullest GPU",
)  # fmt: skip
"""Of the table of plans; the last but one is the slowest rank's kernels over the mean rank's."""


def list_cells(plan: ShardingPlan) -> tuple[str, ...]:
    """Return a plan's row of the table of plans."""
    times = {part.name: part.time_us for part in plan.parts}
    fullest = float(plan.ranks["memory_bytes"].max())  # type: ignore[arg-type]
    return (
        plan.name,
        format_duration(plan.time_us),
        format_interval(plan.low_us, plan.high_us, plan.time_us),
        format_duration(times["lookup"]),
        format_duration(times["update"]),
        format_duration(sum(times[name] for name in EXCHANGES)),
        f"{plan.imbalance:.2f}x",
        f"{100 * fullest / plan.setting.capacity_bytes:.0f} %",
    )


def _render_comparison(plans: ShardingPlans) -> Grid:
    kinds: dict[str, ColumnKind] = {"plan": "word"}
    table = Grid([GridColumn(heading, kinds.get(heading, "number")) for heading in COMPARISON_HEADINGS], gap=1)
    for plan in plans.plans:
        table.add_row(*list_cells(plan))
    return table


def _render_best(plan: ShardingPlan, top: int) -> Iterator[RenderableType]:
    """Yield what the fastest plan does with the tables, and its slowest ranks."""
    kinds = Counter(_name_kind(one.type, one.kernel, len(one.shards)) for one in plan.tables)
    counted = [f"{count} {kind}" for kind, count in kinds.most_common()]
    yield Text.assemble(("fastest    ", "bold"), f"{plan.setting.cluster.slug}, {plan.name}: {', '.join(counted)}")
    yield Text()
    busy = plan.ranks.with_columns(busy_us=plan.ranks["lookup_us"] + plan.ranks["update_us"])
    shown = busy.sort("busy_us", "rank", descending=[True, False]).head(top)
    longest = max(float(busy["busy_us"].max()), 1e-9)  # type: ignore[arg-type]
    hosts = float(plan.ranks["host_bytes"].max()) > 0  # type: ignore[arg-type]
    headings = ("rank", "tables", "look-up", "update", "sends", "memory", *(("host",) if hosts else ()))
    numbers = [GridColumn(name, "number") for name in headings]
    table = Grid([*numbers, GridColumn("look-up and update", "word")], gap=1)
    for row in shown.iter_rows(named=True):
        table.add_row(
            str(row["rank"]),
            str(row["tables"]),
            format_duration(row["lookup_us"]),
            format_duration(row["update_us"]),
            format_bytes(row["sent_bytes"]),
            format_bytes(row["memory_bytes"]),
            *((format_bytes(row["host_bytes"]),) if hosts else ()),
            "█" * round(BAR_WIDTH * row["busy_us"] / longest),
        )
    yield table
    if plan.ranks.height > shown.height:
        yield Text(f"{plan.ranks.height - shown.height} more ranks: --top {plan.ranks.height}", "dim")


def _name_kind(kind: str, kernel: ComputeKernel, shards: int) -> str:
    named = kind.replace("_", "-")
    over = f" over {shards}" if kind == "column_wise" else ""
    return f"{named}{over}{HOSTED_LABELS.get(kernel, '').removeprefix(',')}"


def as_json(found: Sequence[ShardingPlans]) -> str:
    """Return the JSON that ``tracekit shard --json`` prints."""
    return dump_document({"clusters": [_serialize_plans(plans) for plans in found]})


def _serialize_plans(plans: ShardingPlans) -> dict[str, Any]:
    setting = plans.setting
    return {
        "cluster": setting.cluster.slug,
        "gpu": setting.cluster.gpu.slug,
        "ranks": setting.ranks,
        "batch": setting.batch,
        "capacity_bytes": setting.capacity_bytes,
        "host_capacity_bytes": setting.host_capacity_bytes,
        "plans": [_serialize_plan(plan) for plan in plans.plans],
        "notes": plans.notes,
    }


def _serialize_plan(plan: ShardingPlan) -> dict[str, Any]:
    return {
        "plan": plan.name,
        "time_us": plan.time_us,
        "low_us": plan.low_us,
        "high_us": plan.high_us,
        "imbalance": plan.imbalance,
        "parts": plan.parts,
        "ranks": plan.ranks.drop("capacity_bytes"),
        "shards": plan.shards,
    }
