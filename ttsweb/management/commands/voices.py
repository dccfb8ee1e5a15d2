"""Make, list, show, delete, export and import voices over the API."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import ClassVar

from ttsweb.client import Client, Clip, Voice
from ttsweb.commands import noun_command as nouns
from ttsweb.commands.base import UsageError
from ttsweb.commands.terminal import Progress, one_line

VOICE = nouns.argument("voice", help="name or id")
SHARED = nouns.switch("--shared", "allow every other user of the server to speak with the voice")
NO_WAIT = nouns.switch("--no-wait", "return before the voice is encoded")


class Command(nouns.NounCommand):
    help = "Add, list, show, delete, export and import voices of the server at TTS_URL."
    noun = "voices"
    actions: ClassVar[nouns.Actions] = {
        "add": nouns.action(
            "make a voice from one or more clips",
            nouns.argument("name"),
            nouns.argument(
                "--clip",
                type=Path,
                action="append",
                required=True,
                help="audio file; repeat it for several clips",
            ),
            nouns.argument(
                "--transcript",
                action="append",
                required=True,
                help="words that are spoken in the clip; one for each clip, in their order",
            ),
            nouns.argument(
                "--consent",
                required=True,
                help="how the speaker gave consent; the server stores it",
            ),
            nouns.argument("--description", default=""),
            nouns.argument(
                "--language", default="", help="language of the voice, such as en or pt-BR"
            ),
            SHARED,
            NO_WAIT,
        ),
        "ls": nouns.action("list voices, newest first"),
        "show": nouns.action("show a voice", VOICE),
        "rm": nouns.action(
            "delete voices and their clips",
            nouns.argument("voices", nargs="+", metavar="voice", help="name or id"),
        ),
        "export": nouns.action(
            "export a voice as one file",
            VOICE,
            nouns.argument(
                "--out", type=Path, required=True, metavar="FILE", help="name of the file"
            ),
        ),
        "import": nouns.action(
            "import an exported voice",
            nouns.argument("file", type=Path, help="a file made by `voices export`"),
            nouns.argument("--name", default="", help="name that replaces the one in the file"),
            SHARED,
            NO_WAIT,
        ),
    }
    columns: ClassVar[nouns.Cells] = {
        "id": "id",
        "status": "status",
        "language": "language",
        "clips": lambda voice: len(voice["clips"]),
        "name": "name",
    }
    lines: ClassVar[nouns.Cells] = {
        "id": "id",
        "name": "name",
        "status": "status",
        "error": nouns.error_of,
        "language": "language",
        "owner": "owner",
        "shared": lambda voice: "yes" if voice["shared"] else "",
        "version": "version",
        "frames": "frames",
        "consent": "consent_statement",
        "given by": lambda voice: f"{voice['consent_by']}, {voice['consent_at'][:10]}",
        "clip": lambda voice: [f"{one['filename']}: {one['transcript']}" for one in voice["clips"]],
        "warning": lambda voice: [warning["message"] for warning in voice["warnings"]],
    }

    def do_show(self, client: Client, chosen: Namespace) -> None:
        self.show(client.voices.find(chosen.voice), chosen)

    def do_add(self, client: Client, chosen: Namespace) -> None:
        if len(chosen.clip) != len(chosen.transcript):
            raise UsageError("each --clip needs a --transcript")
        pairs = zip(chosen.clip, chosen.transcript, strict=True)
        voice = client.voices.create(
            chosen.name,
            [Clip(path, transcript) for path, transcript in pairs],
            consent=chosen.consent,
            description=chosen.description,
            language=chosen.language,
            shared=chosen.shared,
        )
        self._tell_made(client, voice, chosen)

    def do_export(self, client: Client, chosen: Namespace) -> None:
        voice = client.voices.find(chosen.voice)
        path = client.voices.export(voice["id"], chosen.out)
        size = path.stat().st_size
        if chosen.json:
            self.tell({"voice": voice["id"], "file": str(path), "size_bytes": size})
        else:
            self.stdout.write(f"{path}  {size} bytes  {one_line(voice['name'])}")

    def do_import(self, client: Client, chosen: Namespace) -> None:
        voice = client.voices.import_(chosen.file, name=chosen.name, shared=chosen.shared)
        self._tell_made(client, voice, chosen)

    def _tell_made(self, client: Client, voice: Voice, chosen: Namespace) -> None:
        if not chosen.no_wait and voice["status"] != "ready":
            self.come_back = [f"./tts voices show {voice['id']}"]
            voice = self._wait_ready(client, voice)
        if chosen.json:
            self.tell(voice)
        else:
            self.stdout.write(f"{voice['id']}  {voice['status']}  {one_line(voice['name'])}")
        for warning in voice["warnings"]:
            self.note(f"{warning['code']}: {warning['message']}")

    def _wait_ready(self, client: Client, voice: Voice) -> Voice:
        if not sys.stderr.isatty():
            return client.voices.wait_ready(voice["id"])
        progress, started = Progress(sys.stderr), time.monotonic()

        def show(now: Voice) -> None:
            progress.update(f"{now['status']}, {time.monotonic() - started:.0f} s")

        progress.begin("Voice", "waiting for its encoding")
        try:
            return client.voices.wait_ready(voice["id"], on_update=show)
        finally:
            progress.leave()

    def do_rm(self, client: Client, chosen: Namespace) -> None:
        found = [client.voices.find(name) for name in chosen.voices]
        for voice in found:
            client.voices.delete(voice["id"])
            if not chosen.json:
                self.stdout.write(f"{voice['id']}  deleted  {one_line(voice['name'])}")
        if chosen.json:
            self.tell({"deleted": [voice["id"] for voice in found]})
