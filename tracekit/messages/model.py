"""A message: a template of the catalogue and the values in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from string import Formatter
from typing import Any, TypeAlias

from tracekit.escape import to_line
from tracekit.format import (
    format_amount,
    format_bytes,
    format_change,
    format_count,
    format_dollar_range,
    format_dollars,
    format_duration,
    format_interval,
    format_likely,
    format_number,
    format_percent,
    format_percent_range,
    format_price,
    format_quantity,
    format_range,
    format_run_time,
)

Value: TypeAlias = "str | int | float | bool | Sequence[Value] | Message | None"
"""A value in a message. The end of its name gives its unit: ``step_time_us``, ``busy_pct``, ``size_bytes``."""

OptionNames: TypeAlias = Callable[[str], str]
"""Names an option as a front end does: ``tp`` is ``--tp`` on the command line."""

TextEscape: TypeAlias = Callable[[str], str]
"""Escapes a text for its destination: a function of :mod:`tracekit.escape`."""

ProgressCallback: TypeAlias = "Callable[[Message], object]"
"""Called with what is being done, as it begins."""

MESSAGES_PAGE = "reference/messages.html"
"""The page of the documentation that lists the catalogue."""


class Severity(StrEnum):
    """How much a message matters."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    FINDING = "finding"
    CHECK = "check"


def name_option(option: str) -> str:
    """Name an option as the command line does: ``--source-gpu``."""
    return f"--{option}"


def name_argument(option: str) -> str:
    """Name an option as Python does: ``source_gpu=``."""
    return f"{option.replace('-', '_')}="


@dataclass(frozen=True, slots=True)
class Template:
    """An entry of the catalogue.

    Fields stand in braces. A field whose name ends with ``_us``, ``_pct`` or ``_bytes`` is shown with its unit.
    Other formats are ``{names:list}``, ``{reasons:sentences}``, ``{parts:words}``, ``{kernels:count kernel}``,
    ``{ends_us:interval}``, ``{ratio:number}`` (three digits), ``{kernels:mean}`` or ``{kernels:mean kernel}`` (averaged
    over steps), ``{shares_pct:percents}`` (their range), ``{time_us:milliseconds}`` (as options take it),
    ``{hour:price}``, ``{tokens:amount}`` (2B), ``{hours:run_time}`` and Python's own (``{ratio:.1f}``, ``{path!r}``).
    Of a value with its interval (low, likely, high): ``{speedup:range}``, ``{speedup:likely}``, ``{cost:dollars}``,
    ``{cost:dollar_range}``. ``{--tp}`` is an option, named by the front end.

    Attributes:
        code: Stable name for programs and tests: the constant's name in kebab case, such as ``"gpu-unknown"``.
        severity: How much it matters.
        text: What is the case.
        hint: What to try; empty if nothing can be done.
    """

    code: str
    severity: Severity
    text: str
    hint: str = ""

    def __call__(self, **values: Value) -> Message:
        """Return the message with these values.

        Raises:
            TypeError: A field has no value, or a value no field.
        """
        if values.keys() != self.fields:
            raise TypeError(f"{self.code} takes {sorted(self.fields)}, not {sorted(values)}")
        return Message(self, {name: _freeze(value) for name, value in values.items()})

    @property
    def link(self) -> str:
        """Address of its entry in the documentation, relative to the site's root."""
        return f"{MESSAGES_PAGE}#{self.code}"

    @property
    def fields(self) -> frozenset[str]:
        """Names of the values."""
        names = (name for part in (self.text, self.hint) for _, name, _, _ in Formatter().parse(part) if name)
        return frozenset(name for name in names if not name.startswith("--"))


def note(text: str, hint: str = "") -> Template:
    """Return what a reader should know."""
    return Template("", Severity.NOTE, text, hint)


def warning(text: str, hint: str = "") -> Template:
    """Return what makes an answer doubtful."""
    return Template("", Severity.WARNING, text, hint)


def error(text: str, hint: str = "") -> Template:
    """Return why there is no answer."""
    return Template("", Severity.ERROR, text, hint)


def finding(text: str, hint: str = "") -> Template:
    """Return what holds the step back."""
    return Template("", Severity.FINDING, text, hint)


def check(text: str, hint: str = "") -> Template:
    """Return what the doctor looked at."""
    return Template("", Severity.CHECK, text, hint)


def name_templates(area: Mapping[str, object]) -> None:
    """Give the templates of a module their codes, the constants' names: ``GPU_UNKNOWN`` is ``gpu-unknown``.

    Args:
        area: The module's ``globals()``, once all its templates are there.
    """
    for name, value in area.items():
        if isinstance(value, Template) and not value.code:
            object.__setattr__(value, "code", name.lower().replace("_", "-"))


