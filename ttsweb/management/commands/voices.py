"""Make, list, show, delete, export and import voices over the API."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path

from ttsweb.client import Client, Clip, Voice
from ttsweb.commands.errors import CommandError
from ttsweb.commands.remote_command import RemoteCommand
from ttsweb.terminal.plain_table import one_line, table
from ttsweb.terminal.progress import Progress

_SHARED = "allow every other user of the server to speak with the voice"


class Command(RemoteCommand):
    """`voices add|ls|show|rm|export|import`."""

    help = "Add, list, show, delete, export and import voices of the server at TTS_URL."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare one parser for each action."""
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        add = actions.add_parser("add", help="make a voice from one or more clips")
        add.add_argument("name")
        add.add_argument(
            "--clip",
            type=Path,
            action="append",
            required=True,
            help="audio file; repeat it for several clips",
        )
        add.add_argument(
            "--transcript",
            action="append",
            required=True,
            help="words that are spoken in the clip; one for each clip, in their order",
        )
        add.add_argument(
            "--consent", required=True, help="how the speaker gave consent; the server stores it"
        )
        add.add_argument("--description", default="")
        add.add_argument(
            "--language", default="", help="language of the voice, such as en or pt-BR"
        )
        add.add_argument("--shared", action="store_true", help=_SHARED)
        ls = actions.add_parser("ls", help="list voices, newest first")
        show = actions.add_parser("show", help="show a voice")
        show.add_argument("voice", help="name or id")
        rm = actions.add_parser("rm", help="delete voices and their clips")
        rm.add_argument("voices", nargs="+", metavar="voice", help="name or id")
        export = actions.add_parser("export", help="export a voice as one file")
        export.add_argument("voice", help="name or id")
        export.add_argument(
            "--out", type=Path, required=True, metavar="FILE", help="name of the file"
        )
        import_ = actions.add_parser("import", help="import an exported voice")
        import_.add_argument("file", type=Path, help="a file made by `voices export`")
        import_.add_argument("--name", default="", help="name that replaces the one in the file")
        import_.add_argument("--shared", action="store_true", help=_SHARED)
        for action in (add, import_):
            action.add_argument(
                "--no-wait", action="store_true", help="return before the voice is encoded"
            )
        for action in (add, ls, show, rm, export, import_):
            action.add_argument("--json", action="store_true", help="print one JSON object")

    def run(self, client: Client, chosen: Namespace) -> None:
        """Do the action."""
        actions = {
            "add": self._add,
            "ls": self._list,
            "show": self._show,
            "rm": self._remove,
            "export": self._export,
            "import": self._import,
        }
        actions[chosen.action](client, chosen)

    def _add(self, client: Client, chosen: Namespace) -> None:
        if len(chosen.clip) != len(chosen.transcript):
            raise CommandError("each --clip needs a --transcript", returncode=2)
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

    def _export(self, client: Client, chosen: Namespace) -> None:
        voice = client.voices.find(chosen.voice)
        path = client.voices.export(voice["id"], chosen.out)
        size = path.stat().st_size
        if chosen.json:
            self.tell({"voice": voice["id"], "file": str(path), "size_bytes": size})
        else:
            self.stdout.write(f"{path}  {size} bytes  {one_line(voice['name'])}")

    def _import(self, client: Client, chosen: Namespace) -> None:
        voice = client.voices.import_(chosen.file, name=chosen.name, shared=chosen.shared)
        self._tell_made(client, voice, chosen)

    def _tell_made(self, client: Client, voice: Voice, chosen: Namespace) -> None:
        """Wait for the encoding of a voice that was just made, and print what it is."""
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
        progress.begin("Voice", "waiting for its encoding")
        try:
            return client.voices.wait_ready(
                voice["id"],
                on_update=lambda now: progress.update(
                    f"{now['status']}, {time.monotonic() - started:.0f} s"
                ),
            )
        finally:
            progress.leave()

    def _list(self, client: Client, chosen: Namespace) -> None:
        found = list(client.voices.list())
        if chosen.json:
            self.tell({"voices": found})
            return
        rows = [
            (voice["id"], voice["status"], voice["language"], len(voice["clips"]), voice["name"])
            for voice in found
        ]
        for line in table(("id", "status", "language", "clips", "name"), rows):
            self.stdout.write(line)

    def _show(self, client: Client, chosen: Namespace) -> None:
        voice = client.voices.find(chosen.voice)
        if chosen.json:
            self.tell(voice)
            return
        error = f"{voice['error_code']}: {voice['error_message']}" if voice["error_code"] else ""
        rows = [
            ("id", voice["id"]),
            ("name", voice["name"]),
            ("status", voice["status"]),
            ("error", error),
            ("language", voice["language"]),
            ("owner", voice["owner"] or ""),
            ("shared", "yes" if voice["shared"] else ""),
            ("version", voice["version"]),
            ("frames", voice["frames"]),
            ("consent", voice["consent_statement"]),
            ("given by", f"{voice['consent_by']}, {voice['consent_at'][:10]}"),
            *(("clip", f"{clip['filename']}: {clip['transcript']}") for clip in voice["clips"]),
            *(("warning", warning["message"]) for warning in voice["warnings"]),
        ]
        for name, value in rows:
            if value != "":
                self.stdout.write(f"{name:<12}{one_line(str(value), 200)}")

    def _remove(self, client: Client, chosen: Namespace) -> None:
        found = [client.voices.find(name) for name in chosen.voices]
        for voice in found:
            client.voices.delete(voice["id"])
            if not chosen.json:
                self.stdout.write(f"{voice['id']}  deleted  {one_line(voice['name'])}")
        if chosen.json:
            self.tell({"deleted": [voice["id"] for voice in found]})
