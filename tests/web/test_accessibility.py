"""axe finds nothing on any page, light, dark or narrow; pages follow the reader's colours and clock."""

from contextlib import closing

import pytest

from tests.axe import find_barriers


@pytest.fixture(scope="module")
def page(new_page):
    with closing(new_page(timezone_id="America/New_York", locale="en-US", color_scheme="dark")) as page:
        yield page


@pytest.mark.parametrize("address", ["", "login", "api/docs", "shard", "shard?tables=x&cluster=8xh100-sxm", "nothing"])
def test_nothing_keeps_people_from_a_page(page, shared, address):
    page.goto(f"{shared.url}/{address}")
    assert find_barriers(page) == []


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
