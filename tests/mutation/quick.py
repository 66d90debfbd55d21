"""A pytest plugin for runs that ask only whether a test fails: Hypothesis draws the same examples and shrinks none."""

import pytest
from hypothesis import Phase, settings


def pytest_sessionstart(session: pytest.Session) -> None:
    """Set the profile, after tests/conftest.py has set its own."""
    settings.register_profile(
        "mutation", settings.default, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate)
    )
    settings.load_profile("mutation")
