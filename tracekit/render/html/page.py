"""Render the report as one self-contained page: templates, style, scripts and data in a single file."""

from dataclasses import dataclass

import msgspec
from markupsafe import Markup

from predictors.hardware import GEFORCE_CLOCK_FACTOR
from tracekit.escape import to_html
from tracekit.messages import OptionNames, name_option
from tracekit.render import figures, what_if_rows
from tracekit.render.colours import get_family_colour
from tracekit.render.findings import group_findings
from tracekit.render.html.environment import get_environment, hash_script, read_asset
from tracekit.render.html.rows import build_kernel_rows
from tracekit.render.sentences import (
    build_headline,
    collect_notes,
    describe_speeds,
    describe_step_samples,
    format_step_count,
    merge_target_notes,
    name_gpus,
    name_target,
)
from tracekit.reporting.model import Report
from tracekit.reporting.sections.bars import list_parts
from tracekit.reporting.tables import COLLECTIVES, COPIES, KERNEL_TIMES, LAWS, MODULES, RANKS, TARGET_COLUMN_MEANINGS
from tracekit.schema import TableSchema

CHART_NAMES = ("roofline", "speeds", "steps", "queues", "copies")
MOST_RANKS = 16
MOST_MODULES = 300


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


def render_page(report: Report, name: OptionNames = name_option) -> str:
    """Render the report as HTML that opens from a file, makes no network requests and stays under 10 MB.

    Args:
        report: A report with or without predictions.
        name: Names options as the front end does.
    """
    body = render_report_body(report, name)
    return (
        get_environment()
        .get_template("page.html")
        .render(
            title=report.source.trace.split("/")[-1],
            body=body,
            style=body.style,
            script_source=hash_script(body.script.encode()),
        )
    )


def render_report_body(report: Report, name: OptionNames = name_option) -> ReportBody:
    """Render the report for a document that holds more than it.

    Args:
        report: A report with or without predictions.
        name: Names options as the front end does.
    """
    from plotly.offline import get_plotlyjs

    kernels, omitted = build_kernel_rows(report)
    data = {
        "gpus": [target.label for target in report.targets],
        "colours": {kernel.family: get_family_colour(kernel.family) for kernel in report.kernels},
        "kernels": kernels,
        "figures": {name: figures.build_figure(report, name) for name in CHART_NAMES},
    }
    content = (
        get_environment()
        .get_template("body.html")
        .render(
            report=report,
            option_name=name,
            MOST_RANKS=MOST_RANKS,
            MOST_MODULES=MOST_MODULES,
            headline=build_headline(report),
            findings=group_findings(report.findings),
            edits=list(what_if_rows.build_edit_rows(report)),
            edit_headings=what_if_rows.list_headings(report),
            notes=collect_notes(report, name),
            families=list_parts(report.bars),
            larger_steps=list(merge_target_notes(report, describe_step_samples)),
            speeds=list(describe_speeds(report)),
            omitted=omitted,
            drawn_pct=sum(kernel.share for kernel in figures.select_roofline_kernels(report)),
            smallest_pct=figures.MIN_BUBBLE_SHARE_PCT,
            above_boost_pct=100 * (GEFORCE_CLOCK_FACTOR - 1),
            gpus_named=name_gpus,
            target_named=name_target,
            measured_steps=format_step_count,
            data=_embed_json(data),
            columns={
                table.name: _collect_column_docs(table)
                for table in (KERNEL_TIMES, MODULES, COLLECTIVES, COPIES, RANKS, LAWS)
            }
            | {"predicted": TARGET_COLUMN_MEANINGS},
        )
    )
    script = f"{get_plotlyjs()}\n{read_asset('page.js')}"
    return ReportBody(Markup(content), Markup(read_asset("style.css")), Markup(script))


def _collect_column_docs(table: TableSchema) -> dict[str, str]:
    return {column.name: column.doc for column in table.columns}


def _embed_json(data: object) -> Markup:
    """Encode data as JSON that can't close the script element around it."""
    return Markup(to_html(msgspec.json.encode(data).decode()).replace("<", "\\u003c"))
