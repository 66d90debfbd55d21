"""Messages in the words of the page: options by the labels of its fields."""

from collections.abc import Mapping
from typing import Any

from tracekit.messages.catalogue import read_message
from tracekit.web.ask import FIELDS

_OPTION_LABELS = {name.replace("_", "-"): f"“{field.option.label}”" for name, field in FIELDS.items()}

_PRICE_BOXES = {"source": "the trace's GPU", "0": "the cluster", "1": "the other cluster"}


def name_field(option: str) -> str:
    """Name an option as the page does: by the label of its field.

    Examples:
        >>> name_field("tp")
        '“Tensor parallel (TP)”'
    """
    return _OPTION_LABELS.get(option, f"the command line's --{option}")


def name_box(name: str) -> str:
    """Name an input of the form: an option's field, or a box for a price.

    Examples:
        >>> name_box("price[l40s]"), name_box("steps")
        ('price of l40s', 'Steps')
    """
    if name in FIELDS:
        return FIELDS[name].option.label
    beside = name.partition("[")[2].removesuffix("]")
    return f"price of {_PRICE_BOXES.get(beside, beside)}"


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
