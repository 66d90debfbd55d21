"""The page and the API of a served model under a load."""

import json

import pytest

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


def test_the_api_answers_as_the_command_line(start):
    client = start()
    targets = client.get("/api/v1/serving.json", params=ASKED | {"price": "h100-sxm=2"}).json()["targets"]
    assert [one["gpu"] for one in targets] == ["h100-sxm", "l40s"]
    (load,) = targets[0]["loads"]
    assert load["concurrency"] == 4
    assert load["ttft_ms"]["low"] <= load["ttft_ms"]["value"] <= load["ttft_ms"]["high"]
    assert "dollars_per_million_tokens" in load
    (load,) = client.get("/api/v1/serving.json", params=ASKED | {"rate": 3}).json()["targets"][0]["loads"]
    assert load["rate"] == 3


@pytest.mark.parametrize(
    ("change", "code"),
    [
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
    page = client.get("/serving", params=ASKED | change)
    assert page.status_code == 400
    assert 'role="alert"' in page.text
