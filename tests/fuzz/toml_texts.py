"""Hostile TOML: a good file with lines edited.

Hypothesis makes the edits, for it shrinks to the one that matters; the parser is Python's own and needs no guide.
"""

import re
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

VALUES = [
    *("0", "1", "-1", "2", "3.5", "1e-300", "1e-9", "1e9", "1e18", "1e300", "1e308", "inf", "-inf", "nan", "-0.0"),
    *(
        "2147483648",
        "9223372036854775808",
        "18446744073709551616",
        "9" * 400,
        "9" * 6000,
        "0xffff",
        "0x" + "f" * 6000,
        "1_000",
        "080",
    ),
    *(
        '""',
        '"x"',
        '"1"',
        '"h100-sxm"',
        '"system"',
        '"none"',
        '"pcie"',
        '"mesh"',
        '"\\u001b]0;pwn\\u0007"',
        "'''a\nb'''",
    ),
    *(
        "true",
        "[]",
        '["x"]',
        "[1]",
        "[[1]]",
        "{}",
        "{a = 1}",
        "1979-05-27",
        "07:32:00",
        "[" * 5000,
        '"' + "x" * 5000 + '"',
    ),
]
"""Values of any type, as TOML writes them."""

LINES = ["", "[", "=", "x = 1", "[x]", "[sources]", "[[measured]]", "a.b.c = 1", "\x00", "é = 1", '"" = 1', "name = 1"]
FACTORS = [1e-9, 1e-6, 1e-3, 0.01, 0.5, 2, 100, 1e3, 1e6, 1e9]
NUMBER = re.compile(r"-?[\d.]+")
MAX_EDITS = 4


def make_texts(base: Path) -> SearchStrategy[str]:
    """Return the strategy of texts made of a good file."""
    lines = base.read_text(encoding="utf-8").splitlines()
    keyed = [number for number, line in enumerate(lines) if " = " in line]
    scaled = [number for number in keyed if NUMBER.fullmatch(lines[number].partition(" = ")[2])]
    edit = st.one_of(
        st.tuples(
            st.sampled_from(keyed), st.sampled_from(VALUES).map(lambda value: lambda line: set_value(line, value))
        ),
        st.tuples(st.sampled_from(scaled), st.sampled_from(FACTORS).map(lambda by: lambda line: scale_value(line, by))),
        st.tuples(st.integers(0, len(lines) - 1), st.just(lambda line: "")),
        st.tuples(
            st.integers(0, len(lines) - 1), st.sampled_from(LINES).map(lambda more: lambda line: f"{line}\n{more}")
        ),
        st.tuples(st.integers(0, len(lines) - 1), st.text(max_size=20).map(lambda text: lambda line: text)),
    )

    def build(edits: list[tuple[int, object]]) -> str:
        changed = [*lines]
        for number, change in edits:
            changed[number] = change(changed[number])  # type: ignore[operator]
        return "\n".join(changed) + "\n"

    return st.lists(edit, min_size=1, max_size=MAX_EDITS).map(build)


def set_value(line: str, value: str) -> str:
    """Return a line ``key = value`` with another value."""
    return f"{line.partition(' = ')[0]} = {value}"


def scale_value(line: str, factor: float) -> str:
    """Return a line ``key = number`` with a multiple of the number, whole if it was and still can be."""
    key, _, value = line.partition(" = ")
    scaled = float(value) * factor if NUMBER.fullmatch(value) else 0.0
    return f"{key} = {round(scaled) if '.' not in value and scaled >= 1 else scaled!r}"


def load_text(content: bytes) -> str:
    """Read a kept text."""
    return content.decode("utf-8", "surrogateescape")


def dump_text(text: str) -> bytes:
    """Write a text to keep."""
    return text.encode("utf-8", "surrogateescape")
