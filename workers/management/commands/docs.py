"""Keep what is generated from the settings, two tables and `.env.example`, up to date."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from synth.contract import Limits
from synth.jobs.options import OPTIONS, Option
from ttsweb import settings as settings  # its readers fill the list that is documented
from ttsweb.commands.base import BaseCommand, CommandError
from ttsweb.configuration.env import PROJECT_DIR, SETTINGS, SettingSpec


class MissingBlockError(ValueError):
    """The text has no place for a table."""


def settings_table() -> str:
    """Return a Markdown table with a row for each setting, in the order of their reading.

    The settings must have been read before: a row is entered by the reader of its value.
    """
    rows = [_row(spec) for spec in SETTINGS.values()]
    return "\n".join(["| Setting | Default | Allowed | Meaning |", "|---|---|---|---|", *rows])


def env_example() -> str:
    """Return the text of `.env.example`: each setting with its default, commented out."""
    parts = [
        "# Copy to .env and remove the # before each setting that you change; variables of "
        "the environment take precedence.",
        "# Made by `./tts docs --write`; docs/configuration.md has the same settings as a table.",
    ]
    for spec in SETTINGS.values():
        if spec.before_start:
            continue
        # What the default says in words is worth a word here; a plain value is shown below.
        default = "" if spec.example or not spec.default else f" Default: {spec.default}."
        allowed = f" Allowed: {spec.allowed}." if spec.allowed else ""
        note = f"{spec.help}{default}{allowed}".replace("`", "")
        parts.append(f"\n# {note}\n#{spec.name}={spec.example}")
    return "\n".join(parts) + "\n"


def options_table() -> str:
    rows = [f"| `{one.name}` | {_meaning(one)} |" for one in OPTIONS.values()]
    return "\n".join(["| Option | What it is |", "|---|---|", *rows])


def _meaning(one: Option) -> str:
    """Return an option's values and its sentence, with a link to the heading that says more."""
    parts = [one.help]
    if isinstance(one.value, Limits) and not one.choices:
        parts.insert(0, f"{one.value.words.capitalize()}.")
    elif isinstance(one.value, Mapping):
        parts.insert(0, f"{', '.join(f'`{name}`' for name in one.value)}.")
    if one.see:
        parts.append(f"See [{one.see}](#{one.see.lower().replace(' ', '-').replace(',', '')}).")
    return " ".join(parts)


# The documents with the marks of their tables, and what makes the tables.
TABLES = {
    "docs/configuration.md": ("settings", settings_table),
    "docs/api.md": ("options", options_table),
}


def put_table(text: str, document: str) -> str:
    """Return the text of a document with its table put between its two marks.

    Raises:
        MissingBlockError: the marks are not there, once each and in order.
    """
    name, make = TABLES[document]
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    head, begin, rest = text.partition(opening)
    _, end, tail = rest.partition(closing)
    if not begin or not end or opening in rest or closing in tail:
        where = Path(document).name
        sentence = f"{where}: expected one line {opening} and below it one line {closing}"
        raise MissingBlockError(sentence)
    return f"{head}{opening}\n{make()}\n{closing}{tail}"


def stale_files(project: Path, *, write: bool) -> list[str]:
    """Return the names of the generated files that differ from the code; mend them if `write`.

    Raises:
        OSError: a document cannot be read, or a file cannot be written.
        MissingBlockError: a document has no place for its table.
    """
    wanted = {name: put_table((project / name).read_text("utf-8"), name) for name in TABLES}
    wanted[".env.example"] = env_example()
    stale = []
    for name, text in wanted.items():
        path = project / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if write:
            path.write_text(text, encoding="utf-8")
    return stale


def _row(spec: SettingSpec) -> str:
    default = f"`{spec.default}`" if spec.example else spec.default
    cells = (f"`{spec.name}`", default or "not set", spec.allowed or spec.kind, spec.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


class Command(BaseCommand):
    help = "Write or check the tables of settings and .env.example."
    needs_django = False

    def add_arguments(self, parser: ArgumentParser) -> None:
        way = parser.add_mutually_exclusive_group(required=True)
        way.add_argument("--write", action="store_true", help="write the files that differ")
        way.add_argument("--check", action="store_true", help="exit with 1 if a file differs")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            stale = stale_files(PROJECT_DIR, write=options["write"])
        except OSError as error:
            raise CommandError(f"{Path(str(error.filename)).name}: {error}") from error
        except MissingBlockError as error:
            raise CommandError(str(error)) from error
        if stale and options["check"]:
            raise CommandError(f"{' and '.join(stale)} differ: run ./tts docs --write")
        self.stdout.write(f"written: {', '.join(stale)}" if stale else "up to date")
