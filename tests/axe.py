"""What axe-core finds on a page that keeps people from using it: one line for each kind of fault."""

from typing import Any

import pytest


def find_barriers(page: Any) -> list[str]:
    """Return axe's violations of the page that is shown, best practices among them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")
    found = axe.Axe().run(page).response["violations"]
    return [
        f"{violation['id']} ({violation['impact']}): {node['target'][0]}: {node['failureSummary']}"
        for violation in found
        for node in violation["nodes"]
    ]
