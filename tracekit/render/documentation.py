"""Render pages of the documentation, and what they say of a message."""

import re
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.markdown import Markdown
from rich.text import Text

from tracekit.documentation import Explanation, Page
from tracekit.render.json import dump_document
from tracekit.render.screen import make_facts_table


def render_pages(pages: Sequence[Page]) -> RenderableType:
    """Render the list of pages."""
    label_chars = max((len(page.name) for page in pages), default=0)
    return make_facts_table(*((page.name, page.title) for page in pages), label_chars=label_chars)


def render_explanation(found: Explanation) -> RenderableType:
    """Render what is known of a message, or a page."""
    if found.page is not None:
        return Markdown(found.page.text)
    template = found.template
    assert template is not None
    facts = [(str(template.severity), _show_fields(template.text)), ("what to try", _show_fields(template.hint))]
    return Group(
        Text(template.code, style="bold"),
        make_facts_table(*((name, text) for name, text in facts if text), label_chars=len("what to try")),
        *(Text(f"{title}: {text}") for title, text in found.mentions),
        Text("Words in braces stand for figures and names; tracekit explain lists all pages.", style="dim"),
    )


def _show_fields(text: str) -> str:
    """Return a template's text, options named as on the command line, and fields without their formats."""
    return re.sub(r"\{(\w+)[^}]*\}", r"{\1}", re.sub(r"\{(--[\w-]+)\}", r"\1", text))


def serialize_pages(pages: Sequence[Page]) -> str:
    """Return the list of pages as JSON."""
    return dump_document({"pages": [{"name": one.name, "folder": one.folder, "title": one.title} for one in pages]})


def serialize_explanation(found: Explanation) -> str:
    """Return what is known of a message, or a page, as JSON."""
    template, page = found.template, found.page
    message = template and {
        "code": template.code,
        "severity": template.severity,
        "text": template.text,
        "hint": template.hint,
        "mentions": [{"page": title, "text": text} for title, text in found.mentions],
    }
    return dump_document({"message": message or None, "page": page and {"name": page.name, "text": page.text}})
