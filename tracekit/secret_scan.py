"""Find likely secrets: well-known token formats, passwords in assignments and in URLs.

The secret itself is never returned, only its kind and its location.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tracekit.arrays import list_distinct
from tracekit.messages import Message
from tracekit.messages.recordings import SECRET_FOUND
from tracekit.trace import RankTrace

# Without look-around, so that polars' regular expressions accept the patterns; bounded, so that long texts take linear
# time.
SECRET_PATTERNS = {
    "an AWS access key": r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    "a GitHub token": r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})",
    "a GitLab token": r"\bglpat-[A-Za-z0-9_-]{20,}",
    "a Hugging Face token": r"\bhf_[A-Za-z0-9]{30,}",
    "an API key (sk-...)": r"\bsk-[A-Za-z0-9_-]{20,}",
    "an NVIDIA API key": r"\bnvapi-[A-Za-z0-9_-]{20,}",
    "a Slack token": r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}",
    "a Google API key": r"\bAIza[0-9A-Za-z_-]{35}",
    "a JSON web token": r"\beyJ[A-Za-z0-9_-]{10,500}\.eyJ[A-Za-z0-9_-]{10,}",
    "a private key": r"-----BEGIN (?:[A-Z]{1,20} ){0,3}PRIVATE KEY-----",
    "a bearer token": r"(?i:\bbearer) [A-Za-z0-9._~+/-]{16,}",
    "a password or key in an assignment": (
        r"(?i:passw(?:or)?d|passphrase|secret|token|api_?key|access_?key|account_?key|credentials)['\"]?\s{0,3}[=:]\s{0,3}"
        r"['\"]?[\w.~+/@!#$%^*-]{0,80}[A-Za-z~+@!#$%^*][\w.~+/@!#$%^*-]{7,}"
    ),
    "a URL with a password": r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}://[^/\s:@]{1,200}:[^/\s@]{1,200}@",
}
ANY_SECRET_PATTERN = "|".join(f"(?:{pattern})" for pattern in SECRET_PATTERNS.values())
_ANY_SECRET = re.compile(ANY_SECRET_PATTERN)
_COMPILED_PATTERNS = {kind: re.compile(pattern) for kind, pattern in SECRET_PATTERNS.items()}
SECRET_PARTS = (
    "AKIA", "ASIA", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "sk-", "nvapi-", "xox",
    "AIza", "eyJ", "PRIVATE KEY", "bearer", "passw", "passphrase", "secret", "token", "apikey", "api_key",
    "accesskey", "access_key", "accountkey", "account_key", "credentials", "://",
)  # fmt: skip
"""Texts in either case, one of which every match of a pattern contains; looking for them first is much quicker."""
_LOWER_PARTS = tuple(part.lower() for part in SECRET_PARTS)

HARMLESS_KEY_PATTERN = (
    r"schemaVersion|displayTimeUnit|baseTimeNanoseconds|record_shapes|with_stack|profile_memory|with_flops|with_modules"
    r"|(?:cupti|roctracer|rocprofiler\w*)_version|(?:cuda|hip|xpu|mtia)_\w*version"
)
"""Keys of a trace's metadata whose values reveal nothing."""

WORKER_PATTERN = r"(?<![^\s/\\'\"(])[^\s/\\'\"(]+?(?=(?:_\d+)?\.\d{8,}\.pt\.trace\.json)"
"""The host's or worker's name, with which PyTorch's tensorboard_trace_handler begins a file's name."""

_SEARCHED_COLUMNS = {
    "op names": ("ops", "name"),
    "op inputs": ("ops", "concrete_inputs"),
    "annotations": ("annotations", "name"),
    "call names": ("calls", "name"),
    "kernel names": ("activities", "name"),
}


class FoundSecret(NamedTuple):
    """A likely secret.

    Attributes:
        kind: Its kind, with an article.
        location: Where it was found.
    """

    kind: str
    location: str


def find_secret_kinds(text: str) -> Iterator[str]:
    """Find the kinds of secrets that a text seems to hold."""
    return (kind for kind, pattern in _COMPILED_PATTERNS.items() if pattern.search(text))


def find_secrets(texts: Mapping[str, Iterable[str]]) -> list[FoundSecret]:
    """Find likely secrets, each kind once per location.

    Args:
        texts: Texts by location.
    """
    found = (
        FoundSecret(kind, where)
        for where, entries in texts.items()
        for text in entries
        for kind in find_secret_kinds(text)
    )
    return list(dict.fromkeys(found))


def build_secret_warnings(rank: RankTrace) -> Iterator[Message]:
    """Build a warning for each kind of secret that a rank's trace seems to hold."""
    places: dict[str, list[str]] = {}
    for found in find_secrets(_collect_texts(rank)):
        places.setdefault(found.kind, []).append(found.location)
    for kind, where in places.items():
        yield SECRET_FOUND(kind=kind, locations=where)


def _collect_texts(rank: RankTrace) -> dict[str, Iterable[str]]:
    """Collect the texts to search, by location."""
    texts: dict[str, Iterable[str]] = {"metadata": flatten(rank.metadata)}
    for where, (table, column) in _SEARCHED_COLUMNS.items():
        # By Python's regular expressions: polars takes longer to compile the pattern than to search most traces.
        distinct = rank.names[table] if column == "name" else list_distinct(rank.tables[table][column])
        texts[where] = sorted(text for text in distinct if _may_hold_secret(text) and _ANY_SECRET.search(text))
    return texts


def _may_hold_secret(text: str) -> bool:
    lower = text.lower()
    return any(part in lower for part in _LOWER_PARTS)


def flatten(value: object, key: str = "") -> Iterator[str]:
    """Flatten nested metadata to texts of the form ``key=text``, as the key shows what an opaque text is."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from flatten(entry, str(name))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from flatten(entry, key)
    elif isinstance(value, str):
        yield f"{key}={value}"
