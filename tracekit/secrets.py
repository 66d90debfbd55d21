"""What looks like a secret: well-known token formats, passwords in assignments and in URLs.

A secret itself is never returned, only what kind it is and where it stands.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tracekit.trace import RankTrace

# Without look-around, so that polars' regular expressions take them too; bounded, so that long texts take linear time.
PATTERNS = {
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
ANY = "|".join(f"(?:{pattern})" for pattern in PATTERNS.values())
_COMPILED = {kind: re.compile(pattern) for kind, pattern in PATTERNS.items()}

HARMLESS = (
    r"schemaVersion|displayTimeUnit|baseTimeNanoseconds|record_shapes|with_stack|profile_memory|with_flops|with_modules"
    r"|(?:cupti|roctracer|rocprofiler\w*)_version|(?:cuda|hip|xpu|mtia)_\w*version"
)
"""Names of a trace's metadata whose numbers and words give nothing away."""

_PLACES = {
    "op names": ("ops", "name"),
    "op inputs": ("ops", "concrete_inputs"),
    "annotations": ("annotations", "name"),
    "call names": ("calls", "name"),
    "kernel names": ("activities", "name"),
}


class Found(NamedTuple):
    """Something that looks like a secret.

    Attributes:
        kind: What it looks like, with its article.
        where: Where it stands.
    """

    kind: str
    where: str


def kinds(text: str) -> Iterator[str]:
    """The kinds of secrets that a text looks like it holds."""
    return (kind for kind, pattern in _COMPILED.items() if pattern.search(text))


def find(texts: Mapping[str, Iterable[str]]) -> list[Found]:
    """What looks like a secret, each kind once per place.

    Args:
        texts: Place to the texts that stand there.
    """
    found = (Found(kind, where) for where, entries in texts.items() for text in entries for kind in kinds(text))
    return list(dict.fromkeys(found))


def warnings(rank: RankTrace) -> Iterator[str]:
    """One sentence per kind of secret that a rank's trace seems to carry."""
    places: dict[str, list[str]] = {}
    for found in find(_texts(rank)):
        places.setdefault(found.kind, []).append(found.where)
    for kind, where in places.items():
        yield (
            f"the trace carries what looks like {kind} (in its {' and '.join(where)}): "
            "before you share it, `tracekit redact` writes a copy without"
        )


def _texts(rank: RankTrace) -> dict[str, Iterable[str]]:
    """The texts worth a closer look, by place."""
    texts: dict[str, Iterable[str]] = {"metadata": flatten(rank.metadata)}
    for where, (table, column) in _PLACES.items():
        values = rank.tables[table][column].unique().drop_nulls()
        texts[where] = values.filter(values.str.contains(ANY)).sort().to_list()
    return texts


def flatten(value: object, key: str = "") -> Iterator[str]:
    """The texts in nested metadata, each as ``key=text``, so that the key tells what an opaque text is."""
    if isinstance(value, Mapping):
        for name, entry in value.items():
            yield from flatten(entry, str(name))
    elif isinstance(value, list | tuple):
        for entry in value:
            yield from flatten(entry, key)
    elif isinstance(value, str):
        yield f"{key}={value}"
