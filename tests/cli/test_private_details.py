"""What leaves the terminal holds nothing private; ``tracekit share`` puts a page and a redacted trace together."""

import gzip
import json
import re
import zipfile

import pytest

from tracekit.render.private_details import remove_details, shorten_path
from tracekit.testing import TraceBuilder

PRIVATE = ("acme", "Globex", "node17", "jdoe", "corp.example", "2.4937", "1.2913", "hunter2hunter2", "--price")
PRICES = ("--price", "h100-sxm=2.4937", "--price", "a100-sxm-80gb=1.2913")
FILE = "node17.corp.example_4711.1699999999123456.pt.trace.json.gz"


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace in a customer's directory whose every text names somebody."""
    builder = TraceBuilder()
    builder.metadata |= {"host_name": "node17.corp.example", "user": "jdoe", "trace_dir": "/home/jdoe/Globex"}
    for start in (0, 1000):
        builder.step(start // 1000, start, 900)
        builder.op("aten::mm", start + 10, 40, dims=[[512, 512], [512, 512]], types=["float", "float"])
        builder.kernel("ampere_sgemm_128x64_nn", start + 60, 100, launch=start + 20, grid=[8, 1, 1], block=[128, 1, 1])
        builder.op("fused_node17 password=hunter2hunter2", start + 200, 40)
        builder.kernel("/srv/acme/kernels/jdoe.cu triton_jdoe", start + 260, 20, launch=start + 210)
        builder.python("/home/jdoe/Globex/train.py(12): step", start + 5, 700)
        builder.call("cudaDeviceSynchronize", start + 720, 10)
    document = json.loads(builder.to_json())
    names = {"name": "python3 /home/jdoe/Globex/train.py", "labels": "node17"}
    document["traceEvents"].append({"ph": "M", "name": "process_name", "pid": 0, "tid": 0, "ts": 0, "args": names})
    folder = tmp_path_factory.mktemp("data") / "acme corp" / "Globex"
    folder.mkdir(parents=True)
    path = folder / FILE
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def read_texts(path):
    """Return all bytes of a file, those of packed members unpacked."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"\n".join([*map(str.encode, archive.namelist()), *map(archive.read, archive.namelist())])
    content = path.read_bytes()
    return gzip.decompress(content) if path.suffix == ".gz" else content


def list_private(content):
    return [text for text in PRIVATE if text.encode() in content]


@pytest.mark.parametrize("form", ["html", "md", "json", "xlsx", "csv", "parquet", "txt"])
def test_a_file_holds_nothing_private_unless_asked(form, run, trace, tmp_path):
    asked = ("predict", trace, "--gpu", "h100-sxm", *PRICES, "--stacks", "-q")
    code, _, err = run(*asked, "-o", tmp_path / f"out.{form}")
    assert code == 0
    assert "--with-details" in err
    written = [content for path in tmp_path.iterdir() for content in [read_texts(path)]]
    assert [list_private(content) for content in written] == [[]] * len(written)


def test_prices_of_a_file_stay_in_it(run, trace, tmp_path):
    (tmp_path / "Globex.toml").write_text(
        "date = 2026-01-01\nsource = 'acme'\n[dollars_an_hour]\nh100-sxm = 2.4937\nA100 = 1.2913\nl4 = 0.5"
    )
    asked = ("predict", trace, "--gpu", "h100-sxm", "--prices", tmp_path / "Globex.toml", "-o", tmp_path / "out.html")
    code, out, err = run(*asked)
    assert (code, "--with-details" in err) == (0, True)
    assert "$2.49" in out
    page = read_texts(tmp_path / "out.html")
    assert list_private(page) == []
    assert not re.search(rb"[$][0-9]", re.sub(rb"<script.*?</script>|<style.*?</style>", b"", page, flags=re.S))


@pytest.mark.parametrize("form", ["html", "md", "json"])
def test_a_file_with_details_and_the_terminal_hold_everything(form, run, trace, tmp_path):
    asked = ("predict", trace, "--gpu", "h100-sxm", *PRICES, "-q")
    code, out, err = run(*asked, "-o", tmp_path / f"out.{form}", "--with-details")
    assert (code, err) == (0, "")
    assert str(trace) in read_texts(tmp_path / f"out.{form}").decode().replace("\\", "")
    assert "".join(str(trace).split()) in "".join(out.split())
    assert json.loads(run(*asked, "--json")[1])["targets"][0]["dollars_per_1000_steps"] > 0


def test_other_commands_files_hold_nothing_private(run, trace, tmp_path):
    cluster = ("--cluster", "8xh100-sxm", "--price", "h100-sxm=2.4937")
    assert run("sweep", trace, *cluster, "--samples", 4, "-o", tmp_path / "sweep.md")[0] == 0
    assert run("compare", trace, trace, "-o", tmp_path / "compare.html")[0] == 0
    assert run("report", trace, "--stacks", "-o", tmp_path / "report.html")[0] == 0
    for name in ("sweep.md", "compare.html", "report.html"):
        assert list_private(read_texts(tmp_path / name)) == []


def test_share_puts_page_and_redacted_trace_together(run, trace, tmp_path):
    code, out, err = run("share", trace, "--gpu", "h100-sxm", *PRICES, "-o", tmp_path / "shared.zip")
    assert (code, out) == (0, "")
    assert "report.html, trace.redacted.json.gz" in err
    with zipfile.ZipFile(tmp_path / "shared.zip") as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
        (tmp_path / "trace.redacted.json.gz").write_bytes(contents["trace.redacted.json.gz"])
    assert list_private(contents["report.html"]) == []
    assert list_private(gzip.decompress(contents["trace.redacted.json.gz"])) == []
    redacted, measured = (
        json.loads(run("predict", path, "--gpu", "h100-sxm", "--json", "-q")[1])["targets"][0]["step_time_us"]
        for path in (tmp_path / "trace.redacted.json.gz", trace)
    )
    assert redacted == measured


def test_share_writes_a_folder_and_overwrites_only_if_told(run, trace, tmp_path):
    asked = ("share", trace, "-q", "-o", tmp_path / "shared")
    assert run(*asked)[0] == 0
    assert sorted(path.name for path in (tmp_path / "shared").iterdir()) == ["report.html", "trace.redacted.json.gz"]
    code, _, err = run(*asked)
    assert code == 1
    assert "[output-exists]" in err
    assert run(*asked, "--force")[0] == 0


def test_share_refuses_what_it_could_not_clean(run, trace, tmp_path, monkeypatch):
    monkeypatch.setattr("tracekit.render.private_details.remove_details", lambda report, names: report)
    code, _, err = run("share", trace, "-q", "-o", tmp_path / "shared.zip")
    assert code == 1
    assert "[shared-file-private]" in err
    assert not (tmp_path / "shared.zip").exists()


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/data/acme corp/trace.json", "trace.json"),
        ("runs\\acme\\trace.json", "trace.json"),
        ("runs/acme/", "acme"),
        ("s3://bucket/acme/trace.json?key=a/b", "trace.json"),
        (f"x/{FILE}", "worker_4711.1699999999123456.pt.trace.json.gz"),
        ("run.pt.trace.json", "run.pt.trace.json"),
    ],
)
def test_a_path_is_shortened_to_its_last_part(path, shown):
    assert shorten_path(path) == shown


def test_what_is_no_path_stays():
    for text in ("void at::native::(anonymous namespace)::k<float, 4>(int)", "a/b tokens/s", "nn.Module: Linear_0"):
        assert remove_details((text,)) == (text,)
    assert remove_details(("read from runs/acme/x.json, by me@corp.example, https://corp.example",)) == (
        "read from x.json, by redacted, redacted",
    )
