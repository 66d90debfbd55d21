"""A trace, a GPU, a cluster and files whose every text is hostile, through every verb and every form of output."""

import csv
import io
import json
import re
import sys
import zipfile
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from tests.hostile_texts import PAYLOAD, write_hostile_files
from tracekit.escape import BLANKS, UNSAFE, Code, to_cell, to_csv_cell, to_line, to_markdown
from tracekit.messages import traces

ACTING = re.compile(f"{UNSAFE}|[\v\f\r\x85\u2028\u2029]")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_hostile_files(tmp_path_factory.mktemp("hostile"))


def check_terminal(out, err):
    assert not ACTING.search(out)
    assert not ACTING.search(err)
    assert "bug in tracekit" not in err
    assert "\n# head" not in out + err


VERBS = {
    "info": ("info", "front", "-v", "--stacks"),
    "info of the end": ("info", "end"),
    "info of several": ("info", "end", "other"),
    "report": ("report", "end", "-v", "--stacks", "--what-if", "scale(name='.*sgemm.*', 0.5)"),
    "report of the front": ("report", "front", "--top", "100"),
    "predict": ("predict", "end", "-v", "--gpu", "gpu", "--gpu", "h100-sxm", "--cluster", "cluster"),
    "predict of the front": ("predict", "front", "--gpu", "h100-sxm", "--top", "100"),
    "doctor": ("doctor", "end"),
    "doctor of the front": ("doctor", "front"),
    "compare": ("compare", "front", "end"),
    "sweep": ("sweep", "end", "--cluster", "cluster"),
    "gpus": ("gpus", "gpu"),
    "clusters": ("clusters", "cluster"),
    "cache": ("cache",),
    "unknown GPU": ("gpus", PAYLOAD),
    "unknown cluster": ("clusters", PAYLOAD),
    "unknown GPU for a prediction": ("predict", "end", "--gpu", PAYLOAD),
    "unknown step": ("info", "end", "--steps", PAYLOAD),
    "unknown rule": ("info", "end", "--without-rule", PAYLOAD),
    "unknown edit": ("report", "end", "--what-if", PAYLOAD),
    "edit of nothing": ("report", "end", "--what-if", "remove(name='\x1b[2J')"),
    "unknown price": ("predict", "end", "--gpu", "h100-sxm", "--price", PAYLOAD),
    "unknown option": ("info", "end", f"--{PAYLOAD}"),
    "wrong number": ("info", "end", "--ranks", PAYLOAD),
    "wrong size": ("info", "end", "--memory", PAYLOAD),
    "unknown format": ("report", "end", "--format", PAYLOAD),
    "unknown suffix": ("report", "end", "-o", f"x.{PAYLOAD[:20]}"),
    "unknown verb": (PAYLOAD,),
    "no such file": ("info", PAYLOAD),
    "no such calibration": ("calibrate", "--remove", PAYLOAD),
    "calibration of nothing": ("calibrate", "end"),
    "view of nothing": ("view", PAYLOAD, "--no-open"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_acts_on_a_terminal(verb, files, run):
    code, out, err = run(*(files.get(word, word) for word in VERBS[verb]))
    assert code in (0, 1, 2)
    check_terminal(out, err)


@pytest.mark.parametrize("verb", ["info", "report", "predict", "doctor", "compare", "sweep"])
def test_json_keeps_every_text_and_acts_on_no_terminal(verb, files, run):
    code, out, err = run(*(files.get(word, word) for word in VERBS[verb]), "--json")
    assert code == 0
    check_terminal(out, err)
    assert json.loads(out)["schema_version"] == 1


def test_the_name_of_a_file_nearby_is_shown_as_a_line(files, run):
    code, out, err = run("info", str(files["end"])[:-1])
    assert (code, err.count("\n")) == (1, 1)
    assert "Did you mean" in err
    check_terminal(out, err)


class _Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


def check_html(text):
    elements = _Elements(text).found
    assert not [one for one in elements if one[0] == "img" and one[1].get("src") == "x"]
    assert not [one for one in elements if any(name.startswith("on") for name in one[1])]
    assert not ACTING.search(text)


def check_markdown(text):
    kinds = {token.type for top in MarkdownIt("commonmark").enable("table").parse(text) for token in flatten(top)}
    assert kinds & {"heading_open", "table_open"}
    assert not kinds & {"html_inline", "html_block", "link_open", "image"}
    assert not ACTING.search(text)
    rows = [line for line in text.splitlines() if line.startswith("|")]
    tables = re.split(r"\n(?!\|)", "\n".join(line if line.startswith("|") else "" for line in text.splitlines()))
    for table in (part.strip("\n").splitlines() for part in tables if "|" in part):
        assert len({len(re.findall(r"(?<!\\)\|", row)) for row in table}) == 1
    assert rows


def flatten(token):
    yield token
    for child in token.children or ():
        yield from flatten(child)


def check_csv(text):
    rows = list(csv.reader(io.StringIO(text)))
    assert len({len(row) for row in rows}) == 1
    cells = [cell for row in rows for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+@\t\r|%" and cell]
    assert all(re.fullmatch(r"-[\d.e+-]+", cell) for cell in cells if cell.startswith("-"))
    assert not ACTING.search(text.replace("\r\n", "\n"))


def check_workbook(content):
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        sheets = [book.read(name).decode() for name in book.namelist() if name.startswith("xl/worksheets/sheet")]
        strings = book.read("xl/sharedStrings.xml").decode()
    for sheet in sheets:
        assert "<f>" not in sheet
        assert 't="e"' not in sheet
        assert "<hyperlink" not in sheet
    assert not [text for text in re.findall(r"<t[^>]*>([^<]*)</t>", strings) if len(text) > 5 * 32_767]
    assert "HYPERLINK" in strings


CHECKS = {"html": check_html, "md": check_markdown, "csv": check_csv, "xlsx": check_workbook}
FORMS = ("html", "json", "md", "xlsx", "parquet", "csv", "txt")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("trace", ["front", "end"])
def test_reports_take_texts_for_data(trace, form, files, run, tmp_path):
    output = tmp_path / f"x.{form}"
    places = ("--gpu", files["gpu"], "--gpu", "h100-sxm", "--cluster", files["cluster"])
    edit = "scale(name='.*img src=x.*', 0.5)"
    code, out, err = run("predict", files[trace], *places, "--what-if", edit, "--stacks", "-o", output)
    assert code == 0
    check_terminal(out, err)
    content = output.read_bytes()
    check = CHECKS.get(form)
    if check:
        check(content if form == "xlsx" else content.decode())
    elif form == "json":
        check_terminal(content.decode(), "")
    elif form == "txt":  # its lines break anywhere, before the text's "# head", too
        assert not ACTING.search(content.decode())


@pytest.mark.parametrize("form", ["json", "html", "txt"])
def test_comparisons_take_texts_for_data(form, files, run, tmp_path):
    output = tmp_path / f"x.{form}"
    assert run("compare", files["front"], files["end"], "-o", output)[0] == 0
    check = check_html if form == "html" else lambda text: check_terminal(text, "")
    check(output.read_text())


@pytest.mark.parametrize("form", ["csv", "md", "xlsx", "json", "txt"])
def test_sweeps_take_texts_for_data(form, files, run, tmp_path):
    output = tmp_path / f"x.{form}"
    assert run("sweep", files["end"], "--cluster", files["cluster"], "-o", output)[0] == 0
    if form in ("csv", "md"):
        CHECKS[form](output.read_text())
    elif form != "xlsx":
        check_terminal(output.read_text(), "")


@pytest.mark.parametrize("form", ["csv", "json"])
def test_exports_take_texts_for_data(form, files, run, tmp_path):
    output = tmp_path / f"x.{form}"
    code, out, err = run("export", files["front"], "--gpu", "h100-sxm", "-o", output)
    assert code == 0
    check_terminal(out, err)
    if form == "csv":
        check_csv(output.read_text())
    else:
        assert json.loads(output.read_text())["traceEvents"]


def test_a_redacted_copy_says_what_is_removed_as_lines(files, run, tmp_path):
    code, out, err = run("redact", files["end"], "-o", tmp_path / "shared.json")
    assert code == 0
    check_terminal(out, err)


def test_calibrations_of_hostile_traces_are_shown_as_lines(files, run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    check_terminal(*run("calibrate", "--trace", files["end"], "--gpu", files["gpu"])[1:])
    directory = tmp_path / "tracekit" / "calibrations"
    directory.mkdir(parents=True, exist_ok=True)
    stored = {"format": 1, "gpu": "l4", "origin": PAYLOAD, "date": PAYLOAD, "software": PAYLOAD}
    kernel = {"family": "gemm", "dtype": "fp16", "m": 64.0, "n": 64.0, "k": 64.0, "batch": 1.0, "measured_us": 5.0}
    (directory / "l4.json").write_text(json.dumps(stored | {"kernels": [kernel]}))
    code, out, err = run("calibrate", "--list")
    assert code == 0
    check_terminal(out, err)


def test_a_bug_is_reported_without_acting(run, monkeypatch, tmp_path):
    def fail(*args, **options):
        raise RuntimeError(PAYLOAD)

    monkeypatch.setattr("tracekit.ingest.load", fail)
    code, out, err = run("info", tmp_path)
    assert code == 70
    assert not ACTING.search(out + err)


def test_escaped_texts_hold_nothing_that_acts():
    text = "".join(map(chr, range(sys.maxunicode + 1)))
    assert not re.search(f"{UNSAFE}|{BLANKS}", to_line(text))
    assert not ACTING.search(to_cell(text))
    assert to_line(to_line(text)) == to_line(text)


@pytest.mark.parametrize("text", ["``", "a`b``c", "`", "|", "a|b", "\\|", " ", "", "<img>", "\n# x"])
def test_code_is_shown_as_it_is(text):
    [paragraph] = [t for t in MarkdownIt("commonmark").parse(f"x{to_markdown(Code(text))}") if t.type == "inline"]
    shown = "".join(child.content for child in paragraph.children)
    assert shown.removeprefix("x").strip() == to_line(text).strip()


TEXTS = ("*a* _b_ [c](d) <e> `f` #g\n- h", "1. a", "2) a", "- a", "+ b", "# c", "http://x.y", "&lt;", "\\*")


@pytest.mark.parametrize("text", TEXTS)
def test_text_is_shown_as_it_is(text):
    tokens = MarkdownIt("commonmark").parse(to_markdown(text))
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"]
    assert "".join(child.content for child in tokens[1].children) == to_line(text)


@pytest.mark.parametrize("text", ["=1", "+1", "-1", "@x", "\t=1", "\r=1", " =1", "\n@x", "|x", "%x"])
def test_formulas_become_texts(text):
    assert to_csv_cell(text).startswith("'")


def test_values_of_messages_are_escaped_and_their_own_words_are_not():
    message = traces.FILE_NAME_MISTYPED(path="a`<b>`\x1b", similar=["`c`", "d|e"])
    assert message.render(escape=to_markdown).startswith("a\\`\\<b\\>\\`�: no such file.")
    assert message.values["path"] == "a`<b>`\x1b"
    damaged = traces.FILE_DAMAGED(path="x", damage=traces.FILE_EMPTY(path="<y>"))
    assert "\\<y\\>" in damaged.render(escape=to_markdown)
    assert "\\\\" not in damaged.render(escape=to_markdown)
