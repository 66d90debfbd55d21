"""The page in a real browser: upload, progress, report, downloads, deletion."""

import gzip
import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.axe import find_barriers

pytestmark = pytest.mark.heavy

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "synthetic_transformer_inference.json.gz"


@pytest.fixture
def page(new_page):
    """Somebody else's browser each time."""
    with closing(new_page()) as page:
        page.problems = []
        page.on("console", lambda message: message.type == "error" and page.problems.append(message.text))
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        yield page


def uploads(server):
    return set((server.settings.data / "files" / "uploads").glob("*"))


def test_from_a_dropped_trace_to_a_deleted_report(page, shared, tmp_path):
    server, before, asked = shared, uploads(shared), []
    page.on("request", lambda request: asked.append(request.url))
    plain = tmp_path / "my <trace>.json"
    plain.write_bytes(gzip.decompress(SAMPLE.read_bytes()))
    page.goto(server.url)
    page.set_input_files("#files", plain)
    page.wait_for_selector("[data-state=running], [data-state=found]")
    page.wait_for_selector("[data-state=found]")
    assert page.inner_text(".name") == "my <trace>.json"
    assert "a100-sxm-80gb" in page.inner_text(".found")
    (stored,) = uploads(server) - before
    assert stored.stat().st_size < plain.stat().st_size / 4
    assert gzip.decompress(stored.read_bytes()) == plain.read_bytes()

    page.fill("#gpu-search", "hopper")
    shown = page.locator(".chip:visible").all_inner_texts()
    assert len(shown) > 5
    assert all(text.startswith(("h", "gh")) for text in shown)
    page.check("input[value=h100-sxm]")
    page.fill("[name='price[h100-sxm]']", "2.49")
    assert page.input_value("[name=source_gpu]") == "a100-sxm-80gb"
    page.click("text=Predict")
    page.wait_for_selector("[data-state=done]")
    assert "H100" in page.inner_text(".report h1")
    assert page.locator("iframe").count() == 0
    assert page.input_value("[name='price[h100-sxm]']") == "2.49"

    forms = page.locator(".result a:visible").all()
    assert len(forms) >= 4
    for form in forms:
        with page.expect_download() as download:
            form.click()
        assert Path(download.value.path()).stat().st_size > 100
        if download.value.suggested_filename == "report.json":
            assert json.loads(Path(download.value.path()).read_text())["targets"][0]["gpu"] == "h100-sxm"
    link = page.input_value("#link")
    assert link.startswith(f"{server.url}/r/")

    page.on("dialog", lambda dialog: dialog.accept())
    page.click("text=Delete now")
    page.wait_for_selector("#drop")
    assert server.client.get(link).status_code == 404
    assert uploads(server) == before
    assert page.problems == []
    assert all(url.startswith((f"{server.url}/", "data:", "blob:")) for url in asked)


def test_what_is_on_its_way_when_another_file_fails_is_not_sent_twice(page, shared, tmp_path):
    held = []
    page.route("**/api/v1/uploads", lambda route: held.append(route))
    page.goto(shared.url)
    small, large = tmp_path / "small.json.gz", tmp_path / "large.json.gz"
    small.write_bytes(gzip.compress(b"{}"))
    large.write_bytes(SAMPLE.read_bytes())
    page.evaluate("limits.bytes = 1000")
    page.set_input_files("#files", [large, small])
    page.wait_for_selector("#trouble")
    while not held:
        page.wait_for_timeout(50)
    assert page.is_hidden("#resume")
    held[0].continue_()
    page.wait_for_selector("#resume")
    page.click("#resume")
    assert page.inner_text("#trouble").startswith("large.json.gz is larger than")
    assert len(held) == 1


