"""Share what tests of the training recipe need."""

from __future__ import annotations

import pytest

from lab.training.flite import Flite, flite


@pytest.fixture(scope="session")
def teachers() -> Flite:
    """Return flite, which a test that uses this must be marked to need."""
    return flite()
