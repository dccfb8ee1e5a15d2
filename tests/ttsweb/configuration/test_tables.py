"""The table of settings and `.env.example`, as they are made from the register."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.management import call_command

from synth.jobs.options import OPTIONS
from ttsweb.commands.base import CommandError
from ttsweb.configuration import tables
from ttsweb.configuration.env import SETTINGS, SettingSpec, read_dotenv
from ttsweb.configuration.tables import (
    MissingBlockError,
    env_example,
    options_table,
    put_table,
    settings_table,
    stale_files,
)

FILES = ["docs/configuration.md", "docs/api.md", ".env.example"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/api.md").write_text("<!-- options -->\n<!-- /options -->\n")
    guide = "# Name\n<!-- settings -->\nold\n<!-- /settings -->\nend\n"
    (tmp_path / "docs/configuration.md").write_text(guide)
    return tmp_path


def test_table_has_one_row_for_each_setting() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) == len(SETTINGS)
    assert [row.split("`")[1] for row in rows] == list(SETTINGS)


def test_table_has_one_row_for_each_option_with_its_limits() -> None:
    rows = options_table().splitlines()[2:]
    assert [row.split("`")[1] for row in rows] == list(OPTIONS)
    assert any("number greater than 0 and less than 2" in row for row in rows)


def test_cell_with_a_bar_does_not_end_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "TTS_X", SettingSpec("TTS_X", "text", "", "", "a | b"))
    assert settings_table().splitlines()[-1] == r"| `TTS_X` | not set | text | a \| b |"


def test_env_example_with_every_mark_taken_away_is_a_good_env_file(tmp_path: Path) -> None:
    lines = [
        line.removeprefix("#") if line.startswith("#TTS_") else line
        for line in env_example().splitlines()
    ]
    (tmp_path / ".env").write_text("\n".join(lines))
    variables = read_dotenv(tmp_path / ".env")

    expected = {name: spec.example for name, spec in SETTINGS.items() if not spec.before_start}
    assert variables == expected


def test_env_example_sets_nothing_as_it_is(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(env_example())
    assert read_dotenv(tmp_path / ".env") == {}


def test_writing_mends_what_checking_found(project: Path) -> None:
    assert stale_files(project, write=False) == FILES
    assert not (project / ".env.example").exists()
    assert stale_files(project, write=True) == FILES

    assert stale_files(project, write=False) == []
    guide = (project / "docs/configuration.md").read_text()
    assert guide.startswith("# Name\n<!-- settings -->\n| Setting |")
    assert guide.endswith("|\n<!-- /settings -->\nend\n")


@pytest.mark.parametrize(
    "text",
    [
        "nothing", "<!-- settings -->", "<!-- /settings --> <!-- settings -->",
        "<!-- settings --> <!-- settings --> <!-- /settings -->",
    ],
)  # fmt: skip
def test_document_without_one_place_for_the_table_is_refused(text: str) -> None:
    with pytest.raises(MissingBlockError, match="expected one line"):
        put_table(text, "docs/configuration.md")


def test_check_command_fails_until_the_files_are_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tables, "PROJECT_DIR", project)
    with pytest.raises(CommandError, match=r"docs/configuration\.md and docs/api\.md and"):
        call_command("docs", "--check")
    call_command("docs", "--write")
    call_command("docs", "--check")
    assert capsys.readouterr().out == f"written: {', '.join(FILES)}\nup to date\n"


def test_check_command_without_a_document_ends_with_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PROJECT_DIR", tmp_path)
    with pytest.raises(CommandError, match=r"configuration\.md: .*No such file"):
        call_command("docs", "--check")


def test_marks_are_comments_in_markdown() -> None:
    for document, name in (("docs/configuration.md", "settings"), ("docs/api.md", "options")):
        with pytest.raises(MissingBlockError, match=f"<!-- {name} --> .* <!-- /{name} -->"):
            put_table("", document)
