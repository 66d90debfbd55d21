"""Find private texts: paths, addresses, names of hosts and users, secrets."""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from tracekit import secret_scan

REDACTED = "redacted"

# Every alternative matches only at the start of a run of its characters, so that long texts take linear time.
_PATH_PART = r"[\\/][\w.@+~%$-]+"
PATH_PATTERN = (
    r"(?<![\w.:/)\]>*&-])(?:/[\w.@+~%-]+){2,}/?"
    rf"|(?<![\w/])~[\w-]*(?:{_PATH_PART})+"
    rf"|(?<![\w:])[A-Za-z]:(?:{_PATH_PART})+"
    rf"|(?<!\\)\\\\[\w.-]+(?:{_PATH_PART})+"
    r"|(?<![\w./\\-])[\w./\\-]+\.(?:py|pyc|ipynb|cpp|cu|so)\b"
)
ADDRESS_PATTERN = r"(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://\S+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
NAME_KEY_PATTERN = re.compile(r"(?i)(^|_)(host_?name|host|user_?name|user|log_?name|login|node_?name)$")
# As whole words these identify nobody, and kernels may have such names.
COMMON_NAMES = {"root", "user", "users", "localhost", "local", "admin", "ubuntu", "python", "python3", "home", "node"}
MIN_NAME_LENGTH = 3
MAX_CACHED_TEXTS = 2**16
HOME_PATTERN = re.compile(r"(?:/home/|/Users/|[\\/]Users[\\/])([\w.-]+)")


@dataclass(slots=True)
class RedactionSummary:
    """Counts of what was removed from a trace.

    Attributes:
        metadata: Names of the removed top-level entries.
        events: Number of removed stack events.
        arguments: Removed arguments of events, by name.
        texts: Replaced texts, by what they held.
    """

    metadata: list[str] = field(default_factory=list)
    events: int = 0
    arguments: Counter[str] = field(default_factory=Counter)
    texts: Counter[str] = field(default_factory=Counter)


class RedactionPatterns:
    """Classifies texts by the private information in them.

    Args:
        names: Names of hosts and users; they are replaced wherever they appear as a word.
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        patterns = {"a path": PATH_PATTERN, "an address": ADDRESS_PATTERN}
        if known := make_name_pattern(names):
            patterns["the name of a host or user"] = known
        self._patterns = {
            kind: re.compile(pattern) for kind, pattern in (secret_scan.SECRET_PATTERNS | patterns).items()
        }
        self._any = re.compile("|".join(f"(?:{pattern.pattern})" for pattern in self._patterns.values()))
        # Traces repeat the same texts, so results are cached.
        self.kind = lru_cache(MAX_CACHED_TEXTS)(self._classify)

    def _classify(self, text: str, key: str = "") -> str | None:
        """Return what a text reveals, alone or as the value of ``key``; ``None`` if nothing."""
        for candidate in (text, f"{key}={text}") if key else (text,):
            if self._any.search(candidate):
                return next(kind for kind, pattern in self._patterns.items() if pattern.search(candidate))
        return None

    def redact_parts(self, text: str) -> str:
        """Replace the private parts of a text and keep the rest."""
        return self._any.sub(REDACTED, text)


def make_name_pattern(names: Iterable[str]) -> str:
    """Return the pattern of any of the names as a word; empty without names."""
    known = sorted({re.escape(name) for name in names}, key=len, reverse=True)
    return rf"(?<![A-Za-z0-9])(?:{'|'.join(known)})(?![A-Za-z0-9])" if known else ""


def find_private_names(metadata: object) -> set[str]:
    """Find names of hosts and users in metadata, by its keys and by home directories in its values."""
    found: set[str] = set()
    for entry in secret_scan.flatten(metadata):
        key, _, text = entry.partition("=")
        found.update(HOME_PATTERN.findall(text))
        if NAME_KEY_PATTERN.search(key):
            found.update((text, text.split(".")[0]))
    return {name for name in found if len(name) >= MIN_NAME_LENGTH and name.lower() not in COMMON_NAMES | {REDACTED}}
