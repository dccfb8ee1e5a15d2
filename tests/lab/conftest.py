"""Give tests of the lab the engine's golden folder and its model."""

from __future__ import annotations

from tests.synth.engine.conftest import golden as golden
from tests.synth.engine.conftest import loaded as loaded
from tests.synth.engine.conftest import loaded_bf16 as loaded_bf16
