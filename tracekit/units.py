"""Numbers as people read them: three digits and a unit."""

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

SEEN_US = 0.005
"""What is less than this is shown as nothing."""


def duration(us: float) -> str:
    """Microseconds in the unit that suits them: ``12.3 ms``."""
    if abs(us) < SEEN_US:
        return "0"
    if us >= 999.5e3:
        return f"{digits(us / 1e6)} s"
    return f"{digits(us / 1e3)} ms" if us >= 999.5 else f"{digits(us)} µs"


def change(us: float) -> str:
    """How much longer or shorter something takes: ``+12.3 ms``, ``−1.20 µs``."""
    sign = "" if abs(us) < SEEN_US else "+" if us > 0 else "−"
    return f"{sign}{duration(abs(us))}"


def digits(value: float) -> str:
    """Three significant digits, never in exponential form."""
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 9.995 else f"{value:.2f}"


def counted(value: float) -> str:
    """How many, over the steps' mean: ``41``, or ``40.5`` where they differ."""
    return f"{value:,.0f}" if value == round(value) else digits(value)


def many(count: int, what: str) -> str:
    """How many of something: ``1 kernel``, ``1,234 kernels``."""
    ending = "" if count == 1 else "es" if what.endswith("ch") else "s"
    return f"{count:,} {what}{ending}"


def with_others(first: str, others: int) -> str:
    """Several things by the first of them: ``trace_0.json and 3 more``."""
    return f"{first} and {others} more" if others else first


def ranges(numbers: Sequence[int]) -> list[str]:
    """Ascending numbers in short: ``[1, 2, 3, 5]`` is ``1-3`` and ``5``."""
    starts = [n for before, n in zip((None, *numbers), numbers, strict=False) if before != n - 1]
    ends = [n for n, after in zip(numbers, (*numbers[1:], None), strict=True) if after != n + 1]
    return [str(start) if start == end else f"{start}-{end}" for start, end in zip(starts, ends, strict=True)]


def dollars(amount: float | None) -> str:
    """An amount, also a small one; where no price was given a dash."""
    if amount is None:
        return "–"
    return digits(amount) if amount >= 0.1 else f"{Decimal(f'{amount:.1e}'):f}"


def percent(value: float) -> str:
    """A share: ``12 %``; below one percent with a decimal."""
    return f"{value:.1f} %" if 0 < abs(value) < 0.95 else f"{value:.0f} %"


def percent_between(values: Sequence[float]) -> str:
    """Some shares: ``97 to 98 %``, or ``97 %`` where they don't differ so."""
    least, most = percent(min(values)), percent(max(values))
    return most if least == most else f"{least.removesuffix(' %')} to {most}"


def interval(low_us: float, high_us: float) -> str:
    """Two durations, in the unit of the longer one: ``7.06–9.02 ms``."""
    number, _, unit = duration(high_us).partition(" ")
    scale = {"s": 1e6, "ms": 1e3}.get(unit, 1.0)
    return f"{digits(low_us / scale)}–{number} {unit}".rstrip()


def byte_count(size_bytes: float) -> str:
    """Bytes in the unit that suits them: ``4 GiB``, ``1.5 MiB``."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << power:
            return f"{size_bytes / (1 << power):.3g} {unit}"
    return f"{size_bytes:.0f} bytes"


def shape(dims: str | None) -> str:
    """Recorded shapes without what says nothing: ``[[8,64],[64],[]]`` to ``8×64, 64``."""
    return _sizes(json.loads(dims)) if dims else ""


def _sizes(dims: list[Any] | int) -> str:
    if isinstance(dims, int):
        return str(dims)
    if dims and all(isinstance(size, int) for size in dims):
        return "×".join(map(str, dims))
    inner = [_sizes(part) for part in dims]
    return ", ".join(part for part in inner if part)


def printable(name: str) -> str:
    """A file's name for people: its bytes that are no UTF-8 become ``?``, as no output could hold them."""
    return name.encode(errors="replace").decode()


def shorten(text: str, width: int) -> str:
    """At most ``width`` characters, cut at the end."""
    return text if len(text) <= width else text[: width - 1] + "…"


def kernel_title(name: str) -> str:
    """A kernel's name without what says little: ``void``, PyTorch's namespaces, CUTLASS's wrapper, the arguments.

    Other names, of ops and calls, stay as they are.
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
