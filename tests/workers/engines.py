"""Engines that differ from that of the tests in what they say of themselves, and in its codes."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from synth.contract import AudioArray, CodesArray, EngineClass, RenderSpec, SegmentAudio
from synth.engine import Engine


class OtherEngine:
    """An engine with other weights or numbers, which speaks as the one that it is made of.

    Args:
        codec: its codec's fingerprint, whose codes are those of the other one read backwards.
        changes: what differs of its class.
    """

    def __init__(self, engine: Engine, *, codec: str = "", **changes: Any) -> None:
        self._engine, self._is_backwards = engine, bool(codec)
        self.codec_fingerprint = codec or engine.codec_fingerprint
        self.engine_class: EngineClass = replace(engine.engine_class, **changes)
        self.asked: list[RenderSpec] = []

    def encode_reference(self, waveform: AudioArray, sample_rate: int) -> CodesArray:
        codes = self._engine.encode_reference(waveform, sample_rate)
        return codes[:, ::-1].copy() if self._is_backwards else codes

    def submit(self, spec: RenderSpec, **how: Any) -> Future[SegmentAudio]:
        self.asked.append(spec)
        return self._engine.submit(spec, **how)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


class BusyEngine(OtherEngine):
    """One whose slots hold all that they are given."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.futures: list[Future[SegmentAudio]] = []

    def submit(self, spec: RenderSpec, **how: Any) -> Future[SegmentAudio]:
        self.futures.append(Future())
        return self.futures[-1]
