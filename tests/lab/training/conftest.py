"""Share what tests of the training recipe need."""

from __future__ import annotations

import pytest

from lab.training.espeak import Espeak, EspeakMissingError, espeak


@pytest.fixture(scope="session")
def synthesiser() -> Espeak:
    """Return espeak-ng; skip where the system has none."""
    try:
        return espeak()
    except EspeakMissingError as error:
        pytest.skip(str(error))
