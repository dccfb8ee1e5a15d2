"""The demo's work: a warm worker, three voices, a sentence in each and its file, then the site."""

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
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.db.models import Sum
from django.utils import timezone

from synth.accounts.access import create_key
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
from ttsweb.http import listen
from ttsweb.leases import database_now
from ttsweb.migration import migrate_once
from ttsweb.refusals import counted
from ttsweb.storage import storage_place
from voices.clip_checks import ClipRejectedError
from voices.models import ClipCodes, Voice, VoiceVersion
from voices.submit import NewClip, create_voice, update_voice
from voices.transitions import request_encoding
from workers.local.children import open_standard_streams, signals_interrupt
from workers.local.local_worker import (
    LocalWorker,
    check_text,
    save_audio,
    submit_text,
    summary,
    wait_encoded,
    wait_ended,
)
from workers.local.site import Site
from workers.management.commands.serve import AUTO

KEY_DAYS = 30
LOG_NAME = "demo.log"
LINE_WIDTH = 88
INDENT = " " * 12
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
        sources = clip_sources(chosen)
        try:
            with (
                reporting_errors(self.stdout, as_json=chosen.json),
                signals_interrupt(),
                # Before anything is rendered: a port that is taken is told at once.
                nullcontext() if chosen.no_serve else open_socket(chosen) as listening,
            ):
                self._run(chosen, sources, listening)
        except KeyboardInterrupt:
            self._say("Stopped.")
            if not self._is_serving:
                sys.exit(EXIT_INTERRUPTED)

    def _run(
        self, chosen: Namespace, sources: Sequence[ClipSource], listening: socket.socket | None
    ) -> None:
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
            spoken, runs = render_demo(sources, user, worker, progress)
            self._tell(spoken, runs, time.monotonic() - started, as_json=chosen.json)
            if listening is not None:
                until = timezone.now() + dt.timedelta(days=KEY_DAYS)
                _, key = create_key(user, "demo", expires_at=until)
                self._serve(listening, worker, key, sources[0].voice_name)
        finally:
            progress.leave()
            worker.stop()

    def _tell(
        self, spoken: Sequence[Spoken], runs: int, wall_seconds: float, *, as_json: bool
    ) -> None:
        card = read_card(settings.CHECKPOINT)
        if as_json:
            answer = {
                "voices": [one.as_json() for one in spoken],
                "wall_seconds": round(wall_seconds, 3),
                "encoder_runs": runs,
                "checkpoint": card.name,
                "licence": card.licence,
            }
            self.stdout.write(json.dumps(answer))
            self.stdout.flush()
            return
        here = Path.cwd()
        for one in spoken:
            shown = one.path.relative_to(here) if one.path.is_relative_to(here) else one.path
            self._say(
                f"{one.voice_name:<11} {shown}  "
                f"({one.audio_seconds:.1f} s of audio, made in {one.wall_seconds:.1f} s)"
            )
            self._say(textwrap.indent(textwrap.fill(one.text, LINE_WIDTH), INDENT))
        seconds = sum(one.audio_seconds for one in spoken)
        self._say(f"All         {seconds:.1f} s of audio after {wall_seconds:.1f} s")
        self._say(f"Model       {card.name}, licence {card.licence}")
        self._say(textwrap.indent(textwrap.fill(card.description, LINE_WIDTH), INDENT))

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


def clip_sources(chosen: Namespace) -> tuple[ClipSource, ...]:
    """Return the clips of the demo's voices: ours, or the one that was given with all it needs.

    Raises:
        CommandError: with exit code 2, when a part of it is missing.
    """
    given = (chosen.voice_clip, chosen.transcript, chosen.consent)
    sources: tuple[ClipSource, ...] = DEMO_CLIPS
    if any(given):
        if not all(given):
            raise CommandError(
                "--voice-clip, --transcript (the words that are spoken in the clip) and "
                "--consent (how the speaker gave consent) must be given together",
                returncode=2,
            )
        clip: Path = chosen.voice_clip
        name = f"demo {clip.stem}"[:100]
        sources = (
            ClipSource(
                clip, chosen.transcript, voice_name=name, consent=chosen.consent, text=STATEMENT
            ),
        )
    if chosen.text is None:
        return sources
    return tuple(replace(source, text=chosen.text) for source in sources)


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


