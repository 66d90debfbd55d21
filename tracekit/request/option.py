"""Declarations of options, and the checks of type and range that all of them share."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum
from math import inf
from numbers import Integral, Real
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from tracekit.errors import RequestError
from tracekit.messages import requests as messages
from tracekit.messages.model import Message, OptionNames, Severity, Template

ABSTRACT_TYPES: Mapping[type, type] = {int: Integral, float: Real}
"""Types that also numbers of other packages have."""
MAX_SHOWN_CHARS = 60
LEAST_BEYOND_FLOATS = 2**1024


class Panel(StrEnum):
    """What an option is about: heading of its group in the command line's help, in this order."""

    INPUT = "Input"
    TARGET = "Target"
    LAYOUT = "Layout"
    WHAT_IF = "What if"
    PROGRAM = "A program that never ran"
    ENGINE = "Serving engine"
    OUTPUT = "Output"


@dataclass(frozen=True, slots=True)
class Option:
    """What an option means and how the front ends show it.

    Attributes:
        help: What it is, one or two sentences. ``{--tp}`` is another option, named as the front end names it.
        label: Label of its field on the page.
        metavar: Its value in the command line's help.
        short: Short form of its flag, such as ``-g``.
        minimum: Least number.
        maximum: Largest number.
        separator: What separates several values in one field of the page.
        panel: What it is about, where that isn't its class's :attr:`Request.panel`.
    """

    help: str
    label: str
    metavar: str = "NAME"
    short: str = ""
    minimum: float = -inf
    maximum: float = inf
    separator: str = ","
    panel: Panel | None = None

    def render_help(self, name: OptionNames) -> str:
        """Return the help of a front end."""
        return Message(Template("option-help", Severity.NOTE, self.help)).render_text(name)

    def __get_pydantic_json_schema__(self, core_schema: Any, handler: Any) -> Any:
        """Describe the option in the web API's schema."""
        schema = handler(core_schema)
        for branch in schema.get("anyOf", [schema]):
            if branch.get("type") in ("integer", "number"):
                limits = {"minimum": self.minimum, "maximum": self.maximum}
                branch.update({name: limit for name, limit in limits.items() if abs(limit) < inf})
        return schema | {"description": self.render_help(lambda option: option.replace("-", "_"))}


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of a request.

    Attributes:
        name: Name of the field, and of the keyword argument in Python; with hyphens it is the command line's flag.
        annotation: Its type without the declaration.
        value_types: Types of one value.
        is_several: Whether it takes several values.
        default: Its default.
        option: Its declaration.
        panel: What it is about.
    """

    name: str
    annotation: Any
    value_types: tuple[type, ...]
    is_several: bool
    default: Any
    option: Option
    panel: Panel

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.value_types == (bool,)

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return self.value_types == (int,)

    @property
    def is_number(self) -> bool:
        """Whether its values are numbers."""
        return self.is_whole or self.value_types == (float,)

    def check(self, value: Any) -> None:
        """Check type and range of a value.

        Raises:
            RequestError: The option can't have this value.
        """
        if value is None and self.default is None:
            return
        for one in split_values(value) if self.is_several else (value,):
            if not self._has_type(one) or (isinstance(one, Real) and not self._is_in_range(one)):
                raise RequestError(
                    messages.OPTION_VALUE(
                        option=self.name.replace("_", " "),
                        given=_format_value(one),
                        expected=self._describe_values(),
                    )
                )

    def _has_type(self, value: Any) -> bool:
        if isinstance(value, bool):
            return bool in self.value_types
        return isinstance(value, tuple(ABSTRACT_TYPES.get(kind, kind) for kind in self.value_types))

    def _is_in_range(self, number: Any) -> bool:
        return bool(self.option.minimum <= number <= self.option.maximum)

    def _describe_values(self) -> str:
        if self.is_switch:
            return "true or false"
        if str in self.value_types:
            return f"{self.option.metavar}, as text"
        number = "a whole number" if self.is_whole else "a number"
        if (self.option.minimum, self.option.maximum) == (-inf, inf):
            return number
        return f"{number}, {self.option.minimum:,.15g} to {self.option.maximum:,.15g}"


@dataclass(frozen=True, kw_only=True)
class Request:
    """Base of requests: a data class whose fields are annotated with their :class:`Option`.

    Attributes:
        panel: What the options of the class are about.
    """

    panel: ClassVar[Panel] = Panel.INPUT

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Check all options; a request that exists is one that can be tried on a trace.

        Raises:
            TracekitError: An option has an impossible value.
            PredictorError: A GPU is unknown or its name ambiguous.
        """
        for field in list_fields(type(self)):
            field.check(getattr(self, field.name))

    def to_dict(self) -> dict[str, Any]:
        """Return the options as JSON takes them; the request's class makes an equal request of them."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        several = {field.name for field in list_fields(type(self)) if field.is_several}
        return {
            name: list(split_values(value)) if name in several and not isinstance(value, Mapping) else value
            for name, value in values.items()
        }


def list_fields(request: type[Request]) -> tuple[RequestField, ...]:
    """Return the fields of a class of requests."""
    hints = get_type_hints(request, include_extras=True)
    return tuple(
        _describe_field(field.name, hints[field.name], field.default, _find_declaring_class(request, field.name).panel)
        for field in fields(request)
    )


def _find_declaring_class(request: type[Request], field: str) -> type[Request]:
    return next(one for one in request.__mro__ if field in vars(one).get("__annotations__", {}))


def _describe_field(name: str, hint: Any, default: Any, panel: Panel) -> RequestField:
    annotation, option = get_args(hint)
    is_union = get_origin(annotation) in (Union, types.UnionType)
    members = get_args(annotation) if is_union else (annotation,)
    several = [member for member in members if get_origin(member) in (Sequence, Mapping)]
    value_types = {member for member in members if isinstance(member, type) and member is not types.NoneType}
    value_types = {member for member in value_types if get_origin(member) is None}
    value_types |= {get_args(member)[0] for member in several if get_origin(member) is Sequence}
    return RequestField(
        name, annotation, tuple(sorted(value_types, key=str)), bool(several), default, option, option.panel or panel
    )


def split_values(value: Any) -> tuple[Any, ...]:
    """Return one, several or no values as a tuple; those of a mapping are its keys."""
    if value is None:
        return ()
    return (value,) if isinstance(value, str) or not isinstance(value, Sequence | Mapping) else tuple(value)


def _format_value(value: Any) -> str:
    """Format a value alike whether it was text, a whole number or another number."""
    is_number = isinstance(value, Real) and not isinstance(value, bool)
    if isinstance(value, int) and abs(value) >= LEAST_BEYOND_FLOATS:
        return f"{Decimal(value):.15g}"
    return f"{float(value):.15g}" if is_number else f"{value!r:.{MAX_SHOWN_CHARS}}"
