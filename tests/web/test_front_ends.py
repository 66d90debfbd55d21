"""One request, one answer: the command line, Python, the API and the page agree on numbers and on refusals."""

import gzip
import inspect
import json
import sys

import pytest

import tracekit as tk
from tests.layers import NODE
from tests.prediction.test_experts import Model
from tests.web.conftest import list_complaints
from tracekit.cli.app import main
from tracekit.errors import TracekitError
from tracekit.messages import name_option
from tracekit.render.json import dump_measured, dump_prediction
from tracekit.render.sweep import as_json as dump_sweep
from tracekit.reporting.sweep import build_sweep_report
from tracekit.request import PredictRequest, SweepRequest, list_fields
from tracekit.request.option import split_values
from tracekit.web.ask import FIELDS, describe_error
from tracekit.web.errors import serialize_error
from tracekit.web.reports import TOP_KERNELS

pytestmark = pytest.mark.heavy

ANSWERED = {
    "one GPU": {"gpu": "l4"},
    "several GPUs": {"gpu": ["H100 SXM", "l40s", "mi300x"]},
    "twice the batch": {"gpu": "l4", "batch": 2},
    "a cluster": {"cluster": NODE},
    "a GPU without links": {"gpu": "l40s", "cluster": "8xh100-sxm", "world_size": 4},
    "data parallelism": {"cluster": [NODE, "8xh100-sxm"], "dp": 8},
    "FSDP": {"cluster": NODE, "dp": 4, "fsdp": True},
    "tensor parallelism": {"cluster": NODE, "tp": 2},
    "pipeline stages": {"cluster": NODE, "pp": 2, "micro_batches": 4, "pp_schedule": "zero-bubble"},
    "expert parallelism": {"cluster": NODE, "ep": 4},
    "edits": {"gpu": "h100-sxm", "what_if": ["scale(family=gemm, 0.5)", "compile(0.5)"]},
    "another CPU": {"gpu": "h100-sxm", "host_speed": "python=1.3,op=1.2"},
    "a CPU of one speed": {"gpu": "h100-sxm", "host_speed": 1.5},
    "one step": {"gpu": "l4", "steps": 0},
    "prices": {"gpu": "l4", "price": ["l4=0.5", "a100-sxm-80gb=1.25"]},
    "samples": {"gpu": "l4", "price": ["l4=0.5"], "samples": 16},
    "another source": {"gpu": "l4", "source_gpu": "a100-sxm-40gb"},
    "a source cluster": {"cluster": "8xh100-sxm", "source_cluster": "dgx-a100-80gb"},
    "without a rule": {"gpu": "l4", "without_rule": ["launch-queue"]},
    "without calibrations": {"gpu": "l4", "no_calibration": True},
    "without kept outcomes": {"gpu": "l4", "no_scoreboard": True},
}
REFUSED = {
    "no such GPU": {"gpu": "h1000"},
    "a cluster as GPU": {"gpu": "p5"},
    "no such cluster": {"cluster": "8xnothing"},
    "no such source": {"gpu": "l4", "source_gpu": "nothing"},
    "no such source cluster": {"cluster": NODE, "source_cluster": "nowhere"},
    "another source cluster": {"cluster": NODE, "source_cluster": "8xt4"},
    "no ranks": {"cluster": NODE, "dp": 0},
    "negative ranks": {"cluster": NODE, "world_size": -8},
    "ranks beyond counting": {"cluster": NODE, "tp": 2**40},
    "more ranks than GPUs": {"cluster": NODE, "world_size": 1024},
    "ranks that don't divide": {"cluster": NODE, "world_size": 8, "dp": 3},
    "no links": {"gpu": "l40s", "dp": 8},
    "no batch": {"gpu": "l4", "batch": 0},
    "a huge batch": {"gpu": "l4", "batch": 1e9},
    "micro-batches of no pipeline": {"cluster": NODE, "micro_batches": 4},
    "no such schedule": {"cluster": NODE, "pp": 2, "pp_schedule": "round"},
    "experts and both": {"cluster": NODE, "ep": 2, "pp": 2, "fsdp": True},
    "no price": {"gpu": "l4", "price": ["l4"]},
    "two prices": {"gpu": "l4", "price": ["l4=1", "L4=2"]},
    "a price of nothing": {"gpu": "l4", "price": ["h1000=2"]},
    "negative samples": {"gpu": "l4", "samples": -1},
    "no step": {"gpu": "l4", "steps": "last"},
    "a step too far": {"gpu": "l4", "steps": "7:9"},
    "no such edit": {"gpu": "l4", "what_if": ["speed-up(2)"]},
    "an edit of nothing": {"gpu": "l4", "what_if": ["scale(family=nothing, 2)"]},
    "a CPU that stands still": {"gpu": "l4", "host_speed": 0},
    "a time without a unit": {"gpu": "l4", "unprofiled_step": "12"},
    "a longer step": {"gpu": "l4", "unprofiled_step": "9s"},
    "no such rule": {"gpu": "l4", "without_rule": ["nothing"]},
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return Model(2, trains=True).builder.save(tmp_path_factory.mktemp("trace") / "trace.json")


@pytest.fixture
def run(trace, capsys, monkeypatch):
    """Run a command on the trace; gives stdout and stderr."""

    def invoke(verb, options, *more):
        monkeypatch.chdir(trace.parent)
        monkeypatch.setattr(sys, "argv", ["tracekit", verb, trace.name, "--json", *to_arguments(options), *more])
        with pytest.raises(SystemExit):
            main()
        captured = capsys.readouterr()
        return captured.out, captured.err

    return invoke


@pytest.fixture(scope="module")
def api(held):
    return held[0]


@pytest.fixture(scope="module")
def work(held):
    return held[1]


@pytest.fixture(scope="module")
def job(api, work, trace):
    """A job that has looked at the trace."""
    api.client.get("/")
    job = api.begin(api.put(trace.read_bytes(), trace.name))
    work()
    return job


@pytest.fixture
def load(trace, monkeypatch):
    monkeypatch.chdir(trace.parent)
    return lambda: tk.load(trace.name, cache=False)


def to_arguments(options):
    """Write options as on the command line."""
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        for one in split_values(value):
            yield from [flag] if one is True else [flag, str(one)]


def to_form(options):
    """Write options as the page's form sends them."""
    form = {}
    for name, value in options.items():
        texts = ["true" if one is True else str(one) for one in split_values(value)]
        form[name] = texts if name in ("gpu", "cluster") else FIELDS[name].option.separator.join(texts)
    return form


def read_report(api, job):
    return api.client.get(api.job(job)["reports"]["json"], params={"details": True}).json()


@pytest.mark.parametrize("case", ANSWERED)
def test_all_give_the_same_numbers(case, run, api, work, job, load):
    options = ANSWERED[case]
    out, err = run("predict", options)
    assert err == ""
    printed = json.loads(out)
    assert printed["targets"]
    assert json.loads(dump_prediction(tk.report(tk.predict(load(), **options)))) == printed
    api.client.post(f"/api/v1/jobs/{job}/ask", json=options).raise_for_status()
    work()
    assert read_report(api, job) == printed
    assert api.client.post(f"/jobs/{job}/ask", data=to_form(options)).status_code == 303
    work()
    assert read_report(api, job) == printed


@pytest.mark.parametrize("case", REFUSED)
def test_all_refuse_for_the_same_reason(case, run, api, work, job, load):
    options = REFUSED[case]
    with pytest.raises(TracekitError) as refused:
        tk.predict(load(), **options)
    refused.value.name_options(name_option)
    message, code = refused.value.message, refused.value.code
    out, err = run("predict", options)
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(f"tracekit: {message}")
    assert not code or err.endswith(f" [{code}]\n")
    answer = api.client.post(f"/api/v1/jobs/{job}/ask", json=options)
    assert answer.status_code in (200, 400)
    if answer.status_code == 200:
        work()
    error = (api.job(job) if answer.status_code == 200 else answer.json())["error"]
    assert (error["message"], error["code"]) == (message, code)
    page = api.client.post(f"/jobs/{job}/ask", data=to_form(options))
    if page.status_code == 303:
        work()
        page = api.client.get(f"/jobs/{job}")
    (alert,) = list_complaints(page)
    assert " ".join(describe_error(serialize_error(refused.value))["message"].split()) in alert


def test_what_needs_no_target(run, api, work, job, load):
    """Without a target, the server reports the measured run."""
    options = {"what_if": ["scale(family=gemm, 0.5)"], "steps": "0"}
    printed = json.loads(run("report", options, "--top", str(TOP_KERNELS))[0])
    assert json.loads(dump_measured(tk.report(load(), **options), TOP_KERNELS)) == printed
    api.client.post(f"/api/v1/jobs/{job}/ask", json=options).raise_for_status()
    work()
    reported = read_report(api, job)
    assert (reported["what_if"], reported["kernels"]) == (printed["what_if"], printed["kernels"])
    with pytest.raises(TracekitError) as refused:
        tk.predict(load(), **options)
    assert refused.value.code == "no-target"
    assert run("predict", options)[1].endswith("[no-target]\n")


def test_options_beside_predictions_are_refused(load):
    predictions = tk.predict(load(), gpu="l4")
    with pytest.raises(TracekitError) as refused:
        tk.report(predictions, host_speed=2)
    assert refused.value.code == "predictions-with-options"


def test_a_comparison_takes_steps_as_all_do(load):
    with pytest.raises(TracekitError) as refused:
        tk.compare(load(), load(), steps="last")
    assert refused.value.code == "steps-not-a-range"


def test_a_timeline_of_edits_needs_a_target(load):
    timeline = gzip.decompress(tk.export_timeline(load(), gpu="l4", batch=2))
    assert b"predicted on l4" in timeline
    with pytest.raises(TracekitError) as refused:
        tk.export_timeline(load(), what_if="scale(family=gemm, 0.5)")
    assert refused.value.code == "no-target"


def test_a_sweep_is_the_same(run, load):
    options = {"cluster": NODE, "world_size": [4, 8], "ep": [1, 4], "samples": 2}
    assert json.loads(dump_sweep(build_sweep_report(tk.sweep(load(), **options)))) == json.loads(
        run("sweep", options)[0]
    )
    with pytest.raises(TracekitError) as refused:
        tk.sweep(load(), **options | {"tp": [0]})
    assert refused.value.code == "option-value"
    assert run("sweep", options | {"tp": [0]})[1].endswith("[option-value]\n")


@pytest.mark.parametrize(("answer", "request_class"), [(tk.predict, PredictRequest), (tk.sweep, SweepRequest)])
def test_python_shows_every_option_with_its_help(answer, request_class):
    shown = inspect.signature(answer).parameters
    assert [*shown][1:] == [field.name for field in list_fields(request_class)]
    for field in list_fields(request_class):
        assert shown[field.name].default == field.default
        assert f"    {field.name}: " in answer.__doc__


def test_the_page_and_the_api_have_every_option(api, job):
    page = api.client.get(f"/jobs/{job}").text
    schema = api.client.get("/api/v1/openapi.json").json()["components"]["schemas"]["Ask"]["properties"]
    for field in list_fields(PredictRequest):
        # The server reads no file that a request names; a model's configuration is uploaded with the traces.
        expected = field.name not in ("model_config", "host_from", "indices", "prices")
        assert (f'name="{field.name}"' in page) == (field.name in schema) == expected
        assert not expected or schema[field.name]["description"]
