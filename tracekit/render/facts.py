"""Cells and lines that several forms share: the step, its costs, its energy, served batches and what-if edits."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from tracekit.analysis.embedding_tables import EmbeddingTables
from tracekit.analysis.idle_causes import IdleCause
from tracekit.format import (
    format_amount,
    format_bytes,
    format_count,
    format_dollars,
    format_duration,
    format_interval,
    format_number,
    format_percent,
    format_quantity,
    format_run_time,
    name_place,
)
from tracekit.prediction.batch import StepBatch
from tracekit.prediction.energy import StepEnergy
from tracekit.prediction.memory import MemoryFit
from tracekit.prediction.model import PredictedStep
from tracekit.render.screen import ColumnKind
from tracekit.reporting.figure import Figure
from tracekit.reporting.model import Report, TargetsReport
from tracekit.reporting.sections.peak_use import PeakSlice
from tracekit.reporting.sections.serving import DECODE_KINDS, PREFILL_KINDS, ServedBatches, ServingSpeed
from tracekit.reporting.sections.step import SourceSummary
from tracekit.reporting.sections.targets import EditSaving
from tracekit.reporting.tables import STEP, list_step_figures, show_step_figure

MIN_OWNER_PCT = 0.1
MOST_DETAILED_TARGETS = 6
"""Most targets that an output which grows with each shows in detail."""


def format_fit(memory: MemoryFit) -> str:
    """Format for a table column whether a rank fits into memory."""
    return {True: "yes", False: "no", None: "?"}[memory.fits]


def format_rank(report: TargetsReport, target: PredictedStep) -> str:
    """Format the rank of one of several targets for a table column; ``2=`` is shared."""
    ranks = {one.label: one.rank for one in report.decision.targets} if report.decision else {}
    rank = ranks[target.label]
    return f"{rank}=" if list(ranks.values()).count(rank) > 1 else str(rank)


def format_speedup(speedup: float | None, sign: str = "x") -> str:
    """Format how many times as fast a target is for a table column; blank where nothing is compared."""
    return "" if speedup is None else f"{format_number(speedup)}{sign}"


def is_per_sample(report: TargetsReport) -> bool:
    """Return whether a target's step has another number of samples, so that times per sample are compared."""
    return any(target.batch_ratio != 1 for target in report.targets)


def has_prices(report: TargetsReport) -> bool:
    """Return whether a price of the trace's GPU or of a target's GPU was given."""
    return any(price is not None for price in (report.source.price, *(target.price for target in report.targets)))


def describe_step_samples(target: PredictedStep) -> Iterator[str]:
    """Yield a note if a target's step has another number of samples than the source's."""
    if target.batch_ratio != 1:
        source = "the captured one" if target.speedup is None else "a measured one"
        yield f"a step there works through {target.batch_ratio:g} times the samples of {source}"


def format_step_count(source: SourceSummary) -> str:
    """Format the number of steps that the medians are over."""
    if not source.steps_marked:
        return "no steps marked: all of it counts as one"
    return format_quantity(source.steps, f"{source.batches} batch" if source.batches else "step")


def list_owners(report: Report) -> Iterator[tuple[str, float]]:
    """Yield whose the step's time is, in percent of the step, but for the smallest parts."""
    for owner, share in sum_owner_shares(report):
        if share >= MIN_OWNER_PCT:
            yield name_place(owner), share


def sum_owner_shares(report: Report) -> list[tuple[str, float]]:
    """Sum the parts of the measured step by whose they are, in percent of the step, largest first."""
    shares: dict[str, float] = {}
    for part in report.parts:
        shares[part.owner] = shares.get(part.owner, 0.0) + part.share
    return sorted(shares.items(), key=lambda item: -item[1])


def keep_best(report: Report, most: int) -> Report:
    """Return the report with the best targets alone, for outputs that grow with each."""
    best = report.targets[:most]
    labels = {None, *(target.label for target in best)}
    peak_use = tuple(row for row in report.peak_use if row.on in labels)
    slices = tuple(row for row in report.peak_slices if row.on in labels)
    return replace(report, targets=best, bars=report.bars[: 1 + most], peak_use=peak_use, peak_slices=slices)


MFU_PARTS = ("products", "recomputed")
MIN_PEAK_PCT = 1.0
"""Percent of the step below which a part of it isn't worth a word."""