@dataclass(frozen=True)
class Spoken:
    """What one voice said: its file, how long that is, and how long it took."""

    voice_name: str
    text: str
    path: Path
    audio_seconds: float
    wall_seconds: float  # from the submission to the file on disk

    def as_json(self) -> dict[str, Any]:
        return {
            "voice": self.voice_name,
            "text": self.text,
            "audio_path": str(self.path),
            "audio_seconds": round(self.audio_seconds, 3),
            "wall_seconds": round(self.wall_seconds, 3),
        }


def render_demo(
    sources: Sequence[ClipSource], user: User, worker: LocalWorker, progress: Progress
) -> tuple[list[Spoken], int]:
    """Make a voice of each source and have it say its text, through the queue and the worker.

    Returns what was said, and how often the encoder ran for it.

    Raises:
        StepError: with the code and sentence of the step that failed.
    """
    for source in sources:
        check_text(source.text)
    started_at = database_now()
    voices = [find_or_make_voice(source, user) for source in sources]
    progress.begin("Worker", "warming up")
    worker.wait_ready(progress)
    progress.end("ready")
    progress.begin("Voices", f"encoding {counted(len(sources), 'clip')}")
    versions = [wait_encoded(newest_version(voice).pk, worker, progress) for voice in voices]
    # The clips that were encoded since then.
    codes = ClipCodes.objects.filter(clip__uses__version__in=versions, encoded_at__gte=started_at)
    how = "encoded" if codes.exists() else "the codes of an earlier run are reused"
    progress.end(f"{', '.join(source.voice_name for source in sources)} ready, {how}")
    spoken = [
        speak(source, voice, user, worker, progress)
        for source, voice in zip(sources, voices, strict=True)
    ]
    return spoken, codes.distinct().count()


def speak(
    source: ClipSource, voice: Voice, user: User, worker: LocalWorker, progress: Progress
) -> Spoken:
    """Have a voice say the text of its source, and save the file.

    Raises:
        StepError: as `submit_text`, `wait_ended` and `save_audio` raise it.
    """
    started = time.monotonic()
    progress.begin("Rendering", f"{source.voice_name}: {counted(len(source.text), 'character')}")
    submitted = submit_text(source.text, voice, owner=user, audio_format=FORMAT)
    job = wait_ended(submitted.pk, worker, progress)
    path = settings.DATA_DIR / "out" / f"{source.voice_name.replace('/', '_')}.{FORMAT}"
    save_audio(job, path)
    taken = time.monotonic() - started
    progress.end(f"{source.voice_name}: {summary(job)}")
    seconds = job.exports.aggregate(seconds=Sum("duration_seconds"))["seconds"] or 0.0
    return Spoken(source.voice_name, source.text, path, seconds, taken)


ADMIN_NAME = "admin"
PASSWORD_BYTES = 12


@dataclass(frozen=True)
class ClipSource:
    """A clip on disk, what is said in it, the voice it makes, why that is allowed.

    `text` is what the voice says in the demo.
    """

    path: Path
    transcript: str
    voice_name: str
    consent: str
    text: str


STATEMENT = "The sun went down behind the hills, and the air grew cold."
QUESTION = "Did you hear the rain on the roof last night?"
LIST = "We need bread, milk, six eggs, and a little butter."


def _demo_clip(voice_name: str, speaker: str, text: str) -> ClipSource:
    """Return one of the clips that lie beside the model; `speaker` is Flite's name of its voice."""
    folder = Path(__file__).resolve().parents[2] / "synth" / "demo" / "clips"
    return ClipSource(
        path=folder / f"{voice_name.lower()}.wav",
        transcript="The morning was bright, and the whole street smelled of bread.",
        voice_name=voice_name,
        consent=(
            f"Made by the speech synthesiser Flite with its voice {speaker}, which was built from "
            "the CMU ARCTIC recordings; no person speaks in it. The licence allows any use "
            "(synth/demo/LICENSES.md)."
        ),
        text=text,
    )


DEMO_CLIPS = (
    _demo_clip("Clara", "slt", STATEMENT),
    _demo_clip("Henry", "rms", QUESTION),
    _demo_clip("Alec", "awb", LIST),
)
DEMO_CLIP = DEMO_CLIPS[0]  # where one is enough


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
