"""axe finds nothing on any page, in any state, light, dark or narrow; pages follow the reader's colours and clock."""

from contextlib import closing

import pytest

from tests.axe import find_barriers
from tests.web.conftest import until
from tracekit.testing import TraceBuilder

pytestmark = pytest.mark.heavy

ADDRESSES = ["", "login", "api/docs", "shard", "shard?tables=x&cluster=8xh100-sxm", "serving", "nothing"]
STATES = ["found", "done", "failed", "split", "home", "shared", "file", "comparison", "mistakes"]


@pytest.fixture(scope="module")
def page(new_page):
    with closing(new_page(timezone_id="America/New_York", locale="en-US", color_scheme="dark")) as page:
        yield page


@pytest.fixture(scope="module")
def shown(page, shared):
    """The addresses of jobs in each state, of the browser's own."""
    page.goto(shared.url)
    calls = page.request

    def begin(*contents, ask=None):
        put = f"{shared.url}/api/v1/traces/trace.json"
        uploads = [calls.put(put, data=content).json()["id"] for content in contents]
        return calls.post(f"{shared.url}/api/v1/jobs", data={"uploads": uploads, "ask": ask}).json()["id"]

    def get(job):
        return calls.get(f"{shared.url}/api/v1/jobs/{job}").json()

    builder = TraceBuilder().op("aten::mm", 0, 30, dims=[[512, 512], [512, 512]], types=["float", "float"])
    trace = builder.kernel("ampere_sgemm_64x32", 20, 100, launch=10).to_json()
    ask = {"gpu": ["h100-sxm", "l40s"], "price": ["h100-sxm=2.49", "a100-sxm-80gb=1.29"]}
    jobs = {"found": begin(trace), "done": begin(trace, ask=ask), "failed": begin(b"{}")}
    jobs["split"] = begin(trace, trace, ask=ask)
    until(lambda: all(get(job)["state"] not in ("queued", "running") for job in jobs.values()))
    parts = get(jobs["split"])["parts"]
    until(lambda: all(get(part)["state"] == "done" for part in parts))
    addresses = {state: f"/jobs/{job}" for state, job in jobs.items()}
    link = get(jobs["done"])["link"]
    pair = f"/compare?job={parts[0]}&job={parts[1]}"
    return addresses | {"home": "/", "shared": link, "file": f"{link}/report.html", "comparison": pair}


@pytest.mark.parametrize("address", ADDRESSES)
def test_nothing_keeps_people_from_a_page(page, shared, address):
    page.goto(f"{shared.url}/{address}")
    assert find_barriers(page) == []


@pytest.mark.parametrize("state", STATES)
def test_nothing_keeps_people_from_a_job(page, shared, shown, state):
    page.goto(f"{shared.url}{shown.get(state, shown['found'])}")
    if state == "mistakes":
        page.fill("[name=steps]", "last")
        page.click("text=Predict")
        page.wait_for_selector("#mistakes")
    for details in page.locator(".site details").all():
        details.evaluate("each => each.open = true")
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 900})
        assert find_barriers(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.set_viewport_size({"width": 1280, "height": 900})


def test_times_are_those_of_the_reader(page, shared, shown):
    """New York is behind UTC, which stays under the pointer and in the page's source."""
    page.goto(shared.url)
    time = page.locator("time").first
    assert time.get_attribute("title").endswith(" UTC")
    assert time.inner_text().endswith(("AM", "PM"))
    assert time.get_attribute("datetime").endswith("Z")


def test_colours_are_chosen_and_kept(page, shared):
    page.goto(shared.url)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click("#theme")
    page.goto(f"{shared.url}/shard")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert find_barriers(page) == []
    page.click("#theme")


def test_printed_pages_are_light(page, shared):
    page.goto(shared.url)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
