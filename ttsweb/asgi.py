"""Serve the project under ASGI."""

from __future__ import annotations

import os

from django.conf import settings

from synth.api.jobs.event_streams import EventStreams
from synth.api.jobs.wait import JobWait
from synth.live.player import LivePlayer
from synth.live.streams import LiveStreams
from synth.live.watcher import LiveWatcher
from synth.openai.speech_wait import SpeechWait
from ttsweb.http.body_limit import BodyLimit
from ttsweb.http.chunked import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")

_django = get_asgi_application()
_waiting = JobWait(_django, max_waiters=settings.MAX_WAITERS)
_player = LivePlayer(
    max_streams=settings.MAX_LIVE_STREAMS,
    watcher=LiveWatcher(note_seconds=settings.LIVE_KEEP_SECONDS / 3),
)
_speaking = SpeechWait(_waiting, _player)
_streaming = EventStreams(_speaking, max_streams=settings.MAX_EVENT_STREAMS)
_live = LiveStreams(_streaming, _player, start_seconds=settings.LIVE_START_SECONDS)
application = BodyLimit(_live, max_bytes=settings.MAX_BODY_BYTES)