def describe_peak_use(report: Report) -> list[str]:
    """Return a line for each step: the share of the GPU's peak that it uses, and where the rest goes, longest first."""
    lines = []
    for on in dict.fromkeys(row.on for row in report.peak_use):
        shares = {row.part: row.share for row in report.peak_use if row.on == on}
        mfu, again = (shares.pop(part, 0.0) for part in MFU_PARTS)
        hfu = f" (HFU {format_percent(mfu + again)})" if again >= MIN_PEAK_PCT else ""
        rest = sorted(((share, part) for part, share in shares.items() if share >= MIN_PEAK_PCT), reverse=True)
        told = ", ".join(f"{_name_part(part)} {format_percent(share)}" for share, part in rest)
        lines.append(f"{on or report.source.label}: MFU {format_percent(mfu)}{hfu}; the rest: {told}")
    return lines


MIN_PEAK_GAIN = 0.5
"""Points of MFU below which an edit isn't worth a line."""
MOST_PEAK_ROWS = 6
"""Most modules, and most edits, beside a step's use of the peak."""


def list_peak_slices(report: Report) -> list[tuple[str, list[PeakSlice]]]:
    """List the phases, and the modules that lose most, of the measured step and of the best target's, by its name."""
    first = [*dict.fromkeys(row.on for row in report.peak_slices)][:2]
    return [(on or report.source.label, _choose_slices(report, on)) for on in first]


def _choose_slices(report: Report, on: str | None) -> list[PeakSlice]:
    own = [row for row in report.peak_slices if row.on == on]
    phases, modules = ([row for row in own if row.kind == kind] for kind in ("phase", "module"))
    return [*phases, *modules[:MOST_PEAK_ROWS]]


def list_peak_edits(report: Report) -> list[tuple[str, str, str]]:
    """List the edits that bring the measured step nearest to the peak: MFU with each, the part, the edit."""
    without = report.source.mfu or 0.0
    found = [row for row in report.peak_use if (row.mfu_with_edit or 0.0) >= without + MIN_PEAK_GAIN]
    best = sorted(found, key=lambda row: -(row.mfu_with_edit or 0.0))[:MOST_PEAK_ROWS]
    return [(format_percent(row.mfu_with_edit or 0.0), _name_part(row.part), row.edit or "") for row in best]


def _name_part(part: str) -> str:
    """Return a part's name; that of a cause of idle time says so: ``idle (launch bound)``."""
    return f"idle ({part.replace('_', ' ')})" if part in set(IdleCause) else part


@dataclass(frozen=True, slots=True)
class CostColumn:
    """A table column: one figure of the measured step and of each target's step.

    Attributes:
        heading: Heading, such as ``tokens/s``.
        measured: Value of the measured step.
        format_target: Function that formats a target's value.
        meaning: Explanation of the heading; empty if it needs none.
    """

    heading: str
    measured: str
    format_target: Callable[[PredictedStep], str]
    meaning: str

    @property
    def is_rate(self) -> bool:
        """Whether it is throughput."""
        return self.heading.endswith("/s")

    @property
    def kind(self) -> ColumnKind:
        """Kind of column of a grid: throughput, which nobody asked for, and prices, which are known, go first."""
        return "number" if self.is_rate or self.heading.endswith("/h") else "cost"


def build_cost_columns(
    report: TargetsReport, *, with_ends: bool = True, with_throughput: bool = True
) -> Iterator[CostColumn]:
    """Yield throughput columns if the trace's batch is known, and cost columns as far as prices are known.

    Figures of a step that have a heading come last.

    Args:
        report: The predictions.
        with_ends: Whether costs have their intervals, which are those of the step.
        with_throughput: Whether throughput has a column.
    """
    yield from (one for one in _build_price_columns(report, with_ends=with_ends) if with_throughput or not one.is_rate)
    for name in list_step_figures(report):
        column = STEP.columns[name]
        shown = show_step_figure(report.source, name)
        meaning = f"{column.meaning[:1].lower()}{column.meaning[1:].removesuffix('.')}"
        yield CostColumn(column.heading, shown, partial(show_step_figure, name=name), meaning)