def test_samples_ranks_mistakes_and_two_compared(page, shared, tmp_path, make_trace):
    server = shared
    page.goto(server.url)
    page.click("text=Try synthetic transformer inference")
    page.wait_for_selector("[data-state=found]")
    page.click("text=Predict")
    page.wait_for_selector("[data-state=done]")

    folder = tmp_path / "job"
    folder.mkdir()
    for rank in (0, 1):
        (folder / f"rank{rank}.json").write_bytes(make_trace(rank))
    (folder / "config.json").write_text("{}")
    (folder / "notes.txt").write_text("not a trace")
    page.goto(server.url)
    page.set_input_files("#folder", folder)
    page.wait_for_selector("[data-state=found]")
    assert "2 of 2" in page.inner_text(".found")
    assert page.inner_text(".name") == "job (3 files)"
    assert page.inner_text("#not-sent") == "1 file not sent, no trace by name: job/notes.txt."
    assert page.is_visible("text=1 file left out, not one rank's PyTorch profiler trace: config.json")
    page.check("input[value=l40s]")
    page.click("text=Predict")
    page.wait_for_selector("[data-state=done]")

    page.goto(server.url)
    for box in page.locator("[name=job]").all():
        box.check()
    page.click("text=Compare the two chosen")
    assert "different programs" in page.inner_text(".report h1")
    page.wait_for_load_state()  # the list asks anew once its script is there
    page.select_option("[name=of_b]", "l40s")
    page.wait_for_url("**of_b=l40s**")
    assert "predicted for l40s" in page.inner_text(".report .cards")

    page.goto(server.url)
    for _ in range(9):  # the name, five links, the colours, then both ways to choose
        page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "folder"
    page.set_input_files("#files", {"name": "x.json", "mimeType": "text/plain", "buffer": b'{"nodes": []}'})
    page.wait_for_selector("[data-state=failed]")
    assert "x.json" in page.inner_text("[role=alert]")
    assert "traceEvents" in page.inner_text("[role=alert]")
    assert not page.is_visible(".choose")
    page.click("text=Upload other traces")
    page.wait_for_selector("#drop")
    assert page.problems == []


def test_an_upload_that_breaks_is_resumed(page, shared, tmp_path, make_trace):
    source = tmp_path / "trace.json.gz"
    source.write_bytes(gzip.compress(make_trace()))
    broken = []

    def break_once(route):
        if route.request.method == "PATCH" and not broken:
            broken.append(True)
            route.abort()
        else:
            route.continue_()

    page.goto(shared.url)
    page.route("**/api/v1/uploads/*", break_once)
    page.set_input_files("#files", source)
    page.wait_for_url("**/jobs/*")
    assert broken


def test_by_keyboard_alone(page, shared, make_trace):
    """A search's Enter chooses the one GPU that is left and sends nothing; what is folded stays so meanwhile."""
    page.goto(shared.url)
    page.set_input_files("#files", {"name": "x.json", "mimeType": "text/plain", "buffer": make_trace()})
    page.wait_for_selector("[data-state=found]")
    address = page.url
    page.focus("#gpu-search")
    page.keyboard.type("a100")
    page.keyboard.press("Enter")
    assert not page.locator("[name=gpu]:checked").count()
    page.fill("#gpu-search", "mi300x")
    page.keyboard.press("Enter")
    assert [box.get_attribute("value") for box in page.locator("[name=gpu]:checked").all()] == ["mi300x"]
    assert (page.url, page.get_attribute("#panel", "data-state")) == (address, "found")
    page.focus("[name='price[mi300x]']")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    page.wait_for_selector(".progress")
    page.focus("#trace-missing")
    unfolded = page.evaluate("document.activeElement.parentElement.open")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-state=done]")
    assert page.evaluate("document.activeElement.parentElement.open") is not unfolded
    assert page.evaluate("document.activeElement.id") == "trace-missing"
    assert page.problems == []


