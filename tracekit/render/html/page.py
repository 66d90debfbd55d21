"""Render the report as one self-contained page: templates, style, script and data in a single file."""

import base64
import hashlib
import re
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, FileSystemBytecodeCache, PackageLoader, StrictUndefined
from jinja2.bccache import Bucket
from markupsafe import Markup

from predictors.hardware import GEFORCE_CLOCK_FACTOR
from tracekit.escape import to_html, write_csv
from tracekit.format import (
    format_change,
    format_count,
    format_dollars,
    format_duration,
    format_interval,
    format_likely,
    format_number,
    format_percent,
    format_price,
    format_quantity,
    format_range,
    name_place,
    shorten,
    shorten_kernel_name,
)
from tracekit.messages import OptionNames, name_option
from tracekit.render.charts import build_chart
from tracekit.render.charts.roofline import MAX_BUBBLES, MIN_BUBBLE_SHARE_PCT, select_roofline_kernels
from tracekit.render.charts.svg import draw_svg
from tracekit.render.colours import FAMILY_COLOURS, get_family_colour
from tracekit.render.facts import (
    MOST_DETAILED_TARGETS,
    build_edit_rows,
    build_serving_rows,
    describe_batch,
    describe_batches,
    describe_host,
    describe_peak_use,
    describe_step_samples,
    describe_tables,
    format_joules,
    format_joules_interval,
    format_rank,
    format_step_count,
    keep_best,
    list_edit_headings,
    list_owners,
    list_peak_edits,
    list_peak_slices,
    list_serving_headings,
)
from tracekit.render.html.rows import (
    build_finding_rows,
    build_kernel_families,
    build_target_rows,
    count_shown_kernels,
    describe_pricing,
    find_time_scale,
    list_first_targets,
)
from tracekit.render.html.timeline import LABEL_PX, draw_timelines
from tracekit.render.sentences import build_headline, choose_notes, collect_notes, describe_speeds, merge_target_notes
from tracekit.reporting import tables
from tracekit.reporting.model import Report
from tracekit.reporting.sections.step import list_parts
from tracekit.version import __version__

MAX_NAME_CHARS = 60
"""Maximum length of a name in a table; a tooltip shows the full name."""


class _CompiledTemplates(FileSystemBytecodeCache):
    """Compiled templates, kept beside Python's compiled modules: to compile them takes half of a page's time."""

    def __init__(self) -> None:
        super().__init__(str(Path(cache_from_source(__file__)).parent), f"page-{__version__}-%s.jinja")

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Keep a template, where the installation can be written to."""
        with suppress(OSError):
            super().dump_bytecode(bucket)


@cache
def get_environment() -> Environment:
    """Return the Jinja environment; its templates escape all values."""
    made = Environment(
        loader=PackageLoader("tracekit.render.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean_text,
        bytecode_cache=None if sys.dont_write_bytecode else _CompiledTemplates(),
    )
    formats: dict[str, Any] = {
        "change": format_change,
        "count": format_count,
        "likely": format_likely,
        "price": format_price,
        "quantity": format_quantity,
        "range": format_range,
        "duration": format_duration,
        "digits": format_number,
        "dollars": format_dollars,
        "joules": format_joules,
        "joules_interval": format_joules_interval,
        "percent": format_percent,
        "colour": _get_style_colour,
        "rank": lambda target, report: format_rank(report, target),
        "place": name_place,
        "told": describe_batch,
        "served": describe_batches,
        "serving_headings": list_serving_headings,
        "serving_rows": build_serving_rows,
    }
    made.filters.update(formats, shorten=lambda text, width=MAX_NAME_CHARS: shorten(shorten_kernel_name(text), width))
    made.globals.update(interval=format_interval, MAX_DRAWN_TARGETS=MAX_DRAWN_TARGETS)
    return made


def _get_style_colour(family: str) -> str:
    """Return a family's colour for a style; idle time is pale in both themes."""
    return "var(--idle)" if family == "idle" else get_family_colour(family)