def _build_price_columns(report: TargetsReport, *, with_ends: bool) -> Iterator[CostColumn]:
    source, batch, decision = report.source, report.source.batch, report.decision
    if batch:
        yield CostColumn(
            f"{batch.unit}/s",
            format_number(source.per_second or 0.0),
            lambda one: format_number(one.per_second or 0.0),
            describe_batch(batch),
        )
    if decision is None:
        return
    here, targets = decision.here, {one.label: one for one in decision.targets}
    if has_prices(report):
        priced = "a million" if batch else f"{decision.amount:,}"
        yield CostColumn(
            "$/1M" if batch else "$/1k steps",
            format_dollars(here.dollars),
            lambda one: _format_dollars(targets[one.label].dollars, with_ends),
            f"dollars for {priced} {decision.unit}{'' if batch else ' as traced (--samples N for a million samples)'}",
        )
    if here.price is not None:
        yield CostColumn(
            "pays below",
            "",
            lambda one: _format_dollars(targets[one.label].break_even, with_ends),
            "the price there at which it costs as much as here",
        )
    if decision.run_amount is not None:
        run = f"{format_amount(decision.run_amount)} {decision.run_unit}"
        yield CostColumn(
            "run",
            "" if here.run_hours is None else format_run_time(here.run_hours),
            lambda one: _format_run(targets[one.label].run_hours, with_ends),
            f"time for {run}",
        )
        if has_prices(report):
            yield CostColumn(
                "run $",
                format_dollars(here.run_dollars),
                lambda one: _format_dollars(targets[one.label].run_dollars, with_ends),
                f"dollars for {run}",
            )
    if has_prices(report):
        yield CostColumn(
            "$/h",
            format_dollars(here.price),
            lambda one: format_dollars(targets[one.label].price),
            "dollars for an hour of one GPU",
        )


def _format_dollars(amount: Figure | None, with_ends: bool) -> str:
    """Format dollars with their interval; a dash without a price."""
    if amount is None or not with_ends:
        return format_dollars(amount.likely if amount else None)
    low, high = (format_dollars(end, like=amount.likely) for end in (amount.low, amount.high))
    return f"{format_dollars(amount.likely)} ({low}–{high})"


def _format_run(hours: Figure | None, with_ends: bool) -> str:
    return "" if hours is None else format_run_time(hours.ordered if with_ends else hours.likely)


def describe_batch(batch: StepBatch) -> str:
    """Describe the batch of the measured step and how it was determined."""
    first = "embedding" if batch.unit == "tokens" else "convolution"
    passes = f" in {batch.passes:,} passes" if batch.passes > 1 else ""
    known = "as given" if batch.given else "as the engine marks it" if batch.marked else f"as its first {first} tells"
    least, most = batch.ends
    open_to = f" ({least:,.0f} to {most:,.0f})" if least < most else ""
    return f"of {batch.size:,.0f}{open_to} in a step{passes}, {known}"


def explain_headings(columns: Iterable[CostColumn]) -> Iterator[str]:
    """Yield an explanation of the headings that need one."""
    if said := [f"{one.heading}: {one.meaning}" for one in columns if one.meaning]:
        yield "; ".join(said)


ENERGY_TITLE = "energy of a step on one GPU, estimated"
JOULES = {"kJ": 1e3, "J": 1.0, "mJ": 1e-3}
"""Unit -> joules."""


def list_energy_headings(report: TargetsReport) -> tuple[str, ...]:
    """Return the headings of :func:`build_energy_rows`, which begin with the GPU's."""
    batch = report.source.batch
    per_unit = (f"per 1k {batch.unit}",) if batch else ()
    return ("energy", "90 % interval", *per_unit, "mean power", "90 % interval", "limit")


def build_energy_rows(report: TargetsReport) -> Iterator[tuple[str, ...]]:
    """Yield a row for the measured step, where its GPU is known, and for each target."""
    source = report.source
    if source.energy and not (source.is_captured and report.targets):
        yield source.label, *_format_row(report, source.energy, source.joules_per_unit)
    for target in report.targets:
        yield target.label, *_format_row(report, target.energy, target.joules_per_unit)


def format_joules(joules: float) -> str:
    """Format an energy in a suitable unit: ``3.07 J``, ``21.3 mJ``, ``1.20 kJ``."""
    unit = next((unit for unit, size in JOULES.items() if joules >= 0.9995 * size), "mJ")
    return f"{format_number(joules / JOULES[unit])} {unit}"


def format_joules_interval(energy: StepEnergy) -> str:
    """Format both ends of a step's energy in its own unit: ``2.29–4.11 J``."""
    unit = format_joules(energy.joules).partition(" ")[2]
    low, high = (format_number(end / JOULES[unit]) for end in (energy.low_joules, energy.high_joules))
    return f"{low}–{high} {unit}"


