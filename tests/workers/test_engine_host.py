"""What the host of the engine sees to before torch is loaded."""

from __future__ import annotations

import pytest

from tests.workers.commands import PROJECT, run_python

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


def test_graphs_asked_for_without_a_device_that_has_them_stop_the_start(
    clean_env: dict[str, str],
) -> None:
    environment = clean_env | {
        "TTS_CHECKPOINT": str(TINY),
        "TTS_DEVICE": "cpu",
        "TTS_ENGINE_GRAPHS": "on",
    }

    expected = (
        "invalid_request TTS_ENGINE_GRAPHS=on needs a CUDA device, but the engine runs on "
        "cpu; use auto or off."
    )
    assert run_python(environment, REFUSED) == expected
