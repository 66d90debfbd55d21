"""The page and the API of a served model under a load."""

import json

import pytest

from tracekit.render.serving import as_json
from tracekit.request import ServingRequest, answers, list_fields

CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 4096,
    "vocab_size": 32000,
}
ASKED = {
    "config": json.dumps(CONFIG),
    "gpu": "h100-sxm, l40s",
    "concurrency": 4,
    "input_tokens": 64,
    "output_tokens": 8,
}


def test_the_page_has_the_form_then_the_answer(start):
    client = start()
    assert client.get("/serving").status_code == 200
    page = client.get("/serving", params=ASKED)
    assert page.status_code == 200
    assert "4 at once, median" in page.text
    assert "<svg" in page.text


@pytest.mark.heavy
def test_the_api_answers_as_the_command_line(start):
    client = start()
    targets = client.get("/api/v1/serving.json", params=ASKED | {"price": "h100-sxm=2"}).json()["targets"]
    assert [one["gpu"] for one in targets] == ["h100-sxm", "l40s"]
    (load,) = targets[0]["loads"]
    assert load["concurrency"] == 4
    assert load["ttft_ms"]["low"] <= load["ttft_ms"]["likely"] <= load["ttft_ms"]["high"]
    assert "dollars_per_million_tokens" in load
    (load,) = client.get("/api/v1/serving.json", params=ASKED | {"concurrency": "", "rate": 3}).json()["targets"][0][
        "loads"
    ]
    assert load["rate"] == 3


def test_page_and_api_have_all_options(start):
    """Those of the request but for files; each acts on the answer as the command line's does."""
    client = start()
    page = client.get("/serving").text
    described = client.get("/api/v1/openapi.json").json()["paths"]["/api/v1/serving.json"]["get"]["parameters"]
    options = {field.name for field in list_fields(ServingRequest)} - {"lengths", "source_gpu"}
    assert {one["name"] for one in described} == options | {"config"}
    assert all(f'name="{name}"' in page for name in options)
    given = ASKED | {"gpu": "h100-sxm", "concurrency": "1,4", "spread": "0.5", "tpot_below": "30ms", "max_sequences": 2}
    served = client.get("/api/v1/serving.json", params=given).json()
    config, options = given.pop("config"), given | {"concurrency": [1, 4], "spread": 0.5, "gpu": ["h100-sxm"]}
    assert served == json.loads(as_json(answers.serving(config.encode(), ServingRequest(**options))))
    assert served["targets"][0]["largest"]["load"]["likely"] >= 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"concurrency": "four"}, "option-value"),
        ({"spread": 2}, "option-value"),
        ({"lengths": "lengths.csv"}, "option-unknown"),
        ({"requests": 100_000, "output_tokens": 1000}, "served-load-too-large"),
        ({"apart": "1:2"}, "serving-apart-at-once"),
        ({"config": "{"}, "config-not-json"),
        ({"gpu": "gtx-9999"}, "gpu-unknown"),
        ({"gpu": "/etc/lab.toml"}, "server-reads-no-files"),
        ({"gpu": "all"}, "too-many-served-gpus"),
        ({"precision": "int3"}, "serving-precision"),
        ({"config": json.dumps(CONFIG | {"num_hidden_layers": 4000})}, "serving-does-not-fit"),
    ],
)
def test_what_is_refused(start, change, code):
    client = start()
    answer = client.get("/api/v1/serving.json", params=ASKED | change)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == code
    if code == "option-unknown":
        return
    page = client.get("/serving", params=ASKED | change)
    assert page.status_code == 400
    assert 'role="alert"' in page.text