def _clean_text(value: Any) -> Any:
    return to_html(value) if type(value) is str else value


def read_asset(name: str) -> str:
    """Read a file from the templates folder."""
    return (files("tracekit.render.html") / "templates" / name).read_text(encoding="utf-8")


def hash_script(script: bytes) -> str:
    """Return the content-security-policy source of an inline script: its SHA-256 hash."""
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    return f"'sha256-{digest}'"


MAX_RANKS = 16
MAX_MODULES = 80
MAX_OVER_BOUND = 40
MAX_DATASHEETS = 4
MAX_TOLD_ALIKE = 4
"""Findings that give several targets the same advice, of which more are folded."""
MAX_DRAWN_TARGETS = 20
"""Targets, best first, whose bars are drawn, and whose rows the table shows before a reader asks for all."""
PATH_COLOURS = {
    "gpu": FAMILY_COLOURS["gemm"],
    "communication": FAMILY_COLOURS["conv"],
    "host": "#7b8794",
    "latency": FAMILY_COLOURS["norm"],
    "unexplained": "#b0b0b0",
}
"""Colours of the resources on the critical path, as the style sheet has them."""
SCRIPTS = ("core", "table", "kernels", "links", "timeline", "figures", "prices")
"""Files of the page's script, in the order in which they run."""
MENU = (
    ("targets", "GPUs"),
    ("time", "Time"),
    ("timeline", "Timeline"),
    ("findings", "Findings"),
    ("kernels", "Kernels"),
    ("roofline", "Roofline"),
    ("idle", "Critical path"),
    ("accuracy", "Accuracy"),
    ("provenance", "Sources"),
)
"""Sections that the menu leads to."""


@dataclass(frozen=True, slots=True)
class ReportBody:
    """The report in parts, for a document that holds more than it.

    Attributes:
        content: An element of class ``report``: section menu, sections, and the data that the script reads.
        style: Style sheet, which acts within that element alone.
        script: Script, the same for all reports; runs after the content is there.
    """

    content: Markup
    style: Markup
    script: Markup


@dataclass(frozen=True, slots=True)
class DrawnChart:
    """A chart as the templates show it."""

    title: str
    svg: Markup
    csv: str


def render_page(report: Report, name: OptionNames = name_option) -> str:
    """Render the report as HTML that opens from a file and makes no network requests.

    It stays under 500 kB, but for a hundred targets.
    """
    return render_document(report.source.trace.split("/")[-1], _render_body(report, name, is_alone=True))


def render_document(title: str, body: ReportBody) -> str:
    """Render a document that holds nothing but a report or a comparison."""
    template = get_environment().get_template("page.html")
    return template.render(title=title, body=body, style=body.style, script_source=hash_script(body.script.encode()))


def render_report_body(report: Report, name: OptionNames = name_option) -> ReportBody:
    """Render the report for a document that has its own title, choice of theme and other content."""
    return _render_body(report, name, is_alone=False)


