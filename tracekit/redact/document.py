"""One trace's JSON, entry by entry, to the same without what gives something away."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from tracekit import secrets
from tracekit.redact.words import REDACTED, Removed, Words, names

KEPT_METADATA = re.compile(rf"deviceProperties|distributedInfo|traceEvents|traceName|tracekit|{secrets.HARMLESS}")
DROPPED_CATEGORIES = ("python_function",)
DROPPED_ARGUMENTS = ("Call stack", "Call Stack", "Module Hierarchy", "kernel_file", "Stack")
# Code's own names, which predictions go by: only the telling part is replaced, not the whole name.
CODE_CATEGORIES = re.compile(r"(?i)^(cpu_op|operator|kernel|(gpu_)?mem(cpy|set)|(\w+_)?(runtime|driver)|cuda_sync)$")
PROCESS_NAMES = ("process_name", "process_labels")
PLAIN_LABEL = re.compile(r"CPU|GPU \d+")
THREAD_PROGRAM = re.compile(r" *\(.*\)")

# Numbers keep their text: a double can't hold the 19 digits of an absolute time.
_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=lambda text: Raw(text.encode()))
_encode = msgspec.json.Encoder().encode


class Redactor:
    """Redacts the entries of one trace and counts what it removes.

    Args:
        document: The top level, undecoded.
    """

    def __init__(self, document: Mapping[str, Raw]) -> None:
        self.removed = Removed()
        self._document = document
        metadata = {key: _decoder.decode(value) for key, value in document.items() if key != "traceEvents"}
        self._words = Words(names(metadata))

    def chunks(self) -> Iterator[bytes]:
        """The redacted document's text, piece by piece."""
        separator = b"{\n"
        for key, value in self._document.items():
            if not KEPT_METADATA.fullmatch(key):
                self.removed.metadata.append(key)
                continue
            yield separator + _encode(key) + b":"
            if key == "traceEvents":
                yield from self.event_list(value)
            else:
                yield _encode(REDACTED if key == "traceName" else self._clean(_decoder.decode(value)))
            separator = b",\n"
        yield b"\n}\n"

    def event_list(self, events: Raw) -> Iterator[bytes]:
        """The redacted list of events."""
        separator = b"[\n"
        for raw in msgspec.json.decode(events, type=list[Raw]):
            event = self._event(_decoder.decode(raw))
            if event is not None:
                yield separator + _encode(event)
                separator = b",\n"
        yield b"[]" if separator == b"[\n" else b"\n]"

    def _event(self, event: Any) -> Any:
        if not isinstance(event, dict):
            return self._clean(event)
        category = str(event.get("cat", ""))
        if category in DROPPED_CATEGORIES:
            self.removed.events += 1
            return None
        args = self._arguments(event)
        name = event.get("name")
        rest = {key: value if key in ("name", "args") else self._clean(value) for key, value in event.items()}
        if isinstance(name, str):
            rest["name"] = self._code_name(name) if CODE_CATEGORIES.match(category) else self._clean(name)
        return rest if args is None else rest | {"args": args}

    def _arguments(self, event: dict[str, Any]) -> Any:
        args = event.get("args")
        if not isinstance(args, dict):
            return self._clean(args)
        if event.get("ph") == "M":
            return self._track(event.get("name"), args)
        dropped = [key for key in args if key in DROPPED_ARGUMENTS]
        self.removed.arguments.update(dropped)
        return {key: self._clean(value, key) for key, value in args.items() if key not in dropped}

    def _track(self, kind: Any, args: dict[str, Any]) -> dict[str, Any]:
        """The name of a process or a thread: which program it runs is nobody's business."""
        return {key: self._track_name(kind, value) for key, value in args.items()}

    def _track_name(self, kind: Any, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if kind in PROCESS_NAMES:
            return value if PLAIN_LABEL.fullmatch(value) else self._replaced("the name of a process")
        return self._clean(THREAD_PROGRAM.sub("", value))

    def _clean(self, value: Any, key: str = "") -> Any:
        """A decoded value with every telling text in it replaced."""
        if isinstance(value, str):
            kind = self._words.kind(value, key)
            return self._replaced(kind) if kind else value
        if isinstance(value, dict):
            return {self._clean(name): self._clean(entry, name) for name, entry in value.items()}
        if isinstance(value, list):
            return [self._clean(entry, key) for entry in value]
        return value

    def _code_name(self, name: str) -> str:
        kind = self._words.kind(name)
        if kind is None:
            return name
        replaced = self._replaced(kind)
        return replaced if kind in secrets.PATTERNS else self._words.cut(name)

    def _replaced(self, kind: str) -> str:
        self.removed.texts[kind] += 1
        return REDACTED
