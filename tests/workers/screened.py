"""Screen takes of the tiny checkpoint, whose random weights never end a sentence by themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.workers.conftest import TINY


def screened_checkpoint(folder: Path) -> Path:
    """Return a copy of the tiny checkpoint without the card that has its screen off."""
    shutil.copytree(TINY, folder, ignore=shutil.ignore_patterns("card.json"))
    return folder
