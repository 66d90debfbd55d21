"""Table of what a step's energy is estimated to be, here and on each target."""

from collections.abc import Iterator

from tracekit.format import format_number
from tracekit.prediction.energy import StepEnergy
from tracekit.reporting.model import TargetsReport

TITLE = "energy of a step on one GPU, estimated"
JOULES = {"kJ": 1e3, "J": 1.0, "mJ": 1e-3}
"""Unit -> joules."""


def list_headings(report: TargetsReport) -> tuple[str, ...]:
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
    """Format both ends of a step's energy in the unit of the upper one: ``2.29–4.11 J``."""
    number, _, unit = format_joules(energy.high_joules).partition(" ")
    return f"{format_number(energy.low_joules / JOULES[unit])}–{number} {unit}"


def _format_row(report: TargetsReport, energy: StepEnergy, per_unit: float | None) -> tuple[str, ...]:
    per_thousand = () if report.source.batch is None else (format_joules(1e3 * (per_unit or 0.0)),)
    power = f"{energy.power_w:.0f} W", f"{energy.low_w:.0f}–{energy.high_w:.0f} W", f"{energy.limit_w:.0f} W"
    return format_joules(energy.joules), format_joules_interval(energy), *per_thousand, *power
