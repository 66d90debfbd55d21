"""The JSON Schema of reports and predictions: real output of another trace than it was made from fits it."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

import tracekit as tk
from docs.site.json_schema import TYPES_OF_VALUES, build_schema
from tracekit.render.json import dump_measured, dump_prediction
from tracekit.testing import TraceBuilder


def list_errors(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Yield what of JSON Schema's words that are used here a value breaks."""
    kind = TYPES_OF_VALUES[type(value)]
    if kind not in schema.get("type", [kind]) or value != schema.get("const", value):
        yield f"{path} is {kind}"
    if isinstance(value, dict):
        yield from (f"{path}.{key} is missing" for key in schema.get("required", ()) if key not in value)
        for key, inner in schema.get("properties", {}).items():
            yield from list_errors(value[key], inner, f"{path}.{key}") if key in value else ()
    if isinstance(value, list) and "items" in schema:
        for item in value:
            yield from list_errors(item, schema["items"], f"{path}[]")


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return build_schema()


@pytest.fixture(scope="module")
def outputs() -> list[Any]:
    builder = TraceBuilder().op("aten::mm", 0, 9, dims=[[256, 512], [512, 128]], types=["float", "float"])
    trace = builder.kernel("sgemm", 9, 60, launch=1).kernel("unknown", 80, 9, launch=7).load()
    report = tk.report(tk.predict(trace, gpu=["l4", "mi300x"], source_gpu="a100-sxm-80gb", price={"l4": 1}))
    return [json.loads(dump_measured(tk.report(trace), 10)), json.loads(dump_prediction(report))]


def test_real_output_fits_the_schema(schema, outputs):
    assert [list(list_errors(output, schema)) for output in outputs] == [[], []]


def test_other_output_does_not(schema, outputs):
    wrong = copy.deepcopy(outputs[1])
    wrong["schema_version"] += 1
    del wrong["source"]["step_time_us"]
    wrong["targets"][0]["low_us"] = "1"
    assert {error.rpartition(".")[2] for error in list_errors(wrong, schema)} == {
        "schema_version is number",
        "step_time_us is missing",
        "low_us is string",
    }


def test_each_section_says_what_it_is(schema):
    assert all(section["description"] for section in schema["properties"].values())
    assert schema["properties"]["targets"]["items"]["properties"]["low_us"]["type"] == ["number"]
