"""What the host of the engine sees to before torch is loaded."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from tests.workers.commands import PROJECT, run_python
from workers.process.engine_host import engine_config

LOAD = """
import django; django.setup()
import os, sys
from workers.process.engine_host import load_engine
assert "torch" not in sys.modules, "the variable would come too late"
engine = load_engine()
print(os.environ["OMP_WAIT_POLICY"], os.environ.get("GOMP_SPINCOUNT"), engine.device)
engine.close()
"""
TINY = PROJECT / "tests" / "data" / "golden" / "tiny-s2"


@pytest.mark.parametrize("given", ["", "ACTIVE"])
def test_threads_soon_sleep_while_they_wait_unless_the_operator_says_otherwise(
    clean_env: dict[str, str], given: str
) -> None:
    environment = clean_env | {"TTS_CHECKPOINT": str(TINY), "TTS_DEVICE": "cpu"}
    if given:
        environment["OMP_WAIT_POLICY"] = given

    expected = f"{given} None cpu" if given else "PASSIVE 2000 cpu"
    assert run_python(environment, LOAD) == expected


REFUSED = """
import django; django.setup()
from workers.process.engine_host import load_engine
from synth.engine import EngineError
try:
    load_engine()
except EngineError as error:
    print(error.code, error)
"""


def test_device_that_is_none_stops_the_start(clean_env: dict[str, str]) -> None:
    environment = clean_env | {"TTS_CHECKPOINT": str(TINY), "TTS_DEVICE": "abacus"}

    expected = "invalid_request 'abacus' is not a device; use auto, cpu or cuda:N."
    assert run_python(environment, REFUSED) == expected


def test_what_the_engine_is_to_do_without_is_switched_off(settings: Settings) -> None:
    config = engine_config()
    assert (config.graphs, config.kernels, config.resampler) == ("auto", "auto", "auto")

    settings.ENGINE_WITHOUT = ["graphs", "kernels", "torchaudio"]

    config = engine_config()
    assert (config.graphs, config.kernels, config.resampler) == ("off", "off", "builtin")
