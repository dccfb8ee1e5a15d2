"""Transcribers for tests, named in TTS_TRANSCRIBER; they hear what the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from synth.contract import AudioArray

NO_FACTORY = "not a factory"


class Parrot:
    """Say what `answer` returns, and note what was asked; without one it says "ox one"."""

    def __init__(self, answer: Callable[[], Any] = lambda: "ox one") -> None:
        self.answer = answer
        self.asked: list[tuple[int, int, str]] = []

    def transcribe(self, audio: AudioArray, sample_rate: int, *, language: str) -> str:
        """Return the answer; the audio is spoilt, as a careless plug-in might do."""
        self.asked.append((len(audio), sample_rate, language))
        audio[:] = 0.0
        heard: str = self.answer()
        return heard


class Sleeper(Parrot):
    """Answer once it is woken."""

    def __init__(self) -> None:
        super().__init__(self._wait)
        self.woken = threading.Event()

    def _wait(self) -> str:
        assert self.woken.wait(60)
        return "ox one"


def parrot() -> Parrot:
    """Return one that hears "ox one" in all there is."""
    return Parrot()


class Lenient(Parrot):
    """Hear one text in all there is, and hold no take to it; it knows two languages."""

    languages = frozenset({"en", "de"})
    max_error = 1e9


def lenient() -> Lenient:
    return Lenient(lambda: "what the clip says")


def without_method() -> object:
    """Return what cannot transcribe."""
    return object()


def leaving() -> Parrot:
    """Leave the process, as scripts do that were never meant to be imported."""
    raise SystemExit("no licence was found")


def broken() -> Parrot:
    """Raise, as one does whose model is not there."""
    raise OSError("no model in /models")
