"""Speak with espeak-ng through ctypes: audio together with the times of phones and words.

espeak-ng is a system package, needed for making data and for the evaluation, not for training.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 22050
_LIBRARIES = ("libespeak-ng.so.1", "libespeak-ng.dylib", "libespeak-ng.so")
_SYNCHRONOUS, _PHONEME_EVENTS, _POSITION_CHARACTER, _TEXT_IS_UTF8 = 2, 1, 1, 1
_RATE, _PITCH, _RANGE, _WORD_GAP = 1, 3, 4, 7
_EVENT_END, _EVENT_WORD, _EVENT_PHONEME = 0, 1, 7


class EspeakMissingError(Exception):
    """The library is not installed; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class EspeakVoice:
    """Hold one setting of the synthesiser: a variant, pitch and range 0..99, words a minute."""

    variant: str
    pitch: int
    pitch_range: int
    rate: int


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """Hold what was spoken: int16 [N] at `SAMPLE_RATE`; times in seconds, ascending.

    `phones` are (time, name), a pause is `_`; `words` are (time, first letter, letters).
    """

    wave: npt.NDArray[np.int16]
    phones: tuple[tuple[float, str], ...]
    words: tuple[tuple[float, int, int], ...]


class _Id(ctypes.Union):
    _fields_ = (("number", ctypes.c_int), ("name", ctypes.c_char_p), ("string", ctypes.c_char * 8))


class _Event(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("unique_identifier", ctypes.c_uint),
        ("text_position", ctypes.c_int),
        ("length", ctypes.c_int),
        ("audio_position", ctypes.c_int),
        ("sample", ctypes.c_int),
        ("user_data", ctypes.c_void_p),
        ("id", _Id),
    )


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.POINTER(_Event)
)


class Espeak:
    """Own the library's one synthesiser of this process; get it from `espeak()`."""

    def __init__(self) -> None:
        self._library = _open_library()
        rate = self._library.espeak_Initialize(_SYNCHRONOUS, 0, None, _PHONEME_EVENTS)
        if rate != SAMPLE_RATE:
            raise EspeakMissingError(
                f"espeak-ng starts with a rate of {rate} instead of {SAMPLE_RATE}: "
                "its voice data is missing; apt install espeak-ng-data."
            )
        self._callback = _Callback(self._receive)  # the library keeps no reference to it
        self._library.espeak_SetSynthCallback(self._callback)
        self._pieces: list[npt.NDArray[np.int16]] = []
        self._phones: list[tuple[float, str]] = []
        self._words: list[tuple[float, int, int]] = []

    def say(self, text: str, voice: EspeakVoice) -> Utterance:
        """Speak a text.

        The same text and voice give the same phones and times, but not the same samples: noise and
        the phase of the pitch go on from what was said before.
        """
        self._library.espeak_SetVoiceByName(voice.variant.encode())
        settings = ((_RATE, voice.rate), (_PITCH, voice.pitch), (_RANGE, voice.pitch_range))
        for parameter, value in settings:
            self._library.espeak_SetParameter(parameter, value, 0)
        self._pieces, self._phones, self._words = [], [], []
        encoded = text.encode()
        self._library.espeak_Synth(
            encoded, len(encoded) + 1, 0, _POSITION_CHARACTER, 0, _TEXT_IS_UTF8, None, None
        )
        self._library.espeak_Synchronize()
        wave = np.concatenate(self._pieces) if self._pieces else np.zeros(0, np.int16)
        return Utterance(wave, tuple(sorted(self._phones)), tuple(sorted(self._words)))

    def _receive(self, wave: ctypes._Pointer[ctypes.c_short], count: int, events: object) -> int:
        if count > 0:
            self._pieces.append(np.ctypeslib.as_array(wave, (count,)).copy())
        index = 0
        while (event := events[index]).type != _EVENT_END:  # type: ignore[index]
            seconds = event.audio_position / 1000
            if event.type == _EVENT_PHONEME:
                self._phones.append((seconds, event.id.string.decode("utf-8", "replace")))
            elif event.type == _EVENT_WORD:
                self._words.append((seconds, event.text_position - 1, event.length))
            index += 1
        return 0


@lru_cache(maxsize=1)
def espeak() -> Espeak:
    """Return this process's synthesiser, started on first use."""
    return Espeak()


def _open_library() -> ctypes.CDLL:
    for name in _LIBRARIES:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise EspeakMissingError("espeak-ng is not installed: apt install espeak-ng.")


PITCH_GRID_HZ = 44100 / 1024  # half of the decoder's 86.13 frames a second
REFERENCE_TEXT = "The thing had a strange look in the lamp light."


@dataclass(frozen=True, slots=True)
class TrainedVoice:
    """Hold a voice: the synthesiser's setting and the multiple of the grid that is its pitch."""

    name: str
    espeak: EspeakVoice
    grid_multiple: int

    @property
    def pitch_hz(self) -> float:
        """Return the pitch of every voiced sound of this voice."""
        return self.grid_multiple * PITCH_GRID_HZ


# The pitch settings are those whose measured pitch lies within 1 % of the grid's.
VOICES = (
    TrainedVoice("m7", EspeakVoice("en-us+m7", 46, 0, 155), 2),
    TrainedVoice("m2", EspeakVoice("en-us+m2", 78, 0, 155), 3),
    TrainedVoice("f2", EspeakVoice("en-us+f2", 51, 0, 155), 4),
    TrainedVoice("f5", EspeakVoice("en-us+f5", 64, 0, 155), 5),
)
HELD_OUT = TrainedVoice("m3", EspeakVoice("en-us+m3", 64, 0, 155), 3)
