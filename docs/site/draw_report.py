"""Draw the picture of a report in docs/: its first screen in Chromium, which has to be installed."""

import shutil
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import sync_playwright

import tracekit as tk

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT / "sample_traces" / "synthetic_transformer_train.json.gz"
GPUS = ("h100-sxm", "l40s", "mi300x")
PRICES = {"a100-sxm-80gb": 1.29, "h100-sxm": 2.49, "l40s": 0.86, "mi300x": 2.69}
"""Made up, like the trace."""
SIZE = {"width": 1280, "height": 1020}


def main() -> None:
    """Write docs/report.png, or the file named on the command line."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "report.png"
    report = tk.report(tk.predict(tk.load(TRACE), gpu=GPUS, price=PRICES))
    with TemporaryDirectory() as folder, sync_playwright() as driver:
        page = Path(folder) / "report.html"
        page.write_text(report.to_html(with_details=True), encoding="utf-8")
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        view = browser.new_page(viewport=SIZE, color_scheme="light")
        view.goto(page.as_uri())
        view.wait_for_selector("#target-table thead button")
        view.screenshot(path=target)
        browser.close()
    print(f"Wrote {target}")


if __name__ == "__main__":
    main()
