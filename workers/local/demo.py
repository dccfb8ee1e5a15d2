"""The demo's work: a warm worker, an encoded voice, a rendered text and its file, then the site."""

from __future__ import annotations

import datetime as dt
import json
import secrets
import shlex
import socket
import sys
import textwrap
import time
from argparse import Namespace
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import Sum
from django.utils import timezone

from synth.accounts.keys import create_key
from synth.card import read_card
from ttsweb.commands.base import (
    EXIT_INTERRUPTED,
    BaseCommand,
    CommandError,
    StepError,
    reporting_errors,
)
from ttsweb.commands.terminal import Progress
from ttsweb.configuration.env import SETTINGS
from ttsweb.counted import counted
from ttsweb.http import listen
from ttsweb.leases import database_now
from ttsweb.migration import migrate_once
from ttsweb.storage import storage_place
from voices.clip_checks import ClipRejectedError
from voices.models import ClipCodes, Voice, VoiceVersion
from voices.submit import NewClip, create_voice, update_voice
from voices.transitions import request_encoding
from workers.local.children import open_standard_streams, signals_interrupt
from workers.local.local_worker import LocalWorker, save_audio, summary, wait_encoded, wait_ended
from workers.local.site import Site
from workers.local.speak import check_text, submit_text
from workers.management.commands.serve import AUTO

KEY_DAYS = 30
LOG_NAME = "demo.log"
LINE_WIDTH = 88
DEFAULT_TEXT = (
    "The machine stood in the long room. I saw the pale light of the lamp. "
    "Then the sound of the wind came back."
)
FORMAT = "wav"


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    open_standard_streams()
    Demo(command, Namespace(**options)).run()


class Demo:
    """One run of the command."""

    def __init__(self, command: BaseCommand, chosen: Namespace) -> None:
        self.stdout, self._chosen, self._is_serving = command.stdout, chosen, False
        # With --json, standard output is for the object alone.
        self._lines = sys.stderr if chosen.json else sys.stdout

    def run(self) -> None:
        """Render and serve; a signal ends it."""
        chosen = self._chosen
        source = clip_source(chosen)
        try:
            with (
                reporting_errors(self.stdout, as_json=chosen.json),
                signals_interrupt(),
                # Before anything is rendered: a port that is taken is told at once.
                nullcontext() if chosen.no_serve else open_socket(chosen) as listening,
            ):
                self._run(chosen, source, listening)
        except KeyboardInterrupt:
            self._say("Stopped.")
            if not self._is_serving:
                sys.exit(EXIT_INTERRUPTED)

    def _run(self, chosen: Namespace, source: ClipSource, listening: socket.socket | None) -> None:
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
            path, seconds, runs = render_demo(source, text, user, worker, progress)
            self._tell(path, seconds, runs, time.monotonic() - started, as_json=chosen.json)
            if listening is not None:
                until = timezone.now() + dt.timedelta(days=KEY_DAYS)
                _, key = create_key(user, "demo", expires_at=until)
                self._serve(listening, worker, key, source.voice_name)
        finally:
            progress.leave()
            worker.stop()

    def _tell(
        self, path: Path, seconds: float, runs: int, wall_seconds: float, *, as_json: bool
    ) -> None:
        card = read_card(settings.CHECKPOINT)
        if as_json:
            answer = {
                "audio_path": str(path),
                "audio_seconds": round(seconds, 3),
                "wall_seconds": round(wall_seconds, 3),
                "encoder_runs": runs,
                "checkpoint": card.name,
                "licence": card.licence,
            }
            self.stdout.write(json.dumps(answer))
            self.stdout.flush()
            return
        here = Path.cwd()
        shown = path.relative_to(here) if path.is_relative_to(here) else path
        self._say(f"Audio       {shown}  ({seconds:.1f} s of audio after {wall_seconds:.1f} s)")
        self._say(f"Model       {card.name}, licence {card.licence}")
        self._say(textwrap.indent(textwrap.fill(card.description, LINE_WIDTH), " " * 12))

    def _serve(
        self, listening: socket.socket, worker: LocalWorker, key: str, voice_name: str
    ) -> None:
        site = Site(listening, worker, log=worker.log)
        body = json.dumps({"text": "I came back to the long room.", "voice": voice_name})
        try:
            site.wait_answering()
            self._say(f"Serving     {site.url}/  admin: {site.url}/admin/")
            self._say(f"API key     {key} (valid for {KEY_DAYS} days)")
            self._say(
                f"Try         curl -s {site.url}/api/v1/jobs -H 'Authorization: Bearer {key}' "
                f"-H 'Content-Type: application/json' -d {shlex.quote(body)}"
            )
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
    host = chosen.host or settings.HOST
    listen.check_address(host, settings.ALLOWED_HOSTS)
    is_chosen = chosen.port is not None or str(settings.PORT) != SETTINGS["TTS_PORT"].default
    return listen.open_socket(
        host, chosen.port or settings.PORT, or_next=not is_chosen or chosen.port == AUTO
    )


