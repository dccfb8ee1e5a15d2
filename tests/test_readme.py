"""README.md says what is so: its settings, its commands and its links."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.core.management import get_commands

from ttsweb.configuration.tables import TABLES, env_example, put_table

PROJECT = Path(__file__).resolve().parent.parent
DOCUMENTS = (
    *("README.md", "docs/clients.md", "docs/operation.md", "docs/development.md"),
    *("CHANGELOG.md", "docker-compose.yml", "Dockerfile", "tts"),
)


def known_commands() -> set[str]:
    """Return the words that `./tts` takes; of a module's name both spellings."""
    names = set(get_commands()) | {"help"}
    return names | {name.replace("_", "-") for name in names}


@pytest.fixture(scope="module")
def readme() -> str:
    return (PROJECT / "README.md").read_text(encoding="utf-8")


def test_readme_is_read_in_one_sitting(readme: str) -> None:
    assert len(readme.splitlines()) <= 150


@pytest.mark.parametrize("document", TABLES)
def test_table_of_a_guide_is_the_one_of_the_code(document: str) -> None:
    guide = (PROJECT / document).read_text(encoding="utf-8")
    assert guide == put_table(guide, document), "run ./tts docs --write"


def test_env_example_is_the_one_of_the_code() -> None:
    text = (PROJECT / ".env.example").read_text(encoding="utf-8")
    assert text == env_example(), "run ./tts docs --write"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_that_a_document_names_exists(name: str) -> None:
    text = (PROJECT / name).read_text(encoding="utf-8")
    named = set(re.findall(r"(?:\./tts|manage\.py)[ \"',]+([a-z][a-z_-]*)", text))
    assert sorted(named - known_commands()) == []


def test_every_command_that_the_script_lists_exists() -> None:
    script = (PROJECT / "tts").read_text(encoding="utf-8")
    listed = re.findall(r"^  ([a-z][a-z-]*)  +[a-z]", script, re.MULTILINE)
    usual = {"demo", "say", "render", "serve", "worker", "doctor", "verify-golden", "bench", "test"}
    assert usual == set(listed)
    assert sorted(set(listed) - known_commands()) == []


@pytest.mark.parametrize("name", ["README.md", "docs/clients.md", "docs/operation.md"])
def test_every_setting_that_a_document_names_exists(name: str) -> None:
    table = (PROJECT / "docs/configuration.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(TTS_[A-Z0-9_]+)`", table, re.MULTILINE))
    text = (PROJECT / name).read_text(encoding="utf-8")
    named = {one for one in re.findall(r"TTS_[A-Z0-9_]+", text) if "TTS_TEST_" not in one}
    assert sorted(named - rows) == []


def test_every_relative_link_leads_to_a_file(readme: str) -> None:
    targets = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", readme)
    assert [target for target in targets if not (PROJECT / target).exists()] == []