def _format_row(report: TargetsReport, energy: StepEnergy, per_unit: float | None) -> tuple[str, ...]:
    per_thousand = () if report.source.batch is None else (format_joules(1e3 * (per_unit or 0.0)),)
    power = f"{energy.power_w:.0f} W", f"{energy.low_w:.0f}–{energy.high_w:.0f} W", f"{energy.limit_w:.0f} W"
    return format_joules(energy.joules), format_joules_interval(energy), *per_thousand, *power


SERVING_TITLE = "serving"


def describe_batches(served: ServedBatches) -> str:
    """Describe the batches of one kind: ``3 decode batches of 8 sequences, 8 tokens``."""
    counts = ((served.prompts, "prompt"), (served.sequences, "sequence"), (served.tokens, "token"))
    size = ", ".join(format_quantity(round(count), unit) for count, unit in counts if count)
    kind = "" if served.kind == "batch" else f"{served.kind} "
    return f"{format_quantity(served.batches, f'{kind}batch')} of {size}"


def list_serving_headings(served: ServedBatches) -> tuple[str, ...]:
    """Return the headings of :func:`build_serving_rows`, which begin with that of the GPU."""
    is_prefill, is_decode = served.kind in PREFILL_KINDS, served.kind in DECODE_KINDS
    is_shared = not is_prefill or served.accepted is None
    names = [*["first token"] * is_prefill, *["per output token"] * (is_decode and is_shared)]
    latency = " and ".join(names) or "batch"
    return (latency, "90 % interval", "tokens/s", *["per GPU"] * _has_several_gpus(served), *["per user"] * is_decode)


def build_serving_rows(served: ServedBatches) -> Iterator[tuple[str, ...]]:
    """Yield the cells of the measured batch and of each target's."""
    for speed in served.speeds:
        time = speed.batch_us if served.kind in PREFILL_KINDS else speed.output_token_us or speed.batch_us
        span = "" if time.is_exact else format_interval(time.low, time.high, time.likely)
        yield speed.label, format_duration(time.likely), span, *_format_rates(speed, _has_several_gpus(served))


def _has_several_gpus(served: ServedBatches) -> bool:
    return any(speed.gpus > 1 for speed in served.speeds)


def _format_rates(speed: ServingSpeed, each: bool) -> Iterator[str]:
    rates = [speed.tokens_per_s, *[speed.tokens_per_s_per_gpu] * each, speed.tokens_per_s_per_user]
    for rate in rates:
        if rate is not None:
            yield format_count(rate.likely) if rate.likely >= 100 else format_number(rate.likely)


@dataclass(frozen=True, slots=True)
class EditRow:
    """Table row of one what-if edit, or of all of them together.

    Attributes:
        figures: The saving, then the step times with it and those before; :func:`list_edit_headings` names them.
        text: The edit as the user wrote it; empty for the sum row.
    """

    figures: tuple[str, ...]
    text: str
    description: str


def list_edit_headings(report: Report) -> tuple[str, ...]:
    """Return the headings of the figures in each row."""
    return ("saves", "step", *_list_mfu(report.what_if, "MFU"), *(target.label for target in report.targets))


def build_edit_rows(report: Report) -> Iterator[EditRow]:
    """Yield one row per edit in order, and a sum row if there are several."""
    for edit in report.what_if:
        yield EditRow((_format_saving(edit.saving_us), *_format_after(edit)), edit.text, str(edit.description))
    if len(report.what_if) > 1:
        whole = _format_saving(sum(edit.saving_us for edit in report.what_if))
        yield EditRow((whole, *_format_after(report.what_if[-1])), "", "all together")


def _format_after(edit: EditSaving) -> list[str]:
    """Format the steps after an edit, and between the measured and the predicted ones the MFU, where it is known."""
    step, *predicted = map(_format_step, (edit.step_time_us, *edit.predicted_us))
    return [step, *_list_mfu([edit], format_percent(edit.mfu or 0.0)), *predicted]


def _list_mfu(edits: Sequence[EditSaving], cell: str) -> list[str]:
    return [cell] if any(edit.mfu is not None for edit in edits) else []


def _format_step(step_us: float | None) -> str:
    return "–" if step_us is None else format_duration(step_us)


def _format_saving(saving_us: float) -> str:
    return format_duration(saving_us) if saving_us >= 0 else f"−{format_duration(-saving_us)}"


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