def render_demo(
    source: ClipSource, text: str, user: User, worker: LocalWorker, progress: Progress
) -> tuple[Path, float, int]:
    """Speak `text` with the voice of `source`, through the queue and the worker process.

    Returns the file, its seconds, and how often the encoder ran for it.

    Raises:
        StepError: with the code and sentence of the step that failed.
    """
    check_text(text)
    started_at = database_now()
    voice = find_or_make_voice(source, user)
    more = MORE_DEMO_CLIPS if source is DEMO_CLIP else ()
    others = [find_or_make_voice(clip, user) for clip in more]
    progress.begin("Worker", "warming up")
    worker.wait_ready(progress)
    progress.end("ready")
    progress.begin("Voice", f"encoding {source.path.name}")
    version = wait_encoded(newest_version(voice).pk, worker, progress)
    for other in others:
        wait_encoded(newest_version(other).pk, worker, progress)
    # The clips that were encoded since then.
    codes = ClipCodes.objects.filter(clip__uses__version=version, encoded_at__gte=started_at)
    runs = codes.distinct().count()
    how = "encoded" if runs else "the codes of an earlier run are reused"
    names = ", ".join([source.voice_name, *(other.name for other in others)])
    progress.end(f"{names} ready, {how}")

    progress.begin("Rendering", f"{len(text)} characters")
    submitted = submit_text(text, voice, owner=user, audio_format=FORMAT)
    job = wait_ended(submitted.pk, worker, progress)
    path = settings.DATA_DIR / "out" / f"{source.voice_name.replace('/', '_')}.{FORMAT}"
    save_audio(job, path)
    progress.end(summary(job))
    seconds = job.exports.aggregate(seconds=Sum("duration_seconds"))["seconds"] or 0.0
    return path, seconds, codes.distinct().count()


ADMIN_NAME = "admin"
PASSWORD_BYTES = 12


@dataclass(frozen=True)
class ClipSource:
    """A clip on disk, what is said in it, the voice it makes and why that is allowed."""

    path: Path
    transcript: str
    voice_name: str
    consent: str


def _demo_clip(file_name: str, voice_name: str) -> ClipSource:
    return ClipSource(
        path=Path(__file__).resolve().parents[2] / "synth" / "demo" / "clips" / file_name,
        transcript="The thing had a strange look in the lamp light.",
        voice_name=voice_name,
        consent="Made by a speech synthesiser for this project; no person speaks in it.",
    )


DEMO_CLIP = _demo_clip("ref_f2.wav", "demo")  # the one that speaks
MORE_DEMO_CLIPS = (_demo_clip("ref_m7.wav", "demo low"), _demo_clip("ref_f5.wav", "demo high"))


def find_or_make_admin() -> tuple[User, str]:
    """Return the user that owns the demo, and the password if the user was made just now.

    An installation that has a superuser keeps it: no second one is made.
    """
    users = get_user_model().objects
    found = (
        users.filter(username=ADMIN_NAME).first()
        or users.filter(is_superuser=True, is_active=True).order_by("pk").first()
    )
    if found is not None:
        return found, ""
    password = secrets.token_urlsafe(PASSWORD_BYTES)
    return users.create_superuser(ADMIN_NAME, password=password), password


def find_or_make_voice(source: ClipSource, owner: User) -> Voice:
    """Return the voice with this clip; made, or encoded again, if need be.

    Raises:
        StepError: the clip cannot be read, or is refused with a code and a sentence.
    """
    own = Voice.objects.filter(owner=owner, deleted_at__isnull=True)
    voice = own.filter(name__iexact=source.voice_name).first()
    try:
        content = source.path.read_bytes()
    except OSError as error:
        raise StepError("clip_not_read", f"{source.path}: {error.strerror}.") from error
    clip = NewClip(transcript=source.transcript, filename=source.path.name, content=content)
    try:
        if voice is None:
            voice = create_voice(
                name=source.voice_name,
                consent_statement=source.consent,
                by=owner.get_username(),
                clips=[clip],
                owner=owner,
                shared=True,  # users who are made later find it too
            )
        else:
            update_voice(voice, by=owner.get_username(), clips=[clip])
    except OSError as error:
        reason = f"{error.strerror or error}: {storage_place()}"
        message = f"The clip could not be stored ({reason})."
        raise StepError("storage_unavailable", message) from error
    except ClipRejectedError as error:
        raise StepError(error.code, str(error)) from error
    version = newest_version(voice)
    if version.status == VoiceVersion.Status.FAILED:
        request_encoding(version)
    return voice


def newest_version(voice: Voice) -> VoiceVersion:
    """Return the version that speaks; raise StepError when the voice was deleted meanwhile."""
    version = voice.current_version
    if version is None:
        raise StepError(
            "voice_not_found",
            f"The voice {voice.name!r} was deleted meanwhile; run the command again.",
        )
    return version
