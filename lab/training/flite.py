"""Speak with flite through ctypes: a waveform, and what it was made of.

flite's voices slt, rms and awb hold mel-cepstra of recordings (CMU ARCTIC). A sentence comes with
the cepstra, pitches and strengths of voicing that it was made from, and with its phones' times.
flite is a system package, needed for making data and for the evaluation, not for training.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

SAMPLE_RATE = 16000
ROW_SECONDS = 0.005
NUM_CEPSTRA, NUM_STRENGTHS = 25, 5
TEACHERS = ("slt", "rms", "awb")
_LIBRARIES = ("flite", "flite_usenglish", "flite_cmulex")
_INSTALL = "apt install flite libflite1 (Debian)"
Floats = npt.NDArray[np.floating]


class FliteMissingError(Exception):
    """flite or one of its voices is not installed; the text says how to get it."""


@dataclass(frozen=True, slots=True, eq=False)
class Utterance:
    """Hold what a teacher said.

    `wave` int16 [N] at `SAMPLE_RATE`. A row is `ROW_SECONDS` long: `pitch` [R] in Hz, 0 where
    nothing is voiced; `cepstra` [R, 25]; `strengths` [R, 5] from 0 (noise) to 1 (harmonic), of
    bands around 0.5, 1.5, 3, 5 and 7 kHz. `phones` are (start, end, name), a pause is `pau`;
    `words` are (start, name). Times are in seconds, ascending.
    """

    text: str
    teacher: str
    wave: npt.NDArray[np.int16]
    pitch: Floats
    cepstra: Floats
    strengths: Floats
    phones: tuple[tuple[float, float, str], ...]
    words: tuple[tuple[float, str], ...]

    @property
    def num_rows(self) -> int:
        """Return the rows."""
        return len(self.pitch)

    @property
    def seconds(self) -> float:
        """Return how long the rows last."""
        return self.num_rows * ROW_SECONDS


class _Track(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("num_frames", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("times", ctypes.POINTER(ctypes.c_float)),
        ("frames", ctypes.POINTER(ctypes.POINTER(ctypes.c_float))),
    )


class _Wave(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_char_p),
        ("sample_rate", ctypes.c_int),
        ("num_samples", ctypes.c_int),
        ("num_channels", ctypes.c_int),
        ("samples", ctypes.POINTER(ctypes.c_short)),
    )


class _Utterance(ctypes.Structure):
    _fields_ = (("features", ctypes.c_void_p),)  # the first of several


_POINTER, _TEXT, _FLOAT = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_float
# Function -> (what it returns, what it takes).
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "flite_init": (ctypes.c_int, ()),
    "flite_synth_text": (_POINTER, (_TEXT, _POINTER)),
    "delete_utterance": (None, (_POINTER,)),
    "utt_wave": (ctypes.POINTER(_Wave), (_POINTER,)),
    "utt_relation": (_POINTER, (_POINTER, _TEXT)),
    "relation_head": (_POINTER, (_POINTER,)),
    "item_next": (_POINTER, (_POINTER,)),
    "item_feat_string": (_TEXT, (_POINTER, _TEXT)),
    "item_feat_float": (_FLOAT, (_POINTER, _TEXT)),
    "ffeature_float": (_FLOAT, (_POINTER, _TEXT)),
    "feat_val": (_POINTER, (_POINTER, _TEXT)),
    "val_track": (ctypes.POINTER(_Track), (_POINTER,)),
    "val_cg_db": (_POINTER, (_POINTER,)),
    "mlpg": (ctypes.POINTER(_Track), (ctypes.POINTER(_Track), _POINTER)),
    "delete_track": (None, (ctypes.POINTER(_Track),)),
}
_WORD_START = b"R:SylStructure.daughter1.daughter1.R:Segment.p.end"


class Flite:
    """Own the library and the teachers' voices; get it from `flite()`. Not for several threads."""

    def __init__(self) -> None:
        libraries = [_open(name) for name in _LIBRARIES]
        self._library = libraries[0]
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(self._library, name)
            function.restype, function.argtypes = result, arguments
        self._library.flite_init()
        self._voices = {teacher: _register(teacher) for teacher in TEACHERS}

    def say(self, text: str, teacher: str) -> Utterance:
        """Speak a text of ASCII.

        The same text and teacher give the same rows and phones, but not the same samples: their
        noise goes on from what was said before.
        """
        library = self._library
        spoken = library.flite_synth_text(text.encode("ascii", "replace"), self._voices[teacher])
        try:
            wave = library.utt_wave(spoken).contents
            samples = np.ctypeslib.as_array(wave.samples, (wave.num_samples,)).copy()
            cepstra = self._smoothed(spoken)
            strengths = _rows_of(self._track(spoken, b"str_track"))[: len(cepstra)]
            return Utterance(
                text=text,
                teacher=teacher,
                wave=samples.astype(np.int16),
                pitch=cepstra[:, 0],
                cepstra=cepstra[:, 1:],
                strengths=strengths,
                phones=tuple(self._phones(spoken)),
                words=tuple(self._words(spoken)),
            )
        finally:
            library.delete_utterance(spoken)

    def _features(self, spoken: int) -> int | None:
        features: int | None = ctypes.cast(spoken, ctypes.POINTER(_Utterance)).contents.features
        return features

    def _track(self, spoken: int, name: bytes) -> Any:
        return self._library.val_track(self._library.feat_val(self._features(spoken), name))

    def _smoothed(self, spoken: int) -> Floats:
        """Return pitch and cepstra [R, 26] of smooth courses, as the waveform was made of."""
        library = self._library
        voice = library.val_cg_db(library.feat_val(self._features(spoken), b"cg_db"))
        track = library.mlpg(self._track(spoken, b"param_track"), voice)
        try:
            return _rows_of(track)[:, : 1 + NUM_CEPSTRA]
        finally:
            library.delete_track(track)

    def _items(self, spoken: int, relation: bytes) -> Iterator[int]:
        item = self._library.relation_head(self._library.utt_relation(spoken, relation))
        while item:
            yield item
            item = self._library.item_next(item)

    def _phones(self, spoken: int) -> Iterator[tuple[float, float, str]]:
        start = 0.0
        for item in self._items(spoken, b"Segment"):
            end = float(self._library.item_feat_float(item, b"end"))
            yield start, end, self._library.item_feat_string(item, b"name").decode()
            start = end

    def _words(self, spoken: int) -> Iterator[tuple[float, str]]:
        for item in self._items(spoken, b"Word"):
            start = float(self._library.ffeature_float(item, _WORD_START))
            yield start, self._library.item_feat_string(item, b"name").decode()


@lru_cache(maxsize=1)
def flite() -> Flite:
    """Return this process's synthesiser, loaded on first use.

    Raises:
        FliteMissingError: the library or a voice is not installed.
    """
    return Flite()


def _rows_of(track: Any) -> Floats:
    """Return a track's rows, [R, channels]; the library keeps them at places of their own."""
    held = track.contents
    shape = (held.num_channels,)
    rows = [np.ctypeslib.as_array(held.frames[i], shape) for i in range(held.num_frames)]
    return np.array(rows, np.float32).reshape(held.num_frames, held.num_channels)


def _register(teacher: str) -> int:
    register = getattr(_open(f"flite_cmu_us_{teacher}"), f"register_cmu_us_{teacher}")
    register.restype, register.argtypes = _POINTER, (_TEXT,)
    voice: int = register(None)
    return voice


def _open(name: str) -> ctypes.CDLL:
    try:
        # A voice looks for the names of the libraries that were opened before it.
        return ctypes.CDLL(f"lib{name}.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise FliteMissingError(f"flite is not installed ({error}): {_INSTALL}.") from error
