"""Render a job of many ranks: top lists and distributions, whatever the number of ranks."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from markupsafe import Markup
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tracekit.escape import to_markdown, write_csv
from tracekit.fleet.model import FleetReport, name_fleet_option
from tracekit.format import format_duration, format_percent, format_quantity
from tracekit.messages import OptionNames
from tracekit.render import markdown
from tracekit.render import tables as sheets
from tracekit.render.facts import (
    ENERGY_TITLE,
    MOST_DETAILED_TARGETS,
    build_energy_rows,
    format_step_count,
    list_energy_headings,
)
from tracekit.render.html.page import ReportBody, get_environment, read_asset, render_document
from tracekit.render.html.rows import build_target_rows, describe_pricing, find_time_scale
from tracekit.render.json import describe_target, dump_document
from tracekit.render.screen import ColumnKind, append_omitted_count, as_text, make_facts_table, make_grid
from tracekit.render.sentences import build_answer_headline, choose_notes, collect_notes
from tracekit.render.terminal import render_answer, render_energy, render_notes
from tracekit.render.terminal_tables import render_targets
from tracekit.reporting import tables

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


@dataclass(frozen=True, slots=True)
class FleetTable:
    """A table of ranks, process groups or steps, as every form shows it.

    Attributes:
        title: Its title.
        columns: Headings, and how each is aligned.
        rows: Cells as text.
        left_out: Rows that aren't shown.
        what: What these are.
    """

    title: str
    columns: tuple[tuple[str, ColumnKind], ...]
    rows: Sequence[tuple[str, ...]]
    left_out: int = 0
    what: str = ""


def _make_numbers(*names: str) -> tuple[tuple[str, ColumnKind], ...]:
    """Make columns of numbers."""
    return tuple((name, "number") for name in names)


def list_tables(fleet: FleetReport, top: int) -> list[FleetTable]:
    """List the tables that have rows, of at most ``top`` ranks and process groups."""
    tables = (_list_late_ranks(fleet, top), _list_bins(fleet), _list_links(fleet, top), _list_steps(fleet))
    return [one for one in tables if one.rows]


def _list_late_ranks(fleet: FleetReport, top: int) -> FleetTable:
    late = list_stragglers(fleet, top)
    columns = _make_numbers("rank", "late by", "last in", "busy", "waits")
    rows = [
        (
            str(row["rank"]),
            format_duration(row["held_up_us"]),
            format_percent(100 * row["last_share"]),
            format_duration(row["busy_us"] or 0.0),
            format_duration(row["wait_us"]),
        )
        for row in late.iter_rows(named=True)
    ]
    left_out = _find_late_ranks(fleet).height - late.height
    title = "ranks that hold up the job, in a mean step"
    return FleetTable(title, columns, rows, left_out, "ranks more")


def _list_bins(fleet: FleetReport) -> FleetTable:
    rows = [
        (format_duration(one.low_us), f"{one.ranks:,}", "█" * round(BAR_CHARS * one.fraction))
        for one in count_ranks_by_time(fleet)
    ]
    columns = (*_make_numbers("from", "ranks"), ("", "text"))
    return FleetTable("ranks by busy GPU time, without waiting", columns, rows)


def _list_links(fleet: FleetReport, top: int) -> FleetTable:
    rows = [
        (
            str(row["first_rank"]),
            str(row["ranks"]),
            f"{row['bus_gbps']:.1f}",
            format_percent(100 * row["of_median"]),
            row["group"],
        )
        for row in fleet.links.head(top).iter_rows(named=True)
    ]
    columns = (*_make_numbers("first rank", "ranks", "bus GB/s", "of median"), ("group", "text"))
    left_out = fleet.links.height - top
    return FleetTable("slowest process groups", columns, rows, left_out, "process groups more")


def _list_steps(fleet: FleetReport) -> FleetTable:
    steps = fleet.steps if fleet.ranks > 1 else fleet.steps.clear()
    rows = [
        (
            str(row["step"]),
            *(format_duration(row[name]) for name in ("least_us", "median_us", "p95_us", "most_us")),
            str(row["slowest"]),
        )
        for row in steps.head(MOST_STEPS).iter_rows(named=True)
    ]
    columns = _make_numbers("step", "least", "median", "95 %", "most", "rank")
    left_out = fleet.steps.height - MOST_STEPS
    title = "spread of ranks by step, without waiting"
    return FleetTable(title, columns, rows, left_out, "steps more")


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
        *(_render_part("predicted step", render_targets(fleet)) if fleet.targets else ()),
        *(_render_part(ENERGY_TITLE, render_energy(best)) if fleet.targets else ()),
        *(line for table in list_tables(fleet, top) for line in _render_part(table.title, _draw(table))),
        *(render_notes(fleet, all_notes=all_notes, name=name_fleet_option) if fleet.targets else ()),
        *(Text(f"{one.severity}: {one.render(name_fleet_option)} [{one.code}]", "yellow") for one in fleet.warnings),
    )


def _render_part(title: str, part: RenderableType) -> Iterator[RenderableType]:
    yield from (Text(), Text(title, "bold"), Padding(part, (0, 0, 0, 2)))


def _draw(table: FleetTable) -> RenderableType:
    grid = make_grid(*table.columns)
    for row in table.rows:
        grid.add_row(*row)
    return append_omitted_count(grid, table.left_out, table.what)


def render_fleet_markdown(fleet: FleetReport, top: int) -> str:
    """Render the report as Markdown; arguments as for :func:`render_fleet`."""
    return "\n".join(_generate_markdown(fleet, top)) + "\n"


def _generate_markdown(fleet: FleetReport, top: int) -> Iterator[str]:
    if fleet.decision:
        said = build_answer_headline(fleet.decision)
        yield from (f"# {to_markdown(f'{said.before} {said.figure}{said.after}')}", "", to_markdown(said.detail), "")
    yield from (f"- {label}: {to_markdown(fact)}" for label, fact in describe_job(fleet))
    if fleet.targets:
        best = dataclasses.replace(fleet, targets=fleet.targets[:MOST_DETAILED_TARGETS])
        yield from ("", "## Predicted step", "", *markdown.generate_step_table(fleet))
        yield from ("", f"## {ENERGY_TITLE[0].upper()}{ENERGY_TITLE[1:]}", "")
        yield from markdown.format_table(("GPU", *list_energy_headings(fleet)), [*build_energy_rows(best)])
    for table in list_tables(fleet, top):
        yield from ("", f"## {table.title[0].upper()}{table.title[1:]}", "")
        yield from markdown.format_table([name for name, _ in table.columns], table.rows)
        if table.left_out > 0:
            yield from ("", f"{table.left_out:,} {table.what}.")
    notes = choose_notes(fleet, name_fleet_option, to_markdown)
    if notes.texts:
        yield from ("", "## Notes", "", *(f"- {note}" for note in notes.texts))
    if fleet.warnings:
        yield from ("", "## Before you rely on this", "")
        yield from (f"- {one.render(name_fleet_option, to_markdown)}" for one in fleet.warnings)


def build_fleet_frames(fleet: FleetReport) -> dict[str, pl.DataFrame]:
    """Build the tables by name: the answer, its notes, and a row for each rank, process group and step."""
    return {
        tables.STEP.name: tables.build_answer_frame(fleet),
        tables.NOTES.name: tables.build_note_frame(fleet),
        "ranks": fleet.stragglers,
        "process_groups": fleet.links,
        "steps": fleet.steps,
    }


def encode_fleet(fleet: FleetReport, form: str, top: int) -> bytes:
    """Encode the report in a form, by its suffix; ``csv`` and ``parquet`` are the answer, a row for each target."""
    if form == "xlsx":
        return sheets.render_sheets({name: frame for name, frame in build_fleet_frames(fleet).items() if frame.height})
    if form == "parquet":
        return sheets.to_parquet(tables.build_answer_frame(fleet))
    renderers: dict[str, Callable[[], str]] = {
        "html": lambda: render_fleet_page(fleet, top),
        "json": lambda: dump_fleet(fleet),
        "md": lambda: render_fleet_markdown(fleet, top),
        "csv": lambda: write_csv(tables.build_answer_frame(fleet)),
        "txt": lambda: as_text(render_fleet(fleet, top)),
    }
    return renderers[form]().encode()


def render_fleet_page(fleet: FleetReport, top: int) -> str:
    """Render the report as HTML that makes no network requests; arguments as for :func:`render_fleet`."""
    return render_document(f"{fleet.ranks:,} ranks", render_fleet_body(fleet, top))


def render_fleet_body(fleet: FleetReport, top: int, name: OptionNames = name_fleet_option) -> ReportBody:
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
            tables=tables,
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
