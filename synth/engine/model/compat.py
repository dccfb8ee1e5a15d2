"""Name the reference implementation's quirks that a product must not have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Compat:
    """Switch on, one by one, what the reference does and this engine by default does not.

    Vectors that pin a quirk run with `REFERENCE`; everything else runs with `PRODUCT`.
    """

    drop_leading_text: bool = False  # text before the first speaker tag is lost
    live_special_tokens: bool = False  # `<|im_end|>` in user text ends the turn
    drop_last_frame: bool = False  # the last column never comes back, end frame or speech
    skip_first_end_test: bool = False  # an end token in frame 1 does not end the generation
    lenient_limits: bool = False  # top_k 0 acts as 1, max_frames 0 as "until the context is full"
    ignore_half_voice: bool = False  # a transcript without codes, or the reverse, is dropped


PRODUCT = Compat()
REFERENCE = Compat(
    drop_leading_text=True,
    live_special_tokens=True,
    drop_last_frame=True,
    skip_first_end_test=True,
    lenient_limits=True,
    ignore_half_voice=True,
)
