"""Escape text for its destination: text out of traces, file names and options is data there, never markup or code.

One function for each destination. Values of messages are escaped when a message is rendered, what goes to a terminal
once more by :mod:`tracekit.cli.output`, what goes into a page also by the templates.
"""

import re
from typing import TYPE_CHECKING

from tracekit.bounds import MAX_CELL_CHARS

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

BLANKS = r"[\t\n\v\f\r\x85\u2028\u2029]+"
"""Characters that end a line or move the cursor forward."""
UNSAFE = (
    r"[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f"  # what terminals obey, also in eight bits
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # directions of writing, which hide what is written
    r"\u200b\u2060-\u2065\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # what is never seen
    "\ud800-\udfff]"  # bytes of a file name that are no text
)
"""Characters that act, or aren't shown."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "|", "%")
"""What begins a formula, or once did: Lotus 1-2-3's signs, DDE's commands."""

_BLANKS, _UNSAFE = re.compile(BLANKS), re.compile(UNSAFE)
_UNSAFE_IN_LINES = re.compile(f"{UNSAFE}|[\v\f\r\x85\u2028\u2029]")
_IN_JSON = re.compile(f"{UNSAFE}|[\x85\u2028\u2029]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>&#|~$])")
_MARKDOWN_LINE_START = re.compile(r"^(\s*[0-9]*)([-+.)])(?=\s)")
_ADDRESS = re.compile(r"(?i)\b(https?|ftp|mailto)(?=:)|\b(www)(?=\.)")
_TICKS = re.compile("`+")


class Code(str):
    """A text that Markdown shows as code."""

    __slots__ = ()


def to_line(text: str) -> str:
    """Return a text as one line of a terminal, a log or a message."""
    return text if text.isascii() and text.isprintable() else _UNSAFE.sub(REPLACEMENT, _BLANKS.sub(" ", text))


def to_lines(text: str) -> str:
    """Return a text of several lines for a terminal: only line breaks and tabs are kept of what acts there."""
    return _UNSAFE_IN_LINES.sub(REPLACEMENT, text)


def to_markdown(text: str) -> str:
    """Return a text so that Markdown shows it: no markup, HTML or addresses."""
    if isinstance(text, Code):
        return _to_code(text)
    escaped = _MARKDOWN.sub(r"\\\1", to_line(text))
    return _MARKDOWN_LINE_START.sub(r"\1\\\2", _ADDRESS.sub(lambda found: f"{found[0]}\\", escaped))


def _to_code(text: str) -> str:
    """Return a text as a code span, delimited by more back-ticks than it holds in a row."""
    shown = to_line(text)
    if not shown.strip():
        return ""
    ticks = "`" * (1 + max((len(run) for run in _TICKS.findall(shown)), default=0))
    pad = " " if "`" in shown else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"


def to_html(text: str) -> str:
    """Return a text without what acts on a page beyond markup, which the templates escape."""
    return _UNSAFE_IN_LINES.sub(REPLACEMENT, text)


def to_json(document: str) -> str:
    """Return a JSON document in which such characters are written as escapes; its meaning stays."""
    return _IN_JSON.sub(_escape_in_json, document)


def _escape_in_json(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def to_cell(text: str) -> str:
    """Return a text as a cell of a spreadsheet; cut where Excel would refuse it."""
    shown = _UNSAFE_IN_LINES.sub(REPLACEMENT, text)
    return shown if len(shown) <= MAX_CELL_CHARS else f"{shown[: MAX_CELL_CHARS - 1]}…"


def to_csv_cell(text: str) -> str:
    """Return a text as a cell of a CSV, with an apostrophe in front of what a spreadsheet would take for a formula."""
    shown = to_line(text)
    return f"'{shown}" if text.lstrip(" \n\v\f").startswith(FORMULA_STARTS) else shown


def write_csv(table: "pl.DataFrame") -> str:
    """Write a table as CSV: its texts and headings as :func:`to_csv_cell` returns them."""
    return _map_texts(table, to_csv_cell).write_csv()


def to_sheet(table: "pl.DataFrame") -> "pl.DataFrame":
    """Return a table for a spreadsheet: texts as :func:`to_cell` returns them, no number that is none."""
    import polars as pl

    finite = [pl.when(pl.col(name).is_finite()).then(name) for name in table.select(pl.selectors.float()).columns]
    return _map_texts(table.with_columns(finite), to_cell)


def _map_texts(table: "pl.DataFrame", escape: "Callable[[str], str]") -> "pl.DataFrame":
    """Escape each text of a table once, however often it occurs, and the headings."""
    import polars as pl

    changes = {}
    for name, dtype in table.schema.items():
        if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum)):
            distinct = table[name].unique().drop_nulls().cast(pl.String).to_list()
            changes[name] = {text: shown for text in distinct if (shown := escape(text)) != text}
    columns = [pl.col(name).cast(pl.String).replace(found) for name, found in changes.items() if found]
    headings = [escape(name) for name in table.columns]
    is_told = len({heading.casefold() for heading in headings}) == len(headings)
    escaped = table.with_columns(columns)
    escaped.columns = headings if is_told else [f"{heading} {at}" for at, heading in enumerate(headings, 1)]
    return escaped
