"""What was read and measured, as lines of a label and its text for terminals."""

from collections.abc import Iterator

from rich.console import RenderableType

from tracekit.analysis.embedding_tables import EmbeddingTables
from tracekit.format import format_bytes, format_duration, format_number, format_percent, format_quantity
from tracekit.render.grid import make_facts_table
from tracekit.render.step_facts import format_step_count
from tracekit.reporting.model import Report
from tracekit.reporting.sections.source import SourceSummary


def describe_tables(tables: EmbeddingTables | None) -> Iterator[tuple[str, str]]:
    """Describe the embedding tables of a recommender, where there are some."""
    if tables is None:
        return
    widths = sorted({tables.least_width, tables.most_width})
    held = f"{format_bytes(tables.weight_bytes)} of weights on the GPUs"
    elsewhere = f" ({tables.on_host} of them lie elsewhere)" if tables.on_host else ""
    updated = f", updated by {' and '.join(tables.optimizers)}" if tables.optimizers else ""
    count = format_quantity(tables.tables, "embedding table")
    looked_up = f"{tables.indices:,} rows looked up in a step"
    yield "tables", f"{count}{elsewhere}, rows of {' to '.join(map(str, widths))}, {held}; {looked_up}{updated}"


def describe_host(source: SourceSummary) -> str:
    """Describe how fast the trace's host is."""
    if source.host_speed is None:
        return "too few of PyTorch's ops tell its speed"
    said = f"{format_number(source.host_speed)} times as fast as the reference host, by {source.host_ops} ops"
    if source.usual_host_speed is None:
        return said
    return (
        f"{said}; {format_number(source.host_speed / source.usual_host_speed)} times as the usual one beside that GPU"
    )


def render_source(report: Report) -> RenderableType:
    """Render what was read, its GPU, the measured step and the replayed one."""
    source, replay = report.source, report.replay
    together = f" · {source.measured} of {source.ranks} ranks together"
    rank = together if source.measured > 1 else f" · rank {source.rank} of {source.ranks}" if source.ranks > 1 else ""
    exposed = f", only communicating {format_duration(source.exposed_comm_us)}" if source.exposed_comm_us else ""
    waiting = f" ({format_duration(source.waiting_us)} of it waiting for other ranks)" if source.waiting_us else ""
    derived = f"{format_duration(replay.derived_wait_us)} of waits derived, not copied"
    replayed = f"{format_duration(replay.step_time_us)} ({replay.error_pct:+z.2f} %) from the {source.label} kernels"
    gpu = f"{source.resolution} · {format_step_count(source)} · {format_quantity(source.kernels, 'kernel')} · shapes "
    return render_facts(
        ("trace", source.trace + rank),
        ("events", report.events.summary.render_text()),
        ("source GPU", gpu + ("recorded" if source.shapes_recorded else "not recorded")),
        (
            "step",
            f"{format_duration(source.step_time_us)}: GPU busy {format_duration(source.kernel_time_us)}, "
            f"idle {format_duration(source.idle_us)}" + exposed + waiting,
        ),
        ("replay", f"{replayed}; {derived}" if replay.derived_wait_us else replayed),
    )


def render_facts(*facts: tuple[str, str]) -> RenderableType:
    """Render lines of a label and a text, aligned with those of the source."""
    return make_facts_table(*facts, label_chars=len("source GPU"))


def describe_module_coverage(report: Report) -> Iterator[tuple[str, str]]:
    """Describe how much of the kernel time modules launched, where they are recorded."""
    if report.modules:
        share = sum(row.share for row in report.modules if row.depth == 0 and row.path)
        modules = sum(row.modules for row in report.modules if row.path)
        yield (
            "modules",
            f"{format_percent(share)} of kernel time was launched by "
            f"{format_quantity(modules, 'module')}: tracekit report",
        )
