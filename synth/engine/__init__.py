"""Render speech with cloned voices: torch code that knows nothing of queues, rows or requests."""

from synth.engine.engine import Engine
from synth.engine.engine_config import EngineConfig
from synth.engine.errors import EngineError

__all__ = ["Engine", "EngineConfig", "EngineError"]