@dataclass(frozen=True, slots=True)
class Message:
    """A template and its values.

    Attributes:
        template: The entry of the catalogue.
        values: By the names of the template's fields.
    """

    template: Template
    values: Mapping[str, Value] = field(default_factory=dict, hash=False)

    @property
    def code(self) -> str:
        """Stable name for programs and tests."""
        return self.template.code

    @property
    def severity(self) -> Severity:
        """How much it matters."""
        return self.template.severity

    @property
    def link(self) -> str:
        """Address of its entry in the documentation, relative to the site's root."""
        return self.template.link

    def render_text(self, name: OptionNames = name_option, escape: TextEscape = to_line) -> str:
        """Return what is the case.

        Args:
            name: Names options as the front end does.
            escape: Escapes the texts among the values for their destination.
        """
        return _Renderer(name, escape).vformat(self.template.text, (), self.values)

    def render_hint(self, name: OptionNames = name_option, escape: TextEscape = to_line) -> str:
        """Return what to try; empty if nothing can be done. Arguments as for :meth:`render_text`."""
        return _Renderer(name, escape).vformat(self.template.hint, (), self.values)

    def render(self, name: OptionNames = name_option, escape: TextEscape = to_line) -> str:
        """Return both in one line. Arguments as for :meth:`render_text`."""
        return f"{self.render_text(name, escape)} {self.render_hint(name, escape)}".rstrip()

    def to_dict(self, name: OptionNames = name_option) -> dict[str, Any]:
        """Return the message as JSON shows it: code, severity, values, the rendered text and the link."""
        values = {key: _to_json(value, name) for key, value in self.values.items()}
        shown = {"code": self.code, "severity": self.severity.value, "values": values, "text": self.render(name)}
        return shown | {"link": self.link}

    def __str__(self) -> str:
        """Return the message as the command line shows it."""
        return self.render()

    def __repr__(self) -> str:
        return f"<{self.severity}: {self} [{self.code}]>"


def _freeze(value: Value) -> Value:
    """Turn lists into tuples, so that a message equals its copy read back from JSON."""
    return tuple(map(_freeze, value)) if isinstance(value, Sequence) and not isinstance(value, str) else value


def _to_json(value: Value, name: OptionNames) -> Any:
    if isinstance(value, Message):
        return value.to_dict(name)
    return [_to_json(item, name) for item in value] if isinstance(value, tuple) else value


class _Renderer(Formatter):
    """Fills in a template for one front end."""

    def __init__(self, name: OptionNames, escape: TextEscape) -> None:
        self.name_option, self._escape = name, escape

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the value of a field, or the name of an option."""
        if field_name.startswith("--"):
            return _Rendered(self.name_option(field_name.removeprefix("--"))), field_name
        return _NamedValue(field_name, self._render_nested(kwargs[field_name])), field_name

    def _render_nested(self, value: Value) -> Value:
        if isinstance(value, Message):
            return _Rendered(value.render(self.name_option, self._escape))
        return tuple(map(self._render_nested, value)) if isinstance(value, tuple) else value

    def convert_field(self, value: Any, conversion: Any) -> Any:
        """Apply ``!r`` to the value itself."""
        return super().convert_field(
            value.value if conversion and isinstance(value, _NamedValue) else value, conversion
        )

    def format_field(self, value: Any, format_spec: str) -> str:
        """Format a value; by default with the unit that its name gives."""
        if isinstance(value, _Rendered):
            return value
        if not isinstance(value, _NamedValue):
            return self._escape(format(value, format_spec))
        if isinstance(value.value, tuple):
            return value.format(format_spec, self._escape_unrendered)
        shown = value.format(format_spec)
        return shown if isinstance(value.value, _Rendered) else self._escape(shown)

    def _escape_unrendered(self, value: Any) -> str:
        return value if isinstance(value, _Rendered) else self._escape(str(value))


class _Rendered(str):
    """A text whose values are escaped."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _NamedValue:
    """A value and its field's name, which gives the unit."""

    name: str
    value: Any

    def format(self, spec: str, escape: Callable[[Any], str] = str) -> str:
        style, _, what = (spec or self._choose_style()).partition(" ")
        if style in _SEPARATORS:
            return _SEPARATORS[style].join(map(escape, self.value))
        return _STYLES[style](self.value, what) if style in _STYLES else format(self.value, spec)

    def _choose_style(self) -> str:
        if isinstance(self.value, tuple):
            return "list"
        return next((style for ending, style in _UNIT_STYLES.items() if self.name.endswith(ending)), "")


_UNIT_STYLES = {"_us": "duration", "_pct": "percent", "_bytes": "bytes"}

_SEPARATORS = {"list": ", ", "sentences": " ", "words": " "}

_STYLES: dict[str, Callable[[Any, str], str]] = {
    "change": lambda value, _: format_change(value),
    "duration": lambda value, _: format_duration(value),
    "percent": lambda value, _: format_percent(value),
    "aside": lambda value, _: "" if value is None else f" (measured: {format_percent(value)})",
    "bytes": lambda value, _: format_bytes(value),
    "interval": lambda value, _: format_interval(*value),
    "number": lambda value, _: format_number(value),
    "count": format_quantity,
    "mean": lambda value, what: format_quantity(value, what) if what else format_count(value),
    "percents": lambda value, _: format_percent_range(value),
    "milliseconds": lambda value, _: f"{value / 1e3:.6g}ms",
    "price": lambda value, _: format_price(value),
    "amount": lambda value, _: format_amount(value),
    "run_time": lambda value, _: format_run_time(value),
    "likely": lambda value, _: format_likely(value),
    "range": lambda value, _: format_range(value),
    "dollars": lambda value, _: f"${format_dollars(value[1])}",
    "dollar_range": lambda value, _: format_dollar_range(value),
}
