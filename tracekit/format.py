"""Format numbers for users: three digits and a unit."""

import json
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

MIN_SHOWN_US = 0.005
"""Smaller times are shown as 0."""
HOURS = {"days": 24.0, "h": 1.0, "min": 1 / 60, "s": 1 / 3600}
"""Units of the time of a whole run, in hours; each is used from two of it on."""
AMOUNTS = {"T": 1e12, "B": 1e9, "M": 1e6, "k": 1e3}
MIN_ABBREVIATED = 1e4


def format_duration(us: float) -> str:
    """Format microseconds in a suitable unit: ``12.3 ms``."""
    if abs(us) < MIN_SHOWN_US:
        return "0"
    if us >= 999.5e3:
        return f"{format_number(us / 1e6)} s"
    return f"{format_number(us / 1e3)} ms" if us >= 999.5 else f"{format_number(us)} µs"


def format_change(us: float) -> str:
    """Format how much longer or shorter something takes: ``+12.3 ms``, ``−1.20 µs``."""
    sign = "" if abs(us) < MIN_SHOWN_US else "+" if us > 0 else "−"
    return f"{sign}{format_duration(abs(us))}"


def format_number(value: float) -> str:
    """Format a number with three significant digits, never in exponential form."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


MIN_WHOLE_DOLLARS = 1000
"""From which on cents aren't shown."""
MAX_UNSHOWN_COUNT = 0.05
"""Distance from a whole number that a mean count with one decimal doesn't show."""


def format_count(value: float) -> str:
    """Format a count averaged over steps: ``41``, or ``40.5`` if steps differ by more than rounding shows."""
    is_whole = abs(value - round(value)) < MAX_UNSHOWN_COUNT and (value >= 1 or not value)
    return f"{value:,.0f}" if is_whole else format_number(value)


def format_quantity(count: float, what: str) -> str:
    """Format a count with its noun: ``1 kernel``, ``1,234 kernels``, ``40.5 launches``."""
    shown = format_count(count)
    return f"{shown} {what if shown == '1' else form_plural(what)}"


def form_plural(noun: str) -> str:
    """Form a noun's plural: ``kernels``, ``copies``, ``batches``."""
    if re.search(r"[^aeiou]y$", noun):
        return f"{noun[:-1]}ies"
    return f"{noun}{'es' if re.search(r'(?:[sxz]|[cs]h)$', noun) else 's'}"


def abbreviate_names(first: str, others: int) -> str:
    """Abbreviate several names to the first one: ``trace_0.json and 3 more``."""
    return f"{first} and {others} more" if others else first


def format_ranges(numbers: Sequence[int]) -> list[str]:
    """Format ascending numbers as ranges: ``[1, 2, 3, 5]`` is ``1-3`` and ``5``."""
    starts = [n for before, n in zip((None, *numbers), numbers, strict=False) if before != n - 1]
    ends = [n for n, after in zip(numbers, (*numbers[1:], None), strict=True) if after != n + 1]
    return [str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]


def format_dollars(amount: float | None, like: float | None = None) -> str:
    """Format an amount in cents, a small one with two significant digits; a dash without a price.

    Args:
        amount: Dollars.
        like: The amount beside it, whose number of decimals it gets; ``None`` for its own. An end of an interval of
            which nothing would be left keeps two significant digits.
    """
    if amount is None:
        return "–"
    reference = amount if like is None else like
    if reference >= MIN_WHOLE_DOLLARS:
        return f"{amount:,.0f}"
    decimals = 2 if reference >= 0.1 or not reference else 1 - Decimal(f"{reference:.1e}").adjusted()
    text = f"{amount:,.{decimals}f}"
    return _round(amount, 2) if amount and not text.strip("0.") else text


def format_price(dollars: float) -> str:
    """Format the price of an hour: ``$2.49``, and all digits of a smaller one that aren't noise."""
    return f"${dollars:,.2f}" if dollars >= 1 or dollars == round(dollars, 2) else f"${_round(dollars, 3)}"


def format_likely(figure: Sequence[float], digits: int = 2) -> str:
    """Format the likely one of low end, likely value and high end, with as many digits as :func:`format_range`."""
    return _round(figure[1], _choose_digits(figure, digits))


def format_range(figure: Sequence[float], digits: int = 2) -> str:
    """Format the ends of an interval: ``1.3 to 1.8``; with another digit where that doesn't separate them.

    Ends close to each other have as many decimals: ``0.87 to 1.15``, but ``1.4 to 16``.

    Args:
        figure: Low end, likely value and high end.
        digits: Significant digits.
    """
    shown = _choose_digits(figure, digits)
    low, high = (_round(end, shown) for end in (figure[0], figure[-1]))
    decimals = len(low.partition(".")[2])
    if figure[0] < figure[-1] < 2 * figure[0] and decimals:
        high = f"{figure[-1]:,.{decimals}f}"
    return " to ".join(dict.fromkeys((low, high)))


def format_dollar_range(figure: Sequence[float]) -> str:
    """Format the ends of an interval in dollars, with the decimals of its likely value: ``$0.44 to $4.99``."""
    ends = (f"${format_dollars(end, like=figure[1])}" for end in (figure[0], figure[-1]))
    return " to ".join(dict.fromkeys(ends))


