"""Build this process's one engine, in a worker that has started, and say how far that is."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from synth.engine import Engine, EngineConfig
import os

# Long enough to catch what comes within a product, short enough to leave a processor to other work.
SPIN_ROUNDS = 2000
# What GNU's OpenMP does unless told otherwise: some milliseconds.
LONG_SPIN_ROUNDS = 300_000


def set_spinning(rounds: int = SPIN_ROUNDS) -> None:
    """Let threads look that many times before they sleep, unless the environment has a policy.

    A frame has hundreds of small products whose threads wait for each other. Waking one that sleeps
    takes about 40 microseconds; one that looks for long keeps a processor from other work, and
    beside other busy processes rendering gets several times slower.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ.setdefault("GOMP_SPINCOUNT", str(rounds))


logger = logging.getLogger(__name__)


class EngineNotReadyError(Exception):
    """The engine is not there yet, or never will be in this process."""


class EngineHost:
    """Hold the engine of this process; built once, by whoever asks first."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._lock = threading.Lock()

    @property
    def is_ready(self) -> bool:
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """Return the warm engine; raise EngineNotReadyError before `start` has ended."""
        if self._engine is None:
            raise EngineNotReadyError("the engine of this worker is not ready")
        return self._engine

    def start(self) -> Engine:
        """Load and warm the engine; a second call returns the first one's.

        Raises:
            EngineError: the checkpoint or a setting does not fit; the text says which.
        """
        with self._lock:
            if self._engine is None:
                started = time.monotonic()
                engine = load_engine()
                loaded = time.monotonic()
                engine.warm_up()
                logger.info(
                    "engine ready: device=%s load_seconds=%.1f warm_seconds=%.1f",
                    engine.device,
                    loaded - started,
                    time.monotonic() - loaded,
                )
                self._engine = engine
            return self._engine


def load_engine() -> Engine:
    """Load the engine that the settings describe; torch is imported here and nowhere before.

    Raises:
        EngineError: the checkpoint or a setting does not fit.
    """
    set_spinning()
    from synth.engine import Engine

    return Engine.load(engine_config())


def engine_config() -> EngineConfig:
    """Return how the settings describe the engine; this imports torch."""
    from synth.engine import EngineConfig

    without = settings.ENGINE_WITHOUT
    return EngineConfig(
        checkpoint=settings.CHECKPOINT,
        device=settings.DEVICE,
        dtype=settings.DTYPE,
        codec_encode_dtype=settings.CODEC_ENCODE_DTYPE,
        resampler="builtin" if "torchaudio" in without else "auto",
        slots=settings.ENGINE_SLOTS,
        max_positions=settings.ENGINE_MAX_POSITIONS,
        strict=settings.ENGINE_STRICT,
        graphs="off" if "graphs" in without else "auto",
        kernels="off" if "kernels" in without else "auto",
        cache_dir=settings.DATA_DIR / "cache",
    )
