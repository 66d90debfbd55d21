"""Asking on the page: what is refused, how that is said, and what stays entered."""

import re

import pytest

from tests.layers import NODE
from tests.prediction.test_experts import Model
from tests.web.conftest import list_complaints
from tracekit.testing import TraceBuilder
from tracekit.web.ask import Ask, name_field
from tracekit.web.errors import WebError


@pytest.fixture
def ask(api, work, make_trace):
    """Asks on the page of a job that has been looked at; gives the page that is shown then."""
    api.client.get("/")
    job = api.begin(api.put(make_trace()))
    work()

    def send(does_it=False, **entered):
        answer = api.client.post(f"/jobs/{job}/ask", data=entered)
        if does_it:
            work()
            answer = api.client.get(f"/jobs/{job}")
        return answer

    send.job = job
    return send


def said(page):
    """What the page says is wrong."""
    return " ".join(list_complaints(page))


def test_what_was_entered_stays_when_some_of_it_is_refused(ask, api):
    page = ask(gpu=["l4", "t4"], source_gpu="h1000", cluster=["8xl40s", ""], price="l4=1, t4=.5", batch="2.5", dp="2")
    assert page.status_code == 400
    assert "unknown GPU" in said(page)
    for chosen in ('value="l4" checked', 'value="t4" checked', 'value="h1000"', 'value="8xl40s"', 'value="2.5"'):
        assert chosen in page.text
    assert re.search(r'name="price"[^>]*>l4=1, t4=.5<', page.text)
    assert re.search(r'name="dp"[^>]* value="2"', page.text)
    assert api.job(ask.job)["ask"] is None
    again = api.client.get(f"/jobs/{ask.job}/ask")
    assert (again.status_code, again.headers["location"]) == (303, f"/jobs/{ask.job}")


def test_all_mistakes_are_said_at_once_beside_their_fields(ask):
    page = ask(gpu=["l4"], dp="x", batch="-1", steps="last", what_if="speed-up(2)", **{"price[l4]": "cheap"})
    wrong = set(re.findall(r'id="mistake-([^"]+)"', page.text))
    assert wrong == {"dp", "batch", "steps", "what_if", "price[l4]"}
    for name in wrong:
        assert re.search(rf'aria-invalid="true" aria-describedby="mistake-{re.escape(name)}"', page.text)
    assert "5 fields need another look" in page.text
    assert re.search(r'name="price\[l4\]"[^>]* value="cheap"', page.text)


def test_prices_stand_beside_their_gpus(ask, api):
    """A box counts while its GPU is chosen; the boxes are filled in again from what was asked."""
    boxes = {"price[l4]": "0.8", "price[t4]": "9", "price[source]": "1.29", "cluster_price": ["2.5", ""]}
    assert ask(gpu=["l4"], cluster=["8xh100-sxm", ""], **boxes).status_code == 303
    asked = api.job(ask.job)["ask"]
    assert asked["price"] == ["l4=0.8", "a100-sxm-80gb=1.29", "h100-sxm=2.5"]
    assert asked["source_gpu"] is None
    page = api.client.get(f"/jobs/{ask.job}").text
    assert "choose" not in page  # it waits


def test_what_was_asked_stands_in_the_form_again(ask, api):
    """However it was written: names in any spelling, dollars with their sign, a group of GPUs."""
    ask(does_it=True, gpu=["L4", "consumer"], price="L4=$0.80, A100=1.29, 8xh100-sxm=20", rank_by="dollars")
    page = api.client.get(f"/jobs/{ask.job}").text
    for chosen in ('value="l4" checked', 'value="consumer" checked'):
        assert chosen in page
    assert re.search(r'name="price\[l4\]"[^>]* value="\$0.80"', page)
    assert re.search(r'name="rank_by"[^>]* value="dollars"', page)


def test_a_price_needs_the_gpu_of_the_trace(api, work):
    builder = TraceBuilder(None).op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    api.client.get("/")
    job = api.begin(api.put(builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10).to_json()))
    work()
    page = api.client.post(f"/jobs/{job}/ask", data={"gpu": "l4", "price[source]": "2"})
    assert "its name isn't known" in said(page)
    assert 'id="mistake-source_gpu"' in page.text


def test_no_name_of_a_field_reads_a_file(ask, tmp_path):
    secret = tmp_path / "lab.toml"
    secret.write_text('name = "secret"')
    page = ask(cluster=[str(secret), ""], gpu=[str(secret)], **{"cluster_price": ["1", ""], "price[source]": "1"})
    assert page.status_code == 400
    assert "the server reads no files" in said(page)


@pytest.mark.parametrize(
    ("entered", "why"),
    [
        ({"gpu": "h1000"}, "Did you mean h100-sxm"),
        ({"cluster": "8xh1000"}, "Unknown cluster '8xh1000'"),
        ({"cluster": "superpod"}, "/api/v1/clusters list those with names"),
        ({"source_gpu": "p5"}, "Its GPU is h100-sxm; “Clusters” p5 means all of it"),
        ({"gpu": "l4", "price": "l4=1, L4=2"}, "l4 has two prices, 1 and 2 dollars"),
        ({"gpu": "l4", "steps": "last"}, "is no step"),
        ({"gpu": "l4", "batch": "1e9"}, "is no batch"),
        ({"gpu": "l4", "world_size": "many"}, "world size can't be 'many'. Give a whole number, 1 to"),
        ({"gpu": "l4", "what_if": "speed-up(2)"}, "There is no what-if edit"),
    ],
)
def test_a_refusal_names_nothing_of_a_command_line(ask, entered, why):
    page = ask(**entered)
    assert page.status_code == 400
    assert why in said(page)
    assert not re.search(r"tracekit |--[a-z]|\.toml", said(page))


