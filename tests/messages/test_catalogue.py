"""The catalogue: every entry reads well, every use of it fits."""

import ast
import re
from pathlib import Path

import tracekit
from tracekit.format import form_plural
from tracekit.messages.catalogue import AREAS, CATALOGUE, find_templates, read_message
from tracekit.messages.model import Message, Template

ROOT = Path(tracekit.__file__).parent
TEMPLATES = {name: template for area in AREAS for name, template in find_templates(area).items()}


def find_calls() -> list[tuple[str, Template, set[str] | None]]:
    """Find the calls of templates: place, template, names of the values (None for ``**values``)."""
    calls = []
    for path in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (template := TEMPLATES.get(find_name(node.func))):
                names = {keyword.arg for keyword in node.keywords}
                calls.append((f"{path.relative_to(ROOT)}:{node.lineno}", template, None if None in names else names))
    return calls


def find_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def test_every_use_gives_the_templates_values() -> None:
    calls = find_calls()
    assert calls
    assert [(where, template.code) for where, template, names in calls if names not in (None, template.fields)] == []


def test_every_template_is_used() -> None:
    used = {
        find_name(node)
        for path in ROOT.rglob("*.py")
        if path.parent.name != "messages"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Name | ast.Attribute)
    }
    assert sorted(TEMPLATES.keys() - used) == []


COUNTED = re.compile(r":(?:count|mean) ([^}]+)\}")


def test_counted_nouns_have_their_plural() -> None:
    hand = {"copy": "copies", "process": "processes", "batch": "batches", "mesh": "meshes", "index": "indexes"}
    assert {noun: form_plural(noun) for noun in hand} == hand
    assert [form_plural(noun) for noun in ("day", "GPU", "trace")] == ["days", "GPUs", "traces"]
    nouns = {noun for one in CATALOGUE.values() for noun in COUNTED.findall(f"{one.text}{one.hint}")}
    assert len(nouns) > 30
    assert [noun for noun in nouns if re.search(r"[^aeiou]ys$|(?:[^e]s|[xz]|[cs]h)s$", form_plural(noun))] == []
    assert [noun for noun in nouns if form_plural(noun).endswith("sses") and not noun.endswith("ss")] == []


def read_back(template: Template) -> Message:
    """Read a message of the template back from its JSON."""
    message = template(**dict.fromkeys(template.fields, "x"))
    return read_message({"code": template.code, "values": dict(message.values)})


def test_every_entry_reads_back_from_json() -> None:
    wrong = [one.code for one in CATALOGUE.values() if read_back(one) != one(**dict.fromkeys(one.fields, "x"))]
    assert wrong == []


def test_every_hint_begins_a_sentence() -> None:
    assert [one.code for one in CATALOGUE.values() if one.hint and not re.match(r"[A-Z`{]", one.hint)] == []
