"""Hold the engine of a worker process: loaded when it is needed, closed when it is not."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING

from django.conf import settings

if TYPE_CHECKING:
    from synth.engine import Engine, EngineConfig

logger = logging.getLogger(__name__)

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


class EngineNotReadyError(Exception):
    """The engine is not there yet, or never will be in this process."""


class EngineHost:
    """Hold the engine of this process; built by whoever asks first, and again after `release`."""

    def __init__(self) -> None:
        self._engine: Engine | None = None
        self._lock = threading.Lock()
        self._codec_fingerprint = ""
        self._slots = 0
        self.load_seconds = 0.0  # of the last load, warming included

    @property
    def loaded(self) -> Engine | None:
        """Return the warm engine, or None while there is none."""
        return self._engine

    @property
    def is_ready(self) -> bool:
        return self._engine is not None

    @property
    def engine(self) -> Engine:
        """Return the warm engine; raise EngineNotReadyError before `start` has ended."""
        if self._engine is None:
            raise EngineNotReadyError("the engine of this worker is not ready")
        return self._engine

    @property
    def codec_fingerprint(self) -> str:
        """Return that of the engine, or of the last one: it says which work waits for the next."""
        engine = self._engine
        return self._codec_fingerprint if engine is None else engine.codec_fingerprint

    @property
    def slots(self) -> int:
        engine = self._engine
        return self._slots if engine is None else engine.slots

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
                self.load_seconds = time.monotonic() - started
                logger.info(
                    "engine ready: device=%s load_seconds=%.1f warm_seconds=%.1f",
                    engine.device,
                    loaded - started,
                    time.monotonic() - loaded,
                )
                self._engine = engine
            return self._engine

    def release(self) -> None:
        """Close the engine and give its memory back; call it when nobody works with it."""
        with self._lock:
            engine = self._engine
            if engine is None:
                return
            self._codec_fingerprint, self._slots = engine.codec_fingerprint, engine.slots
            self._engine = None
        from synth.engine.device import give_back_memory

        engine.close()
        device = engine.device
        del engine  # what follows frees only what nobody refers to
        give_back_memory(device)


def load_engine() -> Engine:
    """Load the engine that the settings describe; torch is imported here and nowhere before.

    Raises:
        EngineError: the checkpoint or a setting does not fit.
    """
    set_spinning()
    from synth.engine import Engine

    return Engine.load(engine_config())


def engine_config() -> EngineConfig:
    """Return how the settings describe the engine; this imports torch.

    Kernels that Triton compiles are kept in the data folder, unless TRITON_CACHE_DIR says where:
    they take a minute of the first start, and no other one.
    """
    os.environ.setdefault("TRITON_CACHE_DIR", str(settings.DATA_DIR / "cache" / "triton"))
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
