"""Replace command-line options in messages by the labels of the page's fields."""

import re
from collections.abc import Mapping
from typing import Any

from tracekit.messages.catalogue import read_message
from tracekit.web.ask import FIELDS

_OPTION_LABELS = {f"--{name.replace('_', '-')}": f"“{field.option.label}”" for name, field in FIELDS.items()}
_OPTION_PATTERN = re.compile(rf"(?:predict )?({'|'.join(sorted(_OPTION_LABELS, key=len, reverse=True))})(?![\w-])")


def name_field(option: str) -> str:
    """Name an option as the page does: by the label of its field.

    Examples:
        >>> name_field("tp")
        '“Tensor-parallel ranks”'
    """
    return _OPTION_LABELS.get(f"--{option}", f"the command line's --{option}")


def render_message(shown: Mapping[str, Any]) -> str:
    """Render a message that was stored as JSON, with the page's own labels.

    Args:
        shown: The message as a dictionary.
    """
    return use_field_names(read_message(shown).render(name_field))


def use_field_names(text: str) -> str:
    """Replace command-line options in a message by the labels of the page's fields.

    Examples:
        >>> use_field_names("leave out --tp, or say --ep 4.")
        'leave out “Tensor-parallel ranks”, or say “Expert-parallel ranks” 4.'
    """
    return _OPTION_PATTERN.sub(lambda found: _OPTION_LABELS[found[1]], text)
