"""Draw the pictures of the web page in docs/: what was found, and a report. Needs Chromium."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Error, Page, sync_playwright

DOCS = Path(__file__).parents[1]
SAMPLE = "text=Try synthetic transformer train"
SIZE = {"width": 1280, "height": 1000}


def main() -> None:
    """Write docs/web_found.png and docs/web_report.png."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with TemporaryDirectory() as data, sync_playwright() as driver:
        command = [sys.executable, "-m", "tracekit", "serve", "--port", str(port), "--data", data]
        server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            draw(browser.new_page(viewport=SIZE), f"http://127.0.0.1:{port}")
            browser.close()
        finally:
            server.terminate()
            server.wait()


def draw(page: Page, address: str) -> None:
    """Predict a sample in the browser, and take both pictures."""
    open_page(page, address)
    page.click(SAMPLE)
    page.wait_for_selector("[data-state=found]", timeout=120_000)
    page.fill("[name='price[source]']", "1.29")
    for name, dollars in (("h100-sxm", "2.49"), ("l40s", "0.80")):
        page.check(f"input[value={name}]")
        page.fill(f"[name='price[{name}]']", dollars)
    page.screenshot(path=DOCS / "web_found.png", full_page=True)
    page.click("text=Predict")
    page.wait_for_selector("[data-state=done]", timeout=120_000)
    page.emulate_media(color_scheme="dark")
    page.screenshot(path=DOCS / "web_report.png")


def open_page(page: Page, address: str) -> None:
    """Open the first page, once the server listens."""
    for _ in range(100):
        try:
            page.goto(address)
            return
        except Error:
            time.sleep(0.5)
    raise TimeoutError(address)


if __name__ == "__main__":
    main()
