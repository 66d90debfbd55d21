"""Options that change a run before it is reported or predicted."""

from typing import Annotated

import typer

UNITS_US = {"us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6}

WhatIfs = Annotated[
    list[str],
    typer.Option(
        "--what-if",
        metavar="EDIT",
        help="Replay with a change, such as 'scale(family=gemm, 0.5)' or 'no-sync(aten::item)'; repeatable, in order.",
        show_default=False,
    ),
]
HostSpeed = Annotated[
    str | None,
    typer.Option(
        "--host-speed",
        metavar="SPEED",
        help="How many times as fast the CPU is, such as 1.3 or python=1.3,op=1.2; default unchanged.",
    ),
]


def _check_time(text: str | None) -> str | None:
    """Return the text unchanged after checking that it is a time."""
    try:
        parse_time_us(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time, such as 12.3ms") from None
    return text


UnprofiledStep = Annotated[
    str | None,
    typer.Option(
        "--unprofiled-step",
        metavar="TIME",
        callback=_check_time,
        help="What a step takes without the profiler, such as 12.3ms: takes the profiler's overhead out.",
    ),
]


def parse_time_us(text: str | None) -> float | None:
    """Convert ``12.3ms``, ``850us`` or ``1.2s`` to microseconds; ``None`` stays ``None``.

    Raises:
        ValueError: The text is no positive time with a unit.
    """
    if text is None:
        return None
    text = text.strip()
    unit = next((unit for unit in UNITS_US if text.endswith(unit)), "")
    value = float(text.removesuffix(unit))
    if not unit or not 0 < value < float("inf"):
        raise ValueError(text)
    return value * UNITS_US[unit]
