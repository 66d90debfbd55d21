"""What a report doesn't carry once it leaves the terminal.

The rule: a report in a file, or printed as a document by ``--format``, holds base names in place of paths, and no host,
user, secret, command line or price, nor the dollars that would tell the price. ``--with-details`` keeps them. What the
terminal shows, and what ``--json`` prints for another program, is complete.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from typing import Any, TypeVar

from tracekit.messages import Message
from tracekit.messages.predictions import PRICE_MISSING
from tracekit.messages.reports import PRICE_UNUSED, PRICES_OLD
from tracekit.redact.redactor import ADDRESS_PATTERN, MAX_CACHED_TEXTS, PATH_PATTERN, REDACTED, make_name_pattern
from tracekit.reporting.model import Report
from tracekit.reporting.sections.decision import Decision
from tracekit.reporting.sections.recording import Provenance
from tracekit.reporting.sections.targets import forget_prices
from tracekit.secret_scan import ANY_SECRET_PATTERN, WORKER_PATTERN

AnyReport = TypeVar("AnyReport")

PRICE_FIELDS = ("price", "dollars_per_1000_steps", "dollars_per_million")
"""Fields of data classes in a report that tell a price."""
PRICE_MESSAGES = (PRICE_MISSING, PRICE_UNUSED, PRICES_OLD)
"""What makes no sense without them."""
PATH_VALUES = ("path", "place")
"""Values of messages that are paths as a whole, also with blanks."""
READ_SUFFIXES = "json|gz|zst|zip|toml|npy|npz|pt|csv|txt|py"

_SEPARATORS = re.compile(r"[\\/]")
# Possessive, so that long texts take linear time.
_FILE = re.compile(rf"(?<![^\s'\"(<|:,])(?:[^\s/\\'\"()<>|:,]*+[\\/])++(?=[^\s/\\'\"()<>|,]+\.(?:{READ_SUFFIXES})\b)")
_WORKER = re.compile(WORKER_PATTERN)
_ADDRESS, _PATH = re.compile(ADDRESS_PATTERN), re.compile(PATH_PATTERN)


def remove_details(report: AnyReport, names: Iterable[str] = ()) -> AnyReport:
    """Return a report, a sweep's or a comparison without what identifies its owner, or what the owner pays.

    The report is plain data; ``names`` of hosts and users are from :func:`tracekit.redact.redactor.find_private_names`.
    """
    trace = report.provenance.trace if isinstance(report, Report) else getattr(report, "trace", "")
    shared: AnyReport = _map_values(report, _make_shortener(trace, names))
    return shared


def shorten_path(path: str) -> str:
    """Return the last part of a path or URI, without the name of the worker that wrote it."""
    return _WORKER.sub("worker", _SEPARATORS.split(path.partition("?")[0].rstrip("/\\"))[-1])


def _make_shortener(trace: str, names: Iterable[str]) -> Callable[[str], str]:
    """Return a function that removes the private parts of a text.

    ``trace`` is where the trace was read from: its directories may hold blanks.
    """
    directory = trace[: len(trace) - len(_SEPARATORS.split(trace)[-1])]
    private = re.compile("|".join(filter(None, (ANY_SECRET_PATTERN, make_name_pattern(names)))))

    @lru_cache(MAX_CACHED_TEXTS)
    def shorten(text: str) -> str:
        text = text.replace(directory, "") if directory else text
        text = _FILE.sub("", _ADDRESS.sub(lambda found: _shorten_address(found[0]), text))
        text = _PATH.sub(lambda found: shorten_path(found[0]), text)
        return private.sub(REDACTED, _WORKER.sub("worker", text))

    return shorten


def _shorten_address(address: str) -> str:
    """Return the file that a URI names; nothing is kept of others, and of e-mail addresses."""
    _, _, rest = address.partition("://")
    return shorten_path(rest) if "/" in rest.rstrip("/") else REDACTED


def _map_values(value: Any, shorten: Callable[[str], str]) -> Any:
    """Return a value with all texts in it shortened, and without prices."""
    if isinstance(value, str):
        return shorten(value) if type(value) is str else value
    if isinstance(value, Message):
        return replace(value, values={name: _map_named(name, one, shorten) for name, one in value.values.items()})
    if isinstance(value, tuple):
        shown = (one for one in value if not (isinstance(one, Message) and one.template in PRICE_MESSAGES))
        return tuple(_map_values(one, shorten) for one in shown)
    if isinstance(value, Mapping):
        return {name: _map_values(one, shorten) for name, one in value.items()}
    if not is_dataclass(value) or isinstance(value, type):
        return value
    if isinstance(value, Decision):
        value = forget_prices(value)
    kept = {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, Provenance):
        kept |= {"command": None}
    changed = {
        name: None if name in PRICE_FIELDS else _map_named(name, one, shorten)
        for name, one in kept.items()
        if not (isinstance(value, Provenance) and name == "gpus")  # with the addresses of their datasheets
    }
    return replace(value, **changed)


def _map_named(name: str, value: Any, shorten: Callable[[str], str]) -> Any:
    return _map_values(shorten_path(value) if name in PATH_VALUES and isinstance(value, str) else value, shorten)
