"""The page that describes the API, made from the application's OpenAPI document."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse

from tracekit.web.responses import render_page

SCHEMA_PREFIX = "#/components/schemas/"

Schema = Mapping[str, Any]

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation, or a property of an object.

    Attributes:
        name: Its name.
        place: ``path``, ``query`` or ``header``; empty for a property.
        type: Its type in words.
        schema: Name of the object described elsewhere on the page that it is or holds; empty if there is none.
        meaning: What it is.
        is_required: Whether it must be given.
    """

    name: str
    place: str
    type: str
    schema: str
    meaning: str
    is_required: bool


@dataclass(frozen=True, slots=True)
class Operation:
    """What a method does at an address.

    Attributes:
        id: Anchor on the page.
        method: The method in upper case.
        path: The address.
        summary: What it does, in a few words.
        description: The same in sentences.
        parameters: Its parameters.
        body: The request's body by media type: the name of its object, or empty.
        answers: The statuses of success with their media types.
        refusals: The statuses of refusals.
    """

    id: str
    method: str
    path: str
    summary: str
    description: str
    parameters: tuple[Parameter, ...]
    body: Mapping[str, str]
    answers: Mapping[str, tuple[str, ...]]
    refusals: tuple[str, ...]


@router.get("/api/docs")
def show_docs(request: Request) -> HTMLResponse:
    """The API's description."""
    document = request.app.openapi()
    return render_page("docs.html", areas=group_operations(document), objects=list_objects(document))


def group_operations(document: Schema) -> dict[str, list[Operation]]:
    """Return the operations of a document by their tags, in its order."""
    areas: dict[str, list[Operation]] = {}
    for path, methods in _resolve_enumerations(document)["paths"].items():
        for method, described in methods.items():
            areas.setdefault(described["tags"][0], []).append(_read_operation(path, method, described))
    return areas


def list_objects(document: Schema) -> dict[str, tuple[str, tuple[Parameter, ...]]]:
    """Return the objects of a document by name, each with what it is and its properties."""
    return {
        name: (schema.get("description", ""), tuple(_read_properties(schema)))
        for name, schema in document["components"]["schemas"].items()
        if "properties" in schema
    }


def describe_type(schema: Schema) -> str:
    """Return a schema's type in words.

    Examples:
        >>> describe_type({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}]})
        'integer, at least 1'
    """
    branches = [branch for branch in schema.get("anyOf", ()) if branch.get("type") != "null"]
    if branches:
        return " or ".join(dict.fromkeys(map(describe_type, branches)))
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(SCHEMA_PREFIX)
    if "enum" in schema or "const" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {describe_type(schema['items'])}"
    limits = [
        f"{word} {schema[key]:,.15g}"
        for key, word in (("minimum", "at least"), ("maximum", "at most"))
        if key in schema
    ]
    return ", ".join((schema.get("type", "any"), *limits))


def _resolve_enumerations(document: Schema) -> Schema:
    """Put enumerations where they are referred to; references to objects stay."""
    named = document["components"]["schemas"]

    def resolve(part: Any) -> Any:
        if isinstance(part, dict):
            referred = named.get(str(part.get("$ref")).removeprefix(SCHEMA_PREFIX), {})
            return referred if "enum" in referred else {key: resolve(value) for key, value in part.items()}
        return [resolve(each) for each in part] if isinstance(part, list) else part

    resolved: Schema = resolve(document)
    return resolved


def _read_operation(path: str, method: str, described: Schema) -> Operation:
    contents = described.get("requestBody", {}).get("content", {})
    answers = {status: tuple(answer.get("content", ())) for status, answer in described["responses"].items()}
    return Operation(
        id=f"{method}{path.replace('/', '-').replace('{', '').replace('}', '')}",
        method=method.upper(),
        path=path,
        summary=described["summary"],
        description=described.get("description", ""),
        parameters=tuple(map(_read_parameter, described.get("parameters", ()))),
        body={media_type: _find_object(content["schema"]) for media_type, content in contents.items()},
        answers={status: media_types for status, media_types in answers.items() if status < "3"},
        refusals=tuple(sorted(status for status in answers if status >= "4")),
    )


def _read_parameter(described: Schema) -> Parameter:
    schema = described["schema"]
    return Parameter(
        name=described["name"],
        place=described["in"],
        type=describe_type(schema),
        schema=_find_object(schema),
        meaning=described.get("description", ""),
        is_required=described.get("required", False),
    )


def _read_properties(schema: Schema) -> Iterator[Parameter]:
    required = schema.get("required", ())
    for name, described in schema["properties"].items():
        yield Parameter(
            name=name,
            place="",
            type=describe_type(described),
            schema=_find_object(described),
            meaning=described.get("description", ""),
            is_required=name in required,
        )


def _find_object(schema: Schema) -> str:
    """Return the name of the object that a schema is, or that one of its branches or elements is."""
    parts = (schema, schema.get("items", {}), *schema.get("anyOf", ()))
    found = (str(part["$ref"]).removeprefix(SCHEMA_PREFIX) for part in parts if "$ref" in part)
    return next(found, "")
