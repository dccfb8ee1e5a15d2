"""Choose the numbers of slots that are computed together."""

from __future__ import annotations

from synth.engine.decode_state import DecodeState

BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128)


def bucket_sizes(state: DecodeState) -> list[int]:
    """Return the numbers of slots of a state that are computed together, ascending.

    A strict state is always computed whole, so that every product has one shape.
    """
    if state.strict:
        return [state.num_slots]
    return [size for size in BUCKETS if size < state.num_slots] + [state.num_slots]
