"""The settings as the documentation shows them: two tables and `.env.example`."""

from __future__ import annotations

from pathlib import Path

from ttsweb.configuration.specs import SETTINGS, SettingSpec

BEGIN, END = "<!-- settings -->", "<!-- /settings -->"
TABLES = ("README.md", "docs/configuration.md")


class MissingBlockError(ValueError):
    """The text has no place for the table of settings."""


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
        "# Made by `./tts docs --write`; README.md has the same settings as a table.",
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


def with_settings_table(text: str) -> str:
    """Return `text` with the table put between its two marks.

    Raises:
        MissingBlockError: the marks are not there, once each and in order.
    """
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end or BEGIN in rest or END in tail:
        raise MissingBlockError(f"expected one line {BEGIN} and below it one line {END}")
    return f"{head}{BEGIN}\n{settings_table()}\n{END}{tail}"


def stale_files(project: Path, *, write: bool) -> list[str]:
    """Return the names of the generated files that differ from the settings; mend them if `write`.

    Raises:
        OSError: a document cannot be read, or a file cannot be written.
        MissingBlockError: a document has no place for the table.
    """
    wanted = {name: _with_table(project / name) for name in TABLES}
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


def _with_table(path: Path) -> str:
    """Return a document with the table in it; an error names the document."""
    try:
        return with_settings_table(path.read_text(encoding="utf-8"))
    except MissingBlockError as error:
        raise MissingBlockError(f"{path.name}: {error}") from error


def _row(spec: SettingSpec) -> str:
    """Return one row of the table; a `|` inside a cell would end it."""
    default = f"`{spec.default}`" if spec.example else spec.default
    cells = (f"`{spec.name}`", default or "not set", spec.allowed or spec.kind, spec.help)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
