"""The catalogue: all templates by code."""

from collections.abc import Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType
from typing import Any

from tracekit import messages
from tracekit.messages.model import Message, Template

AREAS: tuple[ModuleType, ...] = tuple(
    import_module(f"{messages.__name__}.{area.name}")
    for area in iter_modules(messages.__path__)
    if area.name not in ("catalogue", "model")
)
"""Modules of templates: all files of this folder but two."""


def find_templates(area: ModuleType) -> dict[str, Template]:
    """Return the templates of a module by the names of their constants."""
    return {name: value for name, value in vars(area).items() if isinstance(value, Template)}


def collect_templates(areas: Iterable[ModuleType]) -> Mapping[str, Template]:
    """Return the templates of some modules by code.

    Raises:
        ValueError: Two templates have one code, or a code isn't its constant's name.
    """
    catalogue: dict[str, Template] = {}
    for area in areas:
        for name, template in find_templates(area).items():
            if template.code != name.lower().replace("_", "-"):
                raise ValueError(f"the code of {name} is {template.code!r}")
            if template.code in catalogue:
                raise ValueError(f"{template.code} is in the catalogue twice")
            catalogue[template.code] = template
    return MappingProxyType(catalogue)


CATALOGUE = collect_templates(AREAS)


def read_message(shown: Mapping[str, Any]) -> Message:
    """Return the message that :meth:`Message.to_dict` wrote.

    Raises:
        KeyError: The catalogue has no such code.
        TypeError: The values aren't those of the template.
    """
    return CATALOGUE[shown["code"]](**{name: _read_value(value) for name, value in shown["values"].items()})


def _read_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return read_message(value)
    return tuple(map(_read_value, value)) if isinstance(value, list) else value
