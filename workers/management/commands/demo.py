"""Render a sample to a file by the whole real path, then serve the site."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import socket
import sys
import textwrap
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ttsweb.commands.base import BaseCommand
from ttsweb.commands.errors import CommandError, errors_told
from ttsweb.configuration.specs import SETTINGS
from ttsweb.counted import counted
from ttsweb.terminal.progress import Progress
from workers.management.commands.serve import AUTO, port

if TYPE_CHECKING:
    from workers.local.demo_run import DemoResult
    from workers.local.first_run import ClipSource
    from workers.local.local_worker import LocalWorker

KEY_DAYS = 30
LOG_NAME = "demo.log"
LINE_WIDTH = 88
EXIT_INTERRUPTED = 130  # as a shell reports a command that Ctrl-C ended


class Command(BaseCommand):
    """Set up, speak a sentence with a demo voice, and serve the site."""

    help = (
        "Render a sample to a file, then serve the site until Ctrl-C. A second run reuses "
        "the voice and the audio of the first."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Take what to say, with which voice, and how to end."""
        parser.add_argument("--text", help="text to speak")
        parser.add_argument("--voice-clip", type=Path, help="make the voice from this clip")
        parser.add_argument("--transcript", default="", help="words that are spoken in the clip")
        parser.add_argument(
            "--consent", default="", help="how the speaker gave consent to the use of this voice"
        )
        parser.add_argument(
            "--no-serve", action="store_true", help="stop after the sample; do not serve the site"
        )
        parser.add_argument("--host", help="address to listen on")
        parser.add_argument(
            "--port", type=port, help="port, or auto for the next free one; default: auto"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        """Return after the file or, when serving, after a signal."""
        from workers.local.embedded import open_standard_streams, signals_interrupt

        open_standard_streams()
        chosen = Namespace(**options)
        # With --json, standard output is for the object alone.
        self._lines = sys.stderr if chosen.json else sys.stdout
        self._is_serving = False
        source = clip_source(chosen)
        try:
            with errors_told(self.stdout, as_json=chosen.json), signals_interrupt():
                if chosen.no_serve:
                    self._run(chosen, source, None)
                else:
                    # Before anything is rendered: a port that is taken is told at once.
                    with open_socket(chosen) as listening:
                        self._run(chosen, source, listening)
        except KeyboardInterrupt:
            self._say("Stopped.")
            if not self._is_serving:
                sys.exit(EXIT_INTERRUPTED)

    def _run(self, chosen: Namespace, source: ClipSource, listening: socket.socket | None) -> None:
        from django.conf import settings
        from django.utils import timezone

        from synth.accounts.keys import create_key
        from ttsweb.migration import migrate_once
        from workers.local.demo_run import DEFAULT_TEXT, render_demo
        from workers.local.first_run import find_or_make_admin
        from workers.local.local_worker import LocalWorker

        started = time.monotonic()
        progress = Progress(sys.stderr)
        progress.begin("Database", "looking for missing migrations")
        applied = migrate_once(settings.DATA_DIR)
        progress.end(f"ready, {counted(applied, 'migration')} applied" if applied else "ready")
        user, password = find_or_make_admin()
        if password:
            self._say(f"Admin       user {user}, password {password} (shown once)")
        worker = LocalWorker(log_path=settings.DATA_DIR / "logs" / LOG_NAME)
        try:
            text = DEFAULT_TEXT if chosen.text is None else chosen.text
            result = render_demo(source, text, user, worker, progress)
            self._tell(result, time.monotonic() - started, as_json=chosen.json)
            if listening is not None:
                _, key = create_key(
                    user, "demo", expires_at=timezone.now() + dt.timedelta(days=KEY_DAYS)
                )
                self._serve(listening, worker, key, result)
        finally:
            progress.leave()
            worker.stop()

    def _tell(self, result: DemoResult, wall_seconds: float, *, as_json: bool) -> None:
        from django.conf import settings

        from ttsweb.pages.card import read_card

        card = read_card(settings.CHECKPOINT)
        if as_json:
            answer = {
                "audio_path": str(result.path),
                "audio_seconds": round(result.audio_seconds, 3),
                "wall_seconds": round(wall_seconds, 3),
                "encoder_runs": result.encoder_runs,
                "checkpoint": card.name,
                "licence": card.licence,
            }
            self.stdout.write(json.dumps(answer))
            self.stdout.flush()
        else:
            length = f"{result.audio_seconds:.1f} s of audio after {wall_seconds:.1f} s"
            self._say(f"Audio       {shown(result.path)}  ({length})")
            self._say(f"Model       {card.name}, licence {card.licence}")
            self._say(textwrap.indent(textwrap.fill(card.description, LINE_WIDTH), " " * 12))

    def _serve(
        self, listening: socket.socket, worker: LocalWorker, key: str, result: DemoResult
    ) -> None:
        from workers.local.site import Site

        site = Site(listening, worker, log=worker.log)
        try:
            site.wait_answering()
            self._say(f"Serving     {site.url}/  admin: {site.url}/admin/")
            self._say(f"API key     {key} (valid for {KEY_DAYS} days)")
            self._say(f"Try         {curl_line(site.url, key, result)}")
            self._say("Stop with Ctrl-C.")
            self._is_serving = True
            site.run()
        finally:
            site.stop()

    def _say(self, line: str) -> None:
        self._lines.write(f"{line}\n")
        self._lines.flush()


def clip_source(chosen: Namespace) -> ClipSource:
    """Return the clip of the demo's voice: ours, or the one that was given with all it needs.

    Raises:
        CommandError: with exit code 2, when a part of it is missing.
    """
    from workers.local.first_run import DEMO_CLIP, ClipSource

    given = (chosen.voice_clip, chosen.transcript, chosen.consent)
    if not any(given):
        return DEMO_CLIP
    if not all(given):
        raise CommandError(
            "--voice-clip, --transcript (the words that are spoken in the clip) and "
            "--consent (how the speaker gave consent) must be given together",
            returncode=2,
        )
    clip: Path = chosen.voice_clip
    name = f"demo {clip.stem}"[:100]
    return ClipSource(clip, chosen.transcript, voice_name=name, consent=chosen.consent)


def open_socket(chosen: Namespace) -> socket.socket:
    """Return the socket to serve on: on the port that was asked for, by option or by setting.

    The port that nobody chose may be another one, if it is taken.

    Raises:
        ListenError: as `check_address` and `open_socket` of ttsweb.http.listen raise it.
    """
    from django.conf import settings

    from ttsweb.http import listen

    host = chosen.host or settings.HOST
    listen.check_address(host, settings.ALLOWED_HOSTS)
    is_chosen = chosen.port is not None or str(settings.PORT) != SETTINGS["TTS_PORT"].default
    return listen.open_socket(
        host,
        chosen.port or settings.PORT,
        or_next=not is_chosen or chosen.port == AUTO,
    )


def shown(path: Path) -> Path:
    """Return a path as it is typed in the current folder, if that is shorter."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def curl_line(url: str, key: str, result: DemoResult) -> str:
    """Return a line for a shell that submits a job with the demo's voice."""
    body = json.dumps({"text": "I came back to the long room.", "voice": result.voice_name})
    return (
        f"curl -s {url}/api/v1/jobs -H 'Authorization: Bearer {key}' "
        f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
    )
