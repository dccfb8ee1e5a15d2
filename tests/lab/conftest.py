"""Give tests of the lab the engine's golden folder."""

from __future__ import annotations

from tests.synth.engine.conftest import golden as golden
