"""One place where students' processes come from, for all tests that ask them."""

import pytest

from course.sandbox import Sandbox


@pytest.fixture(scope="session")
def answers_sandbox():
    with Sandbox(level="limited") as made:
        yield made
