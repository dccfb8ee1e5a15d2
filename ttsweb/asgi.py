"""Serve the project under ASGI."""

from __future__ import annotations

import os

import django
from django.conf import settings

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ttsweb.settings")
django.setup()  # what follows imports models

# ruff: noqa: E402
from synth.api.jobs.event_streams import EventStreams
from synth.api.jobs.wait import JobWait
from synth.dialects.socket_sessions import SpeechSockets
from synth.dialects.speech_wait import SpeechWait
from synth.live.streams import LivePlayer, LiveStreams
from synth.live.watcher import LiveWatcher
from synth.telemetry import start as start_telemetry
from ttsweb.http.body_limit import BodyLimit, get_asgi_application
from ttsweb.http.headers import CorsHeaders, StrictTransport

# Of one web process. A request that is held costs about 30 kB there; one more is answered at once.
MAX_WAITERS = 200
MAX_EVENT_STREAMS = 200  # each polls the database; one more is refused

start_telemetry("ttsweb-web")
_django = get_asgi_application()
_waiting = JobWait(_django, max_waiters=MAX_WAITERS)
_player = LivePlayer(
    max_streams=settings.MAX_LIVE_STREAMS,
    watcher=LiveWatcher(note_seconds=settings.LIVE_KEEP_SECONDS / 3),
)
_speaking = SpeechWait(_waiting, _player)
_streaming = EventStreams(_speaking, max_streams=MAX_EVENT_STREAMS)
_live = LiveStreams(_streaming, _player, start_seconds=settings.LIVE_START_SECONDS)
_sockets = SpeechSockets(_live, _django, _player, max_sessions=settings.MAX_LIVE_STREAMS)
_limited = BodyLimit(_sockets, max_bytes=settings.MAX_BODY_BYTES)
application = StrictTransport(CorsHeaders(_limited), seconds=settings.SECURE_HSTS_SECONDS)
