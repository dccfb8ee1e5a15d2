"""Store one take as a worker stores many."""

from __future__ import annotations

from synth.contract import SegmentAudio
from synth.models import Take
from workers.rendering.takes import add_takes, store_take


def save_take(content_key: str, rendered: SegmentAudio) -> Take:
    """Store codes and audio and return the take with its row."""
    return add_takes([store_take(content_key, rendered)])[content_key]
