"""Refuse a file that is larger than a clip may be."""

from __future__ import annotations

from django.conf import settings

from ttsweb.http.body_limit import LimitHandler
from voices.clip_checks import too_large


class ClipLimitHandler(LimitHandler):
    """Refuse files above `TTS_MAX_CLIP_BYTES`, wherever an upload has no limit of its own."""

    code = "clip_too_large"

    def max_bytes(self) -> int:
        """Return how many bytes a clip may have."""
        limit: int = settings.MAX_CLIP_BYTES
        return limit

    def sentence(self) -> str:
        """Say that the clip is too large."""
        return str(too_large())
