"""Give tests of books the voices that read them."""

from __future__ import annotations

import pytest

from tests.factories import make_voice


@pytest.fixture
def ada(job_services: None) -> None:
    """A voice that everybody may use."""
    make_voice("Ada", shared=True)


@pytest.fixture
def voices(ada: None) -> None:
    """Two more of them."""
    for name in ("Bob", "Cy"):
        make_voice(name, shared=True)
