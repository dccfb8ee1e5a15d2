"""Compile the code for every class of processors that this one belongs to."""

from __future__ import annotations

import pytest

from synth.engine.native import matrix
from synth.engine.native.build import TARGETS, Target, cache_folders, processor_flags
from synth.engine.native.library import Library, load_library


@pytest.fixture(params=TARGETS, ids=lambda target: target.name)
def library(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Library:
    """Return the code of a class, which matrices are then laid out for."""
    target: Target = request.param
    if not set(target.needs) <= processor_flags():
        pytest.skip(f"this processor is not of the class {target.name}")
    loaded = load_library(target, cache_folders(None))
    monkeypatch.setattr(matrix, "native_library", lambda: loaded)
    return loaded
