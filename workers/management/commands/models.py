"""Provide `models pull` and `models ls`: bring published weights here, and list what is here."""

from __future__ import annotations

import getpass
import json
import logging
import sys
from argparse import ArgumentTypeError, Namespace
from pathlib import Path
from typing import Any

from ttsweb.commands.base import (
    EXIT_INTERRUPTED,
    JSON,
    BaseCommand,
    CommandError,
    CommandParser,
    StepError,
    add_all,
    argument,
    reporting_errors,
    switch,
)
from ttsweb.private_files import users_umask
from ttsweb.refusals import counted
from workers.local.model_pull import find_models, line_of, pull
from workers.local.model_source import (
    DECLARATION_NAME,
    S2_PRO,
    SOURCES,
    USES,
    Declaration,
    ModelSource,
    read_declaration,
    write_declaration,
)


def _revision(text: str) -> str:
    """Accept what can be a git revision; anything else would become part of an address."""
    if not text or len(text) > 100 or not all(c.isalnum() or c in "._-" for c in text):
        raise ArgumentTypeError(
            f"{text!r} is not a revision; use letters, digits and . _ - (at most 100 characters)"
        )
    return text


WHICH = (
    argument("model", nargs="?", default=S2_PRO.name, choices=sorted(SOURCES)),
    argument("--revision", type=_revision, help="commit, branch or tag instead of the default"),
    argument("--to", type=Path, metavar="DIR", help="folder; default: TTS_DATA_DIR/models/NAME"),
)
DECLARED_BY = argument(
    "--declared-by",
    default="",
    help="name of the person who declares the use; default: the user's name",
)
DECLARING = (
    ("--yes-i-accept-the-research-licence", "research",
     "use the model only for research or non-commercial purposes"),
    ("--yes-i-have-a-written-licence", "written-licence",
     "have a written licence from the publisher"),
)  # fmt: skip


class Command(BaseCommand):
    help = "Download published weights (pull), or list the installed models (ls)."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="pull|ls")
        get = actions.add_parser(
            "pull",
            help="download a model's weights; an interrupted download is resumed, and digests are "
            "checked",
        )
        add_all(get, WHICH)
        use = get.add_mutually_exclusive_group()
        for flag, const, purpose in DECLARING:
            help_text = f"declare that you {purpose}"
            use.add_argument(flag, dest="use", action="store_const", const=const, help=help_text)
        add_all(get, (DECLARED_BY, JSON))
        ls = actions.add_parser("ls", help="list the installed models")
        add_all(ls, (switch("--json", "print one JSON list"),))

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what was asked for; Ctrl-C leaves what was downloaded, and the next pull goes on."""
        chosen = Namespace(**options)
        with reporting_errors(self.stdout, as_json=chosen.json):
            if chosen.action == "ls":
                from django.conf import settings

                found = find_models(settings.DATA_DIR / "models", settings.CHECKPOINT)
                if chosen.json:
                    self.stdout.write(json.dumps(found))
                for model in () if chosen.json else found:
                    self.stdout.write(line_of(model))
                return
            try:
                with users_umask():  # weights are no secret: a container's user reads them too
                    self._pull(chosen)
            except KeyboardInterrupt:
                self._tell("Stopped. The same command continues the download.")
                sys.exit(EXIT_INTERRUPTED)

    def _pull(self, chosen: Namespace) -> None:
        from django.conf import settings

        # Without a line for each request, and the second copy of each of the library's warnings.
        logging.getLogger("httpx2").setLevel(logging.WARNING)
        logging.getLogger("huggingface_hub").propagate = False
        source = SOURCES[chosen.model]
        folder = (chosen.to or settings.DATA_DIR / "models" / source.name).expanduser().resolve()
        declaration = self._declaration(source, folder, chosen)
        revision = chosen.revision or source.revision
        listing = pull(source, folder, revision, self._tell)
        size = sum(file.size for file in listing.files)
        if chosen.json:
            answer = {
                "folder": str(folder),
                "model": listing.model,
                "revision": listing.revision,
                "files": len(listing.files),
                "bytes": size,
                "declared_use": declaration.use,
            }
            self.stdout.write(json.dumps(answer))
            return
        self.stdout.write(
            f"{source.title} at {listing.revision[:12]} is complete in {folder}: "
            f"{counted(len(listing.files), 'file')}, {size / 1e9:.2f} GB, digests checked."
        )
        self.stdout.write(f"Next: TTS_CHECKPOINT={folder} ./tts doctor")

    def _declaration(self, source: ModelSource, folder: Path, chosen: Namespace) -> Declaration:
        """Return the folder's declaration, asked for if there is none yet."""
        known = read_declaration(folder)
        if known is not None and known.model == source.name:
            return known
        use = chosen.use or self._ask(source)
        try:
            user = chosen.declared_by or getpass.getuser()
        except (KeyError, OSError):  # a user id without a name, as in containers
            user = "unknown"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            return write_declaration(folder, source, use, user)
        except OSError as error:
            raise StepError("disk_error", f"{folder} cannot be written: {error}.") from error

    def _ask(self, source: ModelSource) -> str:
        """Let a person at a terminal declare the use; a program has to say it by an option."""
        if not sys.stdin.isatty():
            raise CommandError(
                f"{source.title} is under the {source.licence}. Declare your use with "
                "--yes-i-accept-the-research-licence (only research or non-commercial use) "
                "or --yes-i-have-a-written-licence (everything else, such as a hosted "
                "service)",
                returncode=2,
            )
        self._tell(
            f"{source.title} is under the {source.licence}. Research and non-commercial use "
            "are free. A hosted service or API, internal business use and any revenue need "
            "a written licence from the publisher. Your declaration is stored in "
            f"{DECLARATION_NAME}."
        )
        answers = dict(zip("12", USES, strict=True))
        for number, use in answers.items():
            self._tell(f"  {number}  {USES[use]}")
        self._tell("Type the number of your use. Anything else stops the command.")
        answer = sys.stdin.readline().strip()
        if answer not in answers:
            raise StepError("not_declared", "You declared no use, so nothing was downloaded.")
        return answers[answer]

    def _tell(self, line: str) -> None:
        """Write what is no result; it is no error either, so it is not shown in red."""
        self.stderr.write(line, str)
        self.stderr.flush()