def test_a_form_says_all_that_is_wrong_without_a_reload(page, shared, make_trace):
    page.goto(shared.url)
    page.set_input_files("#files", {"name": "x.json", "mimeType": "text/plain", "buffer": make_trace()})
    page.wait_for_selector("[data-state=found]")
    page.evaluate("window.kept = true")
    page.check("input[value=h100-sxm]")
    page.fill("[name='price[h100-sxm]']", "cheap")
    page.fill("[name=steps]", "last")
    page.click("text=Predict")
    page.wait_for_selector("#mistakes")
    assert page.locator(".mistake").count() == 2
    assert page.evaluate("document.activeElement.id") == "mistakes"
    assert (page.input_value("[name=steps]"), page.evaluate("window.kept")) == ("last", True)
    page.click("#mistakes a >> text=Steps")
    assert page.evaluate("document.activeElement.name") == "steps"
    page.keyboard.press("Control+A")
    page.keyboard.press("Delete")
    page.fill("[name='price[h100-sxm]']", "2.49")
    page.click("text=Predict")
    page.wait_for_selector("[data-state=done]")
    assert page.evaluate("window.kept")


def test_a_report_has_addresses_within_and_sliders(page, shared):
    """Each setting of the sliders is a report with an address of its own; back leads to the one before."""
    page.goto(shared.url)
    page.click("text=Try synthetic transformer inference")
    page.wait_for_selector("[data-state=found]")
    page.check("input[value=h100-sxm]")
    page.click("text=Predict")
    page.wait_for_selector("[data-state=done]")
    first = page.url
    page.click(".report nav a[href='#kernels']")
    assert page.url == f"{first}#kernels"
    page.goto(f"{page.input_value('#link')}#kernels")
    assert abs(page.locator("#kernels").bounding_box()["y"]) < 300
    assert page.locator("#kernel-table tbody tr").count()
    assert page.locator("#adjust [type=range]").count() == 0
    assert page.is_visible("text=works on this machine only")

    page.goto(first)
    page.evaluate("window.kept = true")
    assert page.inner_text("#adjust output >> nth=0") == "1"
    page.fill("#adjust [name=batch]", "1")
    assert page.inner_text("#adjust output >> nth=0") == "2"
    page.wait_for_selector("#recomputing progress")
    page.wait_for_url(lambda url: url != first)
    assert page.input_value("#adjust [name=batch]") == "1"
    assert page.evaluate("window.kept")
    assert find_barriers(page) == []
    page.reload()
    assert page.input_value("#adjust [name=batch]") == "1"
    page.go_back()
    page.wait_for_selector("#adjust output:has-text('1')")
    assert page.url == first
    assert page.problems == []


def test_an_upload_without_a_connection_says_so_and_goes_on(page, shared, tmp_path, make_trace):
    source = tmp_path / "trace.json.gz"
    source.write_bytes(gzip.compress(make_trace()))
    page.goto(shared.url)
    page.context.set_offline(True)
    page.set_input_files("#files", source)
    page.wait_for_selector("#resume")
    assert page.inner_text("#trouble").startswith("This computer is offline.")
    assert page.inner_text("#list .broken span:last-child") == "interrupted"
    page.context.set_offline(False)
    page.wait_for_url("**/jobs/*")


def test_pages_work_without_scripts(new_page, shared, make_trace):
    """All but uploads, which take scripts or the API."""
    with closing(new_page(java_script_enabled=False)) as page:
        page.goto(shared.url)
        page.click("text=Try synthetic transformer inference")
        while page.locator("[data-state=found]").count() == 0:
            page.reload()
        page.check("input[value=h100-sxm]")
        page.fill("[name='price[h100-sxm]']", "2.49")
        page.fill("[name=steps]", "last")
        page.click("text=Predict")
        assert "is no step" in page.inner_text("#mistake-steps")
        assert page.input_value("[name='price[h100-sxm]']") == "2.49"
        page.fill("[name=steps]", "")
        page.click("text=Predict")
        while page.locator("[data-state=done]").count() == 0:
            page.reload()
        assert page.is_visible("#target-table")
        assert page.is_visible("footer.job time:text('UTC')")


@pytest.mark.parametrize("width", [390, 768])
def test_the_first_page_is_no_wider_than_its_screen(page, shared, width):
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(shared.url)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