def _render_body(report: Report, name: OptionNames, *, is_alone: bool) -> ReportBody:
    drawn, best = _keep_drawn(report), keep_best(report, MOST_DETAILED_TARGETS)
    charts = {chart: _draw_chart(drawn, chart) for chart in _list_charts(report)}
    targets = build_target_rows(report)
    pricing = describe_pricing(report, targets)
    timelines = draw_timelines(report)
    left_out = {name for name, shown in (("targets", targets), ("timeline", timelines)) if not shown}
    shown = count_shown_kernels(drawn)
    content = (
        get_environment()
        .get_template("body.html")
        .render(
            report=report,
            is_alone=is_alone,
            option_name=name,
            MAX_RANKS=MAX_RANKS,
            MAX_MODULES=MAX_MODULES,
            MAX_OVER_BOUND=MAX_OVER_BOUND,
            MAX_DATASHEETS=MAX_DATASHEETS,
            MAX_TOLD_ALIKE=MAX_TOLD_ALIKE,
            menu=[(section, text) for section, text in MENU if section not in left_out],
            headline=build_headline(report),
            targets=targets,
            pricing=pricing,
            time_scale=find_time_scale(report),
            first_targets=list_first_targets(report),
            charts=charts,
            timelines=timelines,
            timeline_label_px=LABEL_PX,
            path_colours=PATH_COLOURS,
            path_places={resource for one in timelines for resource, _ in one.path},
            findings=build_finding_rows(report),
            kernel_families=build_kernel_families(drawn),
            omitted=len(report.kernels) - shown,
            edits=list(build_edit_rows(report)),
            edit_headings=list_edit_headings(report),
            notes=choose_notes(report, name),
            all_notes=collect_notes(report, name),
            drawn=drawn,
            families=list_parts(drawn.compared_bars),
            larger_steps=list(merge_target_notes(report, describe_step_samples)),
            speeds=list(describe_speeds(report)),
            drawn_pct=sum(kernel.share for kernel in select_roofline_kernels(report)),
            smallest_pct=MIN_BUBBLE_SHARE_PCT,
            most_bubbles=MAX_BUBBLES,
            above_boost_pct=100 * (GEFORCE_CLOCK_FACTOR - 1),
            measured_steps=format_step_count,
            data=_embed_json({"csv": {chart: drawn.csv for chart, drawn in charts.items()}, "pricing": pricing}),
            tables=tables,
            owners=list(list_owners(report)),
            peak_lines=describe_peak_use(best),
            peak_slices=list_peak_slices(best),
            peak_edits=list_peak_edits(best),
            machine=[("host", describe_host(report.source)), *describe_tables(report.source.tables)],
        )
    )
    content = re.sub(r"\n\s+", "\n", content)
    return ReportBody(Markup(content), Markup(read_asset("style.css")), _join_scripts(is_alone=is_alone))


def _list_charts(report: Report) -> list[str]:
    """List the charts that have something to show."""
    course = report.course
    shown = {
        "answer": bool(report.decision),
        "time": True,
        "roofline": bool(select_roofline_kernels(report)),
        "speeds": True,
        "steps": len(report.steps) > 1,
        "queues": bool(course and course.queues),
        "copies": bool(course and course.copies_gbps),
    }
    return [name for name, is_shown in shown.items() if is_shown]


def _keep_drawn(report: Report) -> Report:
    """Return the report with the targets that the charts and the kernels' table show."""
    if len(report.targets) <= MAX_DRAWN_TARGETS:
        return report
    best = keep_best(report, MAX_DRAWN_TARGETS)
    gpus = {target.gpu for target in best.targets}
    best = replace(
        best,
        roofs=tuple(roof for roof in report.roofs if roof.measured or roof.gpu in gpus),
        kernels=tuple(
            replace(
                kernel,
                predicted_us=kernel.predicted_us[:MAX_DRAWN_TARGETS],
                predicted_tiles=kernel.predicted_tiles[:MAX_DRAWN_TARGETS],
            )
            for kernel in report.kernels
        ),
    )
    if best.decision is None:
        return best
    return replace(best, decision=replace(best.decision, targets=best.decision.targets[:MAX_DRAWN_TARGETS]))


def _draw_chart(report: Report, name: str) -> DrawnChart:
    chart = build_chart(report, name)
    return DrawnChart(chart.title, Markup(draw_svg(chart)), write_csv(chart.to_table()))


def _join_scripts(*, is_alone: bool) -> Markup:
    names = (*SCRIPTS, "theme") if is_alone else SCRIPTS
    parts = "\n".join(read_asset(f"scripts/{name}.js") for name in names)
    return Markup(f'(() => {{\n"use strict";\n{parts}}})();\n')


def _embed_json(data: object) -> Markup:
    """Encode data as JSON that can't close the script element around it."""
    return Markup(to_html(msgspec.json.encode(data).decode()).replace("<", "\\u003c"))
