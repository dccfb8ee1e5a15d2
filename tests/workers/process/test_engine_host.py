"""What the host of the engine sees to before torch is loaded."""

from __future__ import annotations

import os

import pytest
from pytest_django import Settings

from synth.engine import EngineError
from tests.workers.commands import run_python
from tests.workers.conftest import TINY
from workers.process.engine_host import engine_config, load_engine, set_spinning

LOAD = """
import django; django.setup()
import os, sys
from workers.process.engine_host import load_engine
assert "torch" not in sys.modules, "the variable would come too late"
engine = load_engine()
print(os.environ["OMP_WAIT_POLICY"], os.environ.get("GOMP_SPINCOUNT"), engine.device)
engine.close()
"""


def test_threads_soon_sleep_while_they_wait(clean_env: dict[str, str]) -> None:
    environment = clean_env | {"TTS_CHECKPOINT": str(TINY), "TTS_DEVICE": "cpu"}

    assert run_python(environment, LOAD) == "PASSIVE 2000 cpu"


def test_operator_may_say_how_threads_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)

    set_spinning()

    assert (os.environ["OMP_WAIT_POLICY"], os.environ.get("GOMP_SPINCOUNT")) == ("ACTIVE", None)


def test_device_that_is_none_stops_the_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # else loading would set it for later tests
    settings.CHECKPOINT, settings.DEVICE = TINY, "abacus"

    with pytest.raises(EngineError) as refused:
        load_engine()

    sentence = "'abacus' is not a device; use auto, cpu or cuda:N."
    assert (refused.value.code, str(refused.value)) == ("invalid_request", sentence)


def test_what_the_engine_is_to_do_without_is_switched_off(settings: Settings) -> None:
    config = engine_config()
    assert (config.graphs, config.kernels, config.resampler) == ("auto", "auto", "auto")

    settings.ENGINE_WITHOUT = ["graphs", "kernels", "torchaudio"]

    config = engine_config()
    assert (config.graphs, config.kernels, config.resampler) == ("off", "off", "builtin")
