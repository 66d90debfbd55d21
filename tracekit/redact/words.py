"""Which texts give something away: paths, addresses, names of hosts and users, secrets."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from tracekit import secrets

REDACTED = "redacted"

# Every alternative starts where a run of its characters starts, so that long texts take linear time.
_PART = r"[\\/][\w.@+~%$-]+"
PATHS = (
    r"(?<![\w.:/)\]>*&-])(?:/[\w.@+~%-]+){2,}/?"
    rf"|(?<![\w/])~[\w-]*(?:{_PART})+"
    rf"|(?<![\w:])[A-Za-z]:(?:{_PART})+"
    rf"|(?<!\\)\\\\[\w.-]+(?:{_PART})+"
    r"|(?<![\w./\\-])[\w./\\-]+\.(?:py|pyc|ipynb|cpp|cu|so)\b"
)
ADDRESSES = r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://\S+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
NAME_KEYS = re.compile(r"(?i)(^|_)(host_?name|host|user_?name|user|log_?name|login|node_?name)$")
# As a whole word these say nothing about anyone, and kernels may be called so.
COMMON_NAMES = {"root", "user", "users", "localhost", "local", "admin", "ubuntu", "python", "python3", "home", "node"}
SHORTEST_NAME = 3
CACHED_TEXTS = 2**16
HOME = re.compile(r"(?:/home/|/Users/|[\\/]Users[\\/])([\w.-]+)")


@dataclass(slots=True)
class Removed:
    """What was taken out of a trace.

    Attributes:
        metadata: Names of the top-level entries that were dropped.
        events: Stack events that were dropped.
        arguments: Arguments of events that were dropped, by name.
        texts: Texts that were replaced, by what they hold.
    """

    metadata: list[str] = field(default_factory=list)
    events: int = 0
    arguments: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)


class Words:
    """Tells which texts to replace.

    Args:
        names: Of hosts and users; they are replaced wherever they stand as a word.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        patterns = {"a path": PATHS, "an address": ADDRESSES}
        if known := sorted({re.escape(name) for name in names}, key=len, reverse=True):
            patterns["the name of a host or user"] = rf"(?<![A-Za-z0-9])(?:{'|'.join(known)})(?![A-Za-z0-9])"
        self._patterns = {kind: re.compile(pattern) for kind, pattern in (secrets.PATTERNS | patterns).items()}
        self._any = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in self._patterns.values()))
        # The same texts come again and again.
        self.kind = lru_cache(CACHED_TEXTS)(self._kind)

    def _kind(self, text: str, key: str = "") -> str | None:
        """What a text gives away, alone or as the value of ``key``; ``None`` if nothing."""
        for candidate in (text, f"{key}={text}") if key else (text,):
            if self._any.search(candidate):
                return next(kind for kind, pattern in self._patterns.items() if pattern.search(candidate))
        return None

    def cut(self, text: str) -> str:
        """A text with the parts that give something away replaced, the rest kept."""
        return self._any.sub(REDACTED, text)


def names(metadata: object) -> set[str]:
    """Names of hosts and users that metadata tells, by its keys and by the home directories in it."""
    found: set[str] = set()
    for entry in secrets.flatten(metadata):
        key, _, text = entry.partition("=")
        found.update(HOME.findall(text))
        if NAME_KEYS.search(key):
            found.update((text, text.split(".")[0]))
    return {name for name in found if len(name) >= SHORTEST_NAME and name.lower() not in COMMON_NAMES | {REDACTED}}