def test_what_turns_out_later_is_said_in_the_pages_words_beside_the_earlier_report(ask):
    assert "here:" not in ask(does_it=True, gpu="l4").text
    page = ask(does_it=True, cluster=NODE, micro_batches=4)
    assert "Give “Pipeline parallel (PP) stages” too." in said(page)
    assert "What was asked before is still here:" in page.text
    page = ask(does_it=True, cluster=NODE, source_cluster="8xt4")
    assert "“Cluster of the trace” 8xt4 has t4, the trace a100-sxm-80gb" in said(page)


def test_a_target_that_can_not_be_predicted_leaves_the_others_their_report(ask, api):
    page = ask(does_it=True, gpu="l4", cluster=[NODE, "4xl40s"], world_size=8)
    assert "Not predicted on l4: 8 ranks = dp 8 on l4: the links between them aren't known" in said(page)
    assert "Not predicted on 4xl40s: 8 ranks = dp 8 don't fit" in said(page)
    assert "“World size (GPUs in use)” 4" in said(page)
    report = api.client.get(api.job(ask.job)["reports"]["json"]).json()
    assert [target["cluster"] for target in report["targets"]] == [NODE]
    assert (report["warnings"][0]["code"], report["warnings"][0]["values"]["target"]) == (
        "target-not-predicted",
        "l4",
    )
    page = ask(does_it=True, gpu="l4", cluster=[NODE, "4xl40s"], world_size=8, dp=3)
    assert "8 ranks can't be laid out" in said(page)
    assert "What was asked before" in page.text
    assert 'class="error"' not in ask(does_it=True, gpu="l4").text


def test_the_report_on_the_page_names_its_fields(ask, api):
    ask(does_it=True, gpu="l4")
    reports = api.job(ask.job)["reports"]
    assert "“Host (CPU) of the target” same is a CPU like the trace" in api.client.get(reports["html"]).text
    assert "“Host speed”" not in api.client.get(reports["json"]).text


def test_gpus_in_use(api, work, tmp_path, tracekit_json):
    model = Model(1).builder
    job = api.begin(api.put(model.to_json()), ask={"cluster": [NODE], "world_size": 4})
    work()
    model.save(tmp_path / "trace.json")
    printed = tracekit_json(tmp_path, "predict", "trace.json", "--cluster", NODE, "--world-size", "4")
    assert api.client.get(f"/api/v1/jobs/{job}/report.json").json() == printed
    assert printed["targets"][0]["layout"]["world_size"] == 4


def test_the_gpu_that_the_trace_tells_is_not_asked_for(ask, api):
    """The page fills it in; the report still says by what the trace's GPU is known."""
    ask(does_it=True, gpu="l4", source_gpu="a100-sxm-80gb")
    assert api.job(ask.job)["ask"]["source_gpu"] is None
    ask(does_it=True, gpu="l4", source_gpu="h100-sxm")
    assert re.search(r'name="source_gpu"[^>]* value="h100-sxm"', ask(gpu="l4", source_gpu="h100-sxm", steps="x").text)
    ask(does_it=True, gpu="t4", source_gpu="h100-sxm")
    assert api.job(ask.job)["found"]["source"]["gpu"] == "h100-sxm"


@pytest.mark.parametrize("address", ["/jobs/abc", "/r/abc", "/compare?job=abc&job=def"])
def test_an_address_that_is_cut_short(api, address):
    answer = api.client.get(address)
    assert answer.status_code == 404
    assert said(answer).strip().startswith("There is no such page.")


@pytest.mark.parametrize(
    ("option", "on_the_page"),
    [
        ("tp", "“Tensor parallel (TP)”"),
        ("source-gpu", "“GPU of the trace”"),
        ("no-such-option", "the command line's --no-such-option"),
    ],
)
def test_words_of_the_page(option, on_the_page):
    assert name_field(option) == on_the_page


def test_the_cluster_of_the_trace_tells_the_gpu_that_the_trace_does_not(api, work):
    builder = TraceBuilder(None).op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    trace = builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10).to_json()
    ask = {"gpu": ["l4"], "source_cluster": "8xt4", "price": ["t4=0.5"]}
    job = api.begin(api.put(trace), ask=ask)
    work()
    source = api.client.get(f"/api/v1/jobs/{job}/report.json?details=1").json()["source"]
    assert source["gpu"] == "t4"
    assert source["dollars_per_1000_steps"] > 0


def test_blanks_around_what_is_entered_are_left_out(ask, api):
    assert ask(gpu=" t4 ", steps="  ").status_code == 303
    kept = api.job(ask.job)["ask"]
    assert (kept["gpu"], kept.get("steps")) == (["t4"], None)


def test_a_sample_that_there_is_not_is_not_found(api):
    api.client.get("/")
    assert api.client.post("/samples/nothing").status_code == 404


def test_no_log_of_gradient_norms_is_read_on_the_server():
    with pytest.raises(WebError) as failure:
        Ask(samples_to_run="1M", critical_batch="/etc/norms.csv")
    assert failure.value.code == "server-reads-no-files"
    assert Ask(samples_to_run="1M", critical_batch="2k").noise_scale == 2000
