"""Store one take as a worker stores many, and screen takes of the tiny checkpoint.

Its random weights never end a sentence by themselves.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from synth.contract import SegmentAudio
from synth.models import Take
from tests.workers.conftest import TINY
from workers.rendering.render import add_takes, store_take


def screened_checkpoint(folder: Path) -> Path:
    """Return a copy of the tiny checkpoint without the card that has its screen off."""
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("card.json"))
    return folder


def save_take(content_key: str, rendered: SegmentAudio) -> Take:
    """Store codes and audio and return the take with its row."""
    return add_takes([store_take(content_key, rendered)])[content_key]
