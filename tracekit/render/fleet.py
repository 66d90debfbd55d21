"""Render a job of many ranks: top lists and distributions, whatever the number of ranks."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tracekit.fleet.model import FleetReport
from tracekit.format import format_duration, format_percent, format_quantity
from tracekit.messages import OptionNames, name_option
from tracekit.render.facts import ENERGY_TITLE, MOST_DETAILED_TARGETS, format_step_count
from tracekit.render.html.page import ReportBody, get_environment, read_asset, render_document
from tracekit.render.html.rows import build_target_rows, describe_pricing, find_time_scale
from tracekit.render.json import describe_target, dump_document
from tracekit.render.screen import append_omitted_count, make_facts_table, make_grid
from tracekit.render.sentences import build_answer_headline, choose_notes, collect_notes
from tracekit.render.terminal import render_answer, render_energy, render_notes
from tracekit.render.terminal_tables import render_targets

LABEL_CHARS = 10
MOST_STEPS = 8
MIN_LATE_FRACTION = 1e-4
"""Least part of a step by which a rank that holds up the job is listed: of 20 ms, 2 µs."""
BINS = 8
BAR_CHARS = 32


@dataclass(frozen=True, slots=True)
class Bin:
    """Ranks whose time lies in one range.

    Attributes:
        low_us: Its lower end.
        high_us: Its upper end.
        ranks: How many.
        fraction: Of the fullest range.
    """

    low_us: float
    high_us: float
    ranks: int
    fraction: float


def count_ranks_by_time(fleet: FleetReport) -> list[Bin]:
    """Count the ranks by how long their GPU is busy in a step without waiting for others."""
    busy = fleet.stragglers["busy_us"].drop_nulls().to_numpy()
    if busy.size < 2 or busy.min() == busy.max():
        return []
    counts, edges = np.histogram(busy, BINS)
    return [
        Bin(low, high, count, count / int(counts.max()))
        for low, high, count in zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
    ]


def list_stragglers(fleet: FleetReport, top: int) -> pl.DataFrame:
    """List the ranks that hold up the job most, and for how long."""
    return _find_late_ranks(fleet).sort("held_up_us", "rank", descending=[True, False]).head(top)


def _find_late_ranks(fleet: FleetReport) -> pl.DataFrame:
    """Find the ranks that hold up the job by more than a clock is inexact."""
    return fleet.stragglers.filter(pl.col("held_up_us") > MIN_LATE_FRACTION * fleet.step.step_time_us)


def describe_job(fleet: FleetReport) -> list[tuple[str, str]]:
    """Describe the job: its ranks, its GPU, its step and how well the replay gives it back."""
    read = format_quantity(fleet.ranks, "rank")
    ranks = read if fleet.ranks == fleet.world_size else f"{read} of {fleet.world_size:,}"
    step = fleet.step
    where = fleet.source_cluster.slug if fleet.source_cluster else fleet.gpu or "unknown GPU"
    return [
        ("job", f"{ranks} · {where} · {format_quantity(fleet.kernels, 'kernel')}"),
        (
            "step",
            f"{format_duration(step.step_time_us)}, the GPU busy {format_duration(step.kernel_time_us)} in the mean "
            f"rank, of which exposed communication {format_duration(step.exposed_comm_us)} and waiting for other ranks "
            f"{format_duration(step.waiting_us)}",
        ),
        ("replay", f"{format_duration(fleet.replayed_us)}, error {format_percent(fleet.error_pct)}"),
    ]


def render_fleet(fleet: FleetReport, top: int, *, all_notes: bool = False) -> RenderableType:
    """Render the report for a terminal.

    Args:
        fleet: The report.
        top: Ranks and process groups to list.
        all_notes: Show all notes on the predictions, not those alone that matter most.
    """
    best = dataclasses.replace(fleet, targets=fleet.targets[:MOST_DETAILED_TARGETS])
    return Group(
        *render_answer(fleet),
        make_facts_table(*describe_job(fleet), label_chars=LABEL_CHARS),
        *_render_part("predicted step", render_targets(fleet) if fleet.targets else None),
        *_render_part(ENERGY_TITLE, render_energy(best) if fleet.targets else None),
        *_render_part("ranks that hold up the job, in a mean step", _make_stragglers_table(fleet, top)),
        *_render_part("ranks by busy GPU time, without waiting", _draw_bins(count_ranks_by_time(fleet))),
        *_render_part("slowest process groups", _make_links_table(fleet, top)),
        *_render_part("spread of ranks by step, without waiting", _make_steps_table(fleet)),
        *(render_notes(fleet, all_notes=all_notes, name=name_option) if fleet.targets else ()),
        *(Text(f"{one.severity}: {one.render(name_option)} [{one.code}]", "yellow") for one in fleet.warnings),
    )


def _render_part(title: str, part: RenderableType | None) -> Iterator[RenderableType]:
    if part is not None:
        yield from (Text(), Text(title, "bold"), Padding(part, (0, 0, 0, 2)))


def _make_stragglers_table(fleet: FleetReport, top: int) -> RenderableType | None:
    late = list_stragglers(fleet, top)
    if late.is_empty():
        return None
    table = make_grid(
        ("rank", "number"), ("late by", "number"), ("last in", "number"), ("busy", "number"), ("waits", "number")
    )
    for row in late.iter_rows(named=True):
        table.add_row(
            str(row["rank"]),
            format_duration(row["held_up_us"]),
            format_percent(100 * row["last_share"]),
            format_duration(row["busy_us"] or 0.0),
            format_duration(row["wait_us"]),
        )
    left_out = _find_late_ranks(fleet).height - late.height
    return append_omitted_count(table, left_out, "ranks more")


def _draw_bins(bins: list[Bin]) -> RenderableType | None:
    if not bins:
        return None
    table = make_grid(("from", "number"), ("ranks", "number"), ("", "text"))
    for one in bins:
        table.add_row(format_duration(one.low_us), f"{one.ranks:,}", "█" * round(BAR_CHARS * one.fraction))
    return table


def _make_links_table(fleet: FleetReport, top: int) -> RenderableType | None:
    if fleet.links.is_empty():
        return None
    table = make_grid(
        ("first rank", "number"),
        ("ranks", "number"),
        ("bus GB/s", "number"),
        ("of median", "number"),
        ("group", "text"),
    )
    for row in fleet.links.head(top).iter_rows(named=True):
        table.add_row(
            str(row["first_rank"]),
            str(row["ranks"]),
            f"{row['bus_gbps']:.1f}",
            format_percent(100 * row["of_median"]),
            row["group"],
        )
    return append_omitted_count(table, fleet.links.height - top, "process groups more")


def _make_steps_table(fleet: FleetReport) -> RenderableType | None:
    if fleet.steps.is_empty() or fleet.ranks < 2:
        return None
    table = make_grid(
        ("step", "number"),
        ("least", "number"),
        ("median", "number"),
        ("95 %", "number"),
        ("most", "number"),
        ("rank", "number"),
    )
    for row in fleet.steps.head(MOST_STEPS).iter_rows(named=True):
        times = (format_duration(row[name]) for name in ("least_us", "median_us", "p95_us", "most_us"))
        table.add_row(str(row["step"]), *times, str(row["slowest"]))
    return append_omitted_count(table, fleet.steps.height - MOST_STEPS, "steps more")


def render_fleet_page(fleet: FleetReport, top: int) -> str:
    """Render the report as HTML that makes no network requests; arguments as for :func:`render_fleet`."""
    return render_document(f"{fleet.ranks:,} ranks", render_fleet_body(fleet, top))


def render_fleet_body(fleet: FleetReport, top: int, name: OptionNames = name_option) -> ReportBody:
    """Render the report for a document that holds more than it.

    Args:
        fleet: The report.
        top: Ranks and process groups to list.
        name: Names options as the front end does.
    """
    targets = build_target_rows(fleet)
    content = (
        get_environment()
        .get_template("fleet.html")
        .render(
            fleet=fleet,
            report=fleet,
            headline=build_answer_headline(fleet.decision) if fleet.decision else None,
            targets=targets,
            pricing=describe_pricing(fleet, targets),
            time_scale=find_time_scale(fleet),
            notes=choose_notes(fleet, name),
            all_notes=collect_notes(fleet, name),
            option_name=name,
            measured_steps=format_step_count,
            is_alone=True,
            facts=describe_job(fleet),
            late=list_stragglers(fleet, top).to_dicts(),
            bins=count_ranks_by_time(fleet),
            links=fleet.links.head(top).to_dicts(),
            steps=fleet.steps.head(MOST_STEPS).to_dicts(),
            warnings=[f"{one.severity}: {one.render(name)}" for one in fleet.warnings],
        )
    )
    return ReportBody(Markup(content), Markup(read_asset("style.css")), Markup())


def dump_fleet(fleet: FleetReport) -> str:
    """Return the report as JSON, with a row for every rank."""
    return dump_document(
        {
            "job": {
                "source": fleet.trace,
                "gpu": fleet.gpu,
                "source_cluster": fleet.source_cluster.slug if fleet.source_cluster else None,
                "ranks": fleet.ranks,
                "world_size": fleet.world_size,
                "kernels": fleet.kernels,
                "step": fleet.step,
                "replayed_us": fleet.replayed_us,
                "error_pct": fleet.error_pct,
            },
            "decision": fleet.decision,
            "targets": [{"label": one.label, "step": one.step, **describe_target(one)} for one in fleet.targets],
            "ranks": fleet.stragglers,
            "process_groups": fleet.links,
            "steps": fleet.steps,
            "warnings": fleet.warnings,
        }
    )
