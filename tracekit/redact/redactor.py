"""Find private texts (paths, addresses, names of hosts and users, secrets), and redact the JSON of one trace."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Raw

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


ALLOWED_METADATA_PATTERN = re.compile(
    rf"deviceProperties|distributedInfo|traceEvents|traceName|tracekit|{secret_scan.HARMLESS_KEY_PATTERN}"
)
DROPPED_CATEGORIES = ("python_function",)
DROPPED_ARGUMENTS = ("Call stack", "Call Stack", "Module Hierarchy", "module_fqn", "kernel_file", "Stack")
# Categories whose names predictions need: only the private part of such a name is replaced.
CODE_CATEGORY_PATTERN = re.compile(
    r"(?i)^(cpu_op|operator|kernel|(gpu_)?mem(cpy|set)|(\w+_)?(runtime|driver)|cuda_sync)$"
)
PROCESS_NAMES = ("process_name", "process_labels")
PLAIN_LABEL_PATTERN = re.compile(r"CPU|GPU \d+")
THREAD_PROGRAM_PATTERN = re.compile(r" *\(.*\)")

# Numbers keep their text, because a double can't hold the 19 digits of an absolute time.
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode()))
_encode = msgspec.json.Encoder().encode


class Redactor:
    """Redacts the entries of one trace and counts what it removes.

    Args:
        document: The top level of the JSON, with undecoded values.
    """

    def __init__(self, document: Mapping[str, Raw]) -> None:
        self.removed = RedactionSummary()
        self._document = document
        metadata = {key: _decoder.decode(value) for key, value in document.items() if key != "traceEvents"}
        self._words = RedactionPatterns(find_private_names(metadata))

    def iter_chunks(self) -> Iterator[bytes]:
        """Yield the redacted document in pieces of text."""
        separator = b"{\n"
        for key, value in self._document.items():
            if not ALLOWED_METADATA_PATTERN.fullmatch(key):
                self.removed.metadata.append(key)
                continue
            yield separator + _encode(key) + b":"
            if key == "traceEvents":
                yield from self.iter_events(value)
            else:
                yield _encode(REDACTED if key == "traceName" else self._redact_value(_decoder.decode(value)))
            separator = b",\n"
        yield b"\n}\n"

    def iter_events(self, events: Raw) -> Iterator[bytes]:
        """Yield the redacted list of events."""
        separator = b"[\n"
        for raw in msgspec.json.decode(events, type=list[Raw]):
            event = self._redact_event(_decoder.decode(raw))
            if event is not None:
                yield separator + _encode(event)
                separator = b",\n"
        yield b"[]" if separator == b"[\n" else b"\n]"

    def _redact_event(self, event: Any) -> Any:
        if not isinstance(event, dict):
            return self._redact_value(event)
        category = str(event.get("cat", ""))
        if category in DROPPED_CATEGORIES:
            self.removed.events += 1
            return None
        args = self._redact_arguments(event)
        name = event.get("name")
        rest = {
            self._redact_value(key): value if key in ("name", "args") else self._redact_value(value)
            for key, value in event.items()
        }
        if "name" in event:
            if isinstance(name, str) and CODE_CATEGORY_PATTERN.match(category):
                rest["name"] = self._redact_code_name(name)
            else:
                rest["name"] = self._redact_value(name)
        return rest if args is None else rest | {"args": args}

    def _redact_arguments(self, event: dict[str, Any]) -> Any:
        args = event.get("args")
        if not isinstance(args, dict):
            return self._redact_value(args)
        if event.get("ph") == "M":
            return self._redact_track_names(event.get("name"), args)
        dropped = [key for key in args if key in DROPPED_ARGUMENTS]
        self.removed.arguments.update(dropped)
        return {
            self._redact_value(key): self._redact_value(value, key) for key, value in args.items() if key not in dropped
        }

    def _redact_track_names(self, kind: Any, args: dict[str, Any]) -> dict[str, Any]:
        """Redact the name of a process or thread, as it names the program that runs."""
        return {self._redact_value(key): self._redact_track_name(kind, value) for key, value in args.items()}

    def _redact_track_name(self, kind: Any, value: Any) -> Any:
        if not isinstance(value, str):
            return self._redact_value(value)
        if kind in PROCESS_NAMES:
            return value if PLAIN_LABEL_PATTERN.fullmatch(value) else self._count_replacement("the name of a process")
        return self._redact_value(THREAD_PROGRAM_PATTERN.sub("", value))

    def _redact_value(self, value: Any, key: str = "") -> Any:
        """Replace every private text in a decoded value."""
        if isinstance(value, str):
            kind = self._words.kind(value, key)
            return self._count_replacement(kind) if kind else value
        if isinstance(value, dict):
            return {self._redact_value(name): self._redact_value(entry, name) for name, entry in value.items()}
        if isinstance(value, list):
            return [self._redact_value(entry, key) for entry in value]
        return value

    def _redact_code_name(self, name: str) -> str:
        kind = self._words.kind(name)
        if kind is None:
            return name
        replaced = self._count_replacement(kind)
        return replaced if kind in secret_scan.SECRET_PATTERNS else self._words.redact_parts(name)

    def _count_replacement(self, kind: str) -> str:
        self.removed.texts[kind] += 1
        return REDACTED
