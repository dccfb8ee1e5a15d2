"""What the documents name exists: routes, commands, settings, files; tables are the code's."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.core.management import get_commands
from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator

from tests.browser.test_pages import PAGES
from tests.sources import PROJECT
from ttsweb.client import Client
from ttsweb.configuration.env import SETTINGS
from workers.management.commands.docs import TABLES, env_example, put_table

GUIDES = sorted((PROJECT / "docs").glob("*.md"))
DOCUMENTS = [PROJECT / "README.md", *GUIDES]
FILES = [PROJECT / name for name in ("CHANGELOG.md", "docker-compose.yml", "Dockerfile", "tts")]
# The pages that show requests; one of them is the guide, the others have the rules of a subject.
API_PAGES = (
    *("api.md", "voices.md", "audio.md", "quality.md", "books-api.md", "lexicons.md"),
    *("webhooks.md", "accounts.md", "errors.md"),
)
SAMPLE_ID = "7ef65327-2515-439f-be13-a942a8da4e3a"
NUMBERED = {"USER_ID", "GROUP_ID", "SEGMENT", "ENTRY"}  # the others are UUIDs


def read(name: str) -> str:
    return (PROJECT / name).read_text(encoding="utf-8")


@cache
def addresses_asked() -> frozenset[str]:
    """Return the paths of the requests that the guide of the API and its further pages show."""
    pages = "".join(read(f"docs/{name}") for name in API_PAGES)
    return frozenset(re.findall(r'"\$TTS_URL(/[^"?]*)', pages))


def as_template(path: str) -> str:
    return re.sub(r"\{[a-z_]+\}|\$[A-Z_]+", "{}", path)


def known_commands() -> set[str]:
    """Return the words that `./tts` takes; of a module's name both spellings."""
    names = set(get_commands()) | {"help"}
    return names | {name.replace("_", "-") for name in names}


def test_every_address_that_the_api_guide_asks_leads_to_a_view() -> None:
    assert len(addresses_asked()) >= 50
    for address in addresses_asked():  # resolve() raises where there is none
        resolve(re.sub(r"\$([A-Z_]+)", lambda m: "7" if m[1] in NUMBERED else SAMPLE_ID, address))


def test_paths_of_the_api_are_those_that_its_guide_asks() -> None:
    described: dict[str, Any] = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]  # theirs
    paths = {as_template(path) for path in described["paths"] if path.startswith("/api/v1/")}
    asked = {as_template(path) for path in addresses_asked()}
    assert sorted(paths - asked) == []
    assert sorted({path for path in asked if path.startswith("/api/")} - paths) == []


def test_every_method_that_the_api_guide_calls_is_the_client_s() -> None:
    pages = "".join(read(f"docs/{name}") for name in API_PAGES)
    called = set(re.findall(r"\btts\.(\w+)\.(\w+)\(", pages))
    assert len(called) >= 12
    with Client("http://127.0.0.1:1", "tts_sample") as client:
        for part, method in called:
            assert callable(getattr(getattr(client, part), method))


def test_documents_are_read_in_one_sitting() -> None:
    assert len(read("docs/api.md").encode()) <= 25_000
    assert len(read("README.md").splitlines()) <= 150


@pytest.mark.parametrize(
    "name", ["api.md", "voices.md", "audio.md", "quality.md", "books-api.md", "clients.md"]
)
def test_python_of_a_guide_is_python(name: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", read(f"docs/{name}"), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, name, "exec")


def test_every_code_that_the_install_guide_names_is_said_by_the_code() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+) \|", read("docs/install.md"), re.MULTILINE)
    codes = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    source = "".join(
        path.read_text(encoding="utf-8") for path in (PROJECT / "workers/local").glob("model_*.py")
    )
    assert len(codes) >= 8
    assert sorted(code for code in codes if f'"{code}"' not in source) == []


@pytest.mark.parametrize("path", [*DOCUMENTS, *FILES], ids=lambda path: path.name)
def test_commands_that_a_file_names_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:\./tts|manage\.py)[ \"',]+([a-z][a-z_-]*)", text))
    assert sorted(named - known_commands()) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_settings_files_and_headings_that_a_document_names_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    settings = {name for name in re.findall(r"\bTTS_[A-Z0-9_]+", text) if "TTS_TEST_" not in name}
    links = re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", text)

    assert sorted(settings - set(SETTINGS)) == []
    assert [file for file, _ in links if not (path.parent / file).exists()] == []
    lost = [
        (file, anchor)
        for file, anchor in links
        if anchor and anchor not in headings(path.parent / file if file else path)
    ]
    assert lost == []


def headings(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as the usual renderers make them."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}


def test_every_command_that_the_script_lists_exists() -> None:
    listed = re.findall(r"^  ([a-z][a-z-]*)  +[a-z]", read("tts"), re.MULTILINE)
    usual = {"demo", "say", "render", "serve", "worker", "doctor", "verify-golden", "bench", "test"}
    assert usual == set(listed)
    assert sorted(set(listed) - known_commands()) == []


@pytest.mark.parametrize("document", TABLES)
def test_table_of_a_guide_is_the_one_of_the_code(document: str) -> None:
    assert read(document) == put_table(read(document), document), "run ./tts docs --write"


def test_env_example_is_the_one_of_the_code() -> None:
    assert read(".env.example") == env_example(), "run ./tts docs --write"


def test_each_picture_is_shown_by_the_admin_s_guide_small_and_made_by_a_browser_s_test() -> None:
    guide, pictures = read("docs/admin.md"), sorted((PROJECT / "docs" / "images").glob("*.png"))
    assert len(pictures) >= 8
    for picture in pictures:
        assert f"](images/{picture.name})" in guide
        assert picture.stat().st_size <= 120_000
    shown = set(re.findall(r"\]\(images/([a-z-]+)\.png\)", guide))
    tests = [path.read_text("utf-8") for path in (PROJECT / "tests/browser").glob("test_*.py")]
    keeps = r'(?:picture\((?:admin|studio)|assert_fit_for_all\(\w+, site\.url), "([a-z-]+)"\)'
    made = set(re.findall(keeps, "".join(tests)))
    looked_at = {f"{name}{mode}" for name in PAGES for mode in ("", "-dark", "-phone")}
    assert sorted(shown - made - looked_at) == []
