"""Define the voices that are trained: settings of the synthesiser at pitches the decoder can hold.

A small decoder has one clock, its frame rate. Each voice is a monotone whose pitch is a whole
multiple of `PITCH_GRID_HZ`, so every period begins at the same places of a frame and the decoder
need not carry a phase along.
"""

from __future__ import annotations

from dataclasses import dataclass

from lab.training.espeak import EspeakVoice

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
