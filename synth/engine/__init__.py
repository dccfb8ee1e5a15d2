"""Render speech with cloned voices: torch code that knows nothing of queues, rows or requests."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth.engine.engine import Engine
    from synth.engine.errors import EngineError
    from synth.engine.loading.engine_config import EngineConfig

__all__ = ["Engine", "EngineConfig", "EngineError"]

# Loaded when they are asked for: what only describes shapes and arguments does not wait for torch.
_MODULES = {
    "Engine": "synth.engine.engine",
    "EngineConfig": "synth.engine.loading.engine_config",
    "EngineError": "synth.engine.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