def format_run_time(hours: float | Sequence[float]) -> str:
    """Format the hours of a whole run: ``41 h``, or with low end, likely value and high end ``41 h (35 to 50)``."""
    figure = (hours, hours, hours) if isinstance(hours, int | float) else hours
    unit = next((unit for unit, size in HOURS.items() if figure[1] >= 2 * size), "s")
    scaled = [end / HOURS[unit] for end in figure]
    ends = f" ({format_range(scaled)})" if scaled[0] != scaled[-1] else ""
    return f"{format_likely(scaled)} {unit}{ends}"


def format_amount(amount: float) -> str:
    """Format an amount as people write it: ``2B``, ``300k``, ``1,500``."""
    letter = next((letter for letter, size in AMOUNTS.items() if amount >= size and amount >= MIN_ABBREVIATED), "")
    return f"{amount / AMOUNTS[letter]:.4g}{letter}" if letter else f"{amount:,.0f}"


def _choose_digits(values: Sequence[float], digits: int) -> int:
    """Return the significant digits that tell different values apart, at most one more than asked for."""
    texts = {_round(value, digits) for value in values}
    return digits if len(texts) == len(set(values)) else digits + 1


def _round(value: float, digits: int) -> str:
    """Round to significant digits, without an exponent."""
    return f"{Decimal(f'{value:.{digits - 1}e}'):,f}"


def format_percent(value: float) -> str:
    """Format a percentage: ``12 %``; below one percent with a decimal, ``<0.1 %`` where that would be 0."""
    if 0 < abs(value) < 0.05:
        return "<0.1 %"
    return f"{value:.1f} %" if 0 < abs(value) < 0.95 else f"{value:.0f} %"


def format_percent_range(values: Sequence[float]) -> str:
    """Format a range of percentages: ``97 to 98 %``, or ``97 %`` if both are equal."""
    least, most = format_percent(min(values)), format_percent(max(values))
    return most if least == most else f"{least.removesuffix(' %')} to {most}"


def format_interval(low_us: float, high_us: float, like_us: float | None = None) -> str:
    """Format two durations in one unit: ``7.06–9.02 ms``.

    Args:
        low_us: The shorter one.
        high_us: The longer one.
        like_us: The duration beside which they stand, whose unit they get; by default that of the longer one.
    """
    _, _, unit = format_duration(like_us or high_us).partition(" ")
    scale = {"s": 1e6, "ms": 1e3}.get(unit, 1.0)
    return f"{format_number(low_us / scale)}–{format_number(high_us / scale)} {unit}".rstrip()


def format_bytes(size_bytes: float) -> str:
    """Format bytes in a suitable unit: ``4 GiB``, ``1.5 MiB``."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << power:
            size = size_bytes / (1 << power)
            return f"{size:.3g} {unit}" if size < 999.5 else f"{size:,.0f} {unit}"
    return f"{size_bytes:.0f} bytes"


def format_megabytes(size_bytes: float) -> str:
    """Format the bytes of a transfer: ``12.3 MB``."""
    return f"{format_number(size_bytes / 1e6)} MB"


def format_rate(gbps: float) -> str:
    """Format a bandwidth: ``12.3 GB/s``."""
    return f"{format_number(gbps)} GB/s"


def format_clock_lead(us: float) -> str:
    """Format how far a clock is ahead: ``+1,234 µs``."""
    return f"{round(us):+,} µs"


def name_place(place: str) -> str:
    """Return the display name of a resource on the critical path."""
    return {"gpu": "GPU", "host": "CPU", "communication": "network"}.get(place, place)


def format_shape(dims: str | None) -> str:
    """Format recorded shapes without empty entries: ``[[8,64],[64],[]]`` to ``8×64, 64``."""
    return _format_sizes(json.loads(dims)) if dims else ""


def _format_sizes(dims: list[Any] | int) -> str:
    if isinstance(dims, int):
        return str(dims)
    if dims and all(isinstance(size, int) for size in dims):
        return "×".join(map(str, dims))
    inner = [_format_sizes(part) for part in dims]
    return ", ".join(part for part in inner if part)


def replace_undecodable(name: str) -> str:
    """Replace the bytes of a file name that are not UTF-8 by ``?``, as no output could hold them."""
    return name.encode(errors="replace").decode()


def shorten(text: str, width: int) -> str:
    """Truncate a text to at most ``width`` characters."""
    return text if len(text) <= width else text[: width - 1] + "…"


def shorten_kernel_name(name: str) -> str:
    """Shorten a kernel's name: drop ``void``, PyTorch's namespaces, CUTLASS's wrapper and the arguments.

    Other names, of ops and calls, stay unchanged.
    """
    title = name.removeprefix("void ").replace("(anonymous namespace)::", "").replace("at::native::", "")
    if title.endswith(")") and not title.startswith("Mem"):
        depth = 0
        for place, letter in enumerate(title):
            depth += {"<": 1, ">": -1}.get(letter, 0)
            if letter == "(" and depth == 0:
                title = title[:place]
                break
    wrapped = title.removeprefix("cutlass::device_kernel<")
    return wrapped.removesuffix(">").rstrip() if wrapped != title else title
