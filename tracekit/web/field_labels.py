"""Messages in the words of the page: options by the labels of its fields."""

from collections.abc import Mapping
from typing import Any

from tracekit.messages.catalogue import read_message
from tracekit.web.ask import FIELDS

_OPTION_LABELS = {name.replace("_", "-"): f"“{field.option.label}”" for name, field in FIELDS.items()}


def name_field(option: str) -> str:
    """Name an option as the page does: by the label of its field.

    Examples:
        >>> name_field("tp")
        '“Tensor-parallel ranks”'
    """
    return _OPTION_LABELS.get(option, f"the command line's --{option}")


def render_message(shown: Mapping[str, Any]) -> str:
    """Render a message that was stored as JSON.

    Args:
        shown: The message as a dictionary.
    """
    return read_message(shown).render(name_field)


def describe_error(shown: Mapping[str, Any]) -> dict[str, str]:
    """Return the ``message`` and the ``hint`` of an error for the page.

    Args:
        shown: The error, as :func:`tracekit.web.errors.serialize_error` returns it.
    """
    if shown["catalogue"] is None:
        return {"message": shown["message"], "hint": shown["hint"]}
    told = read_message(shown["catalogue"])
    return {"message": told.render_text(name_field), "hint": told.render_hint(name_field)}
