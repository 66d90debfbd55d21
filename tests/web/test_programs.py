"""Uploads that no GPU ran: a model's configuration, a recording of a CPU, an execution trace."""

import gzip
import json

import pytest

from tracekit.testing import TraceBuilder

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracekit.capturing import load  # noqa: E402

CONFIG = {"model_type": "tiny", "hidden_size": 64, "num_hidden_layers": 2, "auto_map": {"AutoModel": "evil.Model"}}


@pytest.fixture
def tiny(monkeypatch):
    """Build a small model of any configuration, without transformers."""

    def build(config, batch, tokens, dtype, *, training, attention="sdpa"):
        assert config.exists()
        with torch.device("meta"):
            model = nn.Sequential(nn.Embedding(100, 64), nn.Linear(64, 100)).bfloat16()
            return load.LoadedProgram(
                "tiny", model, (torch.zeros(batch, tokens, dtype=torch.int64),), {}, tokens=tokens
            )

    monkeypatch.setattr(load, "load_config_model", build)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("name", ["config.json", pytest.param("config.json.gz", marks=pytest.mark.heavy)])
def test_a_configuration_is_captured_and_asked_about(api, work, name):
    """The page compresses it on its way."""
    data = json.dumps(CONFIG).encode()
    job = api.begin(api.put(gzip.compress(data) if name.endswith(".gz") else data, name=name))
    work()
    found = api.job(job)
    assert (found["state"], found["found"]["source"]["is_captured"]) == ("found", True)
    ask = {"gpu": ["l40s"], "train": True, "optimizer": "adamw", "seq": 128, "batch": 4}
    assert api.client.post(f"/api/v1/jobs/{job}/ask", json=ask).status_code < 300
    work()
    done = api.job(job)
    assert done["state"] == "done", done
    report = api.client.get(done["reports"]["json"]).json()
    assert report["source"]["batch"]["size"] == 4 * 128
    assert report["targets"][0]["gpu"] == "l40s"
    assert "nothing-measured" in {warning["code"] for warning in report["warnings"]}


@pytest.mark.heavy
def test_a_dlrm_is_captured_with_other_tables(api, work):
    config = {"model_type": "dlrm", "tables": ["3*1000x16:2"], "bottom_mlp": [32, 16], "top_mlp": [8, 1]}
    job = api.begin(api.put(json.dumps(config).encode(), name="dlrm.json"))
    work()
    assert (api.job(job)["state"], api.job(job)["found"]["source"]["batch"]["size"]) == ("found", 2048)
    ask = {"gpu": ["l40s"], "train": True, "optimizer": "sgd", "batch": 64, "table": ["2*50x16:4"]}
    assert api.client.post(f"/api/v1/jobs/{job}/ask", json=ask).status_code < 300
    work()
    done = api.job(job)
    assert done["state"] == "done", done
    report = api.client.get(done["reports"]["json"]).json()
    assert report["source"]["batch"]["size"] == 64
    tables = report["source"]["tables"]
    assert tables is None or tables["tables"] == 2


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"model_type": "dlrm", "tables": []}', "dlrm-without-tables"),
        ('{"model_type": "dlrm", "tables": ["4x"]}', "dlrm-table"),
        ('{"model_type": "dlrm", "tables": ["4x16"], "evil": 1}', "dlrm-key-unknown"),
    ],
)
def test_an_impossible_dlrm_is_refused(api, work, text, code):
    job = api.begin(api.put(text.encode(), name="dlrm.json"))
    work()
    assert (api.job(job)["state"], api.job(job)["error"]["code"]) == ("failed", code)


def test_without_transformers_a_configuration_says_so(api, work, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)
    job = api.begin(api.put(json.dumps(CONFIG).encode(), name="config.json"))
    work()
    failed = api.job(job)
    assert failed["state"] == "failed"
    assert failed["error"]["code"] == "capture-needs-transformers"


def test_a_recording_of_a_cpu_is_captured(api, work):
    dims, types = [[64, 512], [512, 2048]], ["float", "float"]
    builder = TraceBuilder(device=None).op("aten::mm", 0, 900, dims=dims, types=types, concrete=["", ""])
    job = api.begin(api.put(builder.to_json()), ask={"gpu": ["h100-sxm"]})
    work()
    done = api.job(job)
    assert done["state"] == "done", done
    report = api.client.get(done["reports"]["json"]).json()
    assert report["source"]["is_captured"] is True


def test_options_of_programs_are_refused_for_traces(api, work, make_trace):
    job = api.begin(api.put(make_trace()), ask={"gpu": ["h100-sxm"], "train": True})
    work()
    failed = api.job(job)
    assert (failed["state"], failed["error"]["code"]) == ("failed", "options-of-programs")


def test_no_file_of_the_server_corrects_times(api, make_trace):
    upload = api.put(make_trace())
    answer = api.client.post("/api/v1/jobs", json={"uploads": [upload], "ask": {"measured": "/etc/passwd"}})
    assert answer.status_code == 422
