"""What the guides name exists: routes, commands, settings, codes and files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.urls import resolve
from drf_spectacular.generators import SchemaGenerator

from tests.browser.test_pages import PAGES
from tests.test_readme import PROJECT, known_commands
from ttsweb.client import Client
from ttsweb.configuration.env import SETTINGS

GUIDES = sorted((PROJECT / "docs").glob("*.md"))
# The pages that show requests; one of them is the guide, the others have the rules of a subject.
API_PAGES = (
    *("api.md", "voices.md", "audio.md", "quality.md", "books-api.md", "lexicons.md"),
    *("webhooks.md", "accounts.md", "errors.md"),
)
SAMPLE_ID = "7ef65327-2515-439f-be13-a942a8da4e3a"
ONLY_CLIENT = {"TTS_API_KEY", "TTS_URL"}
NUMBERED = {"USER_ID", "GROUP_ID", "SEGMENT", "ENTRY"}  # the others are UUIDs


# Those of the REST framework itself; each is sent by a serializer or by the framework's views.
FRAMEWORK_CODES = {
    *("required", "null", "blank", "empty", "invalid_choice", "min_value", "max_value"),
    *("max_length", "not_a_list", "parse_error", "unsupported_media_type", "not_acceptable"),
    *("method_not_allowed", "not_authenticated", "authentication_failed"),
}
REFUSALS = {
    *("ApiProblem", "SubmitRejectedError", "RetryRefusedError", "ChangeRefusedError"),
    *("KeyLimitError", "KeyRejectedError", "LexiconError", "BadLine", "FileRefusedError"),
    *("ClipRejectedError", "ImportRefusedError", "ItemError", "RuleError", "TextRejectedError"),
    *("FetchError", "ErrorDetail", "ValidationError", "_send_problem", "problem_body"),
}
CODE = re.compile(r"[a-z]+(_[a-z0-9]+)+")
NO_CODES = {"custom_id", "not_text"}  # names of fields among the arguments


def read(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


def read_api_pages() -> str:
    return "\n".join(read(name) for name in API_PAGES)


@cache
def api_paths() -> frozenset[str]:
    """Return the paths that the API's description has; that of `openapi.yaml` is held to it."""
    described: dict[str, Any] = SchemaGenerator().get_schema(public=True)  # type: ignore[no-untyped-call]  # theirs
    return frozenset(path for path in described["paths"] if path.startswith("/api/v1/"))


def _as_template(path: str) -> str:
    return re.sub(r"\{[a-z_]+\}|\$[A-Z_]+", "{}", path)


def _sources(*parts: str) -> Iterator[ast.AST]:
    """Yield the parsed modules of these folders; the engine knows nothing of requests."""
    for part in parts:
        for path in (PROJECT / part).rglob("*.py"):
            if "migrations" not in path.parts and "client" not in path.name:
                yield ast.parse(path.read_text(encoding="utf-8"))


def codes_of_refusals() -> set[str]:
    """Return the codes that web code gives to the exceptions that become problems."""
    found: set[str] = set()
    trees = _sources("ttsweb", "voices", "synth")
    for node in (node for tree in trees for node in ast.walk(tree)):
        if not isinstance(node, ast.Call) or _name(node.func) not in REFUSALS:
            continue
        values = [*node.args[:3], *(word.value for word in node.keywords if word.arg == "code")]
        texts = {one.value for one in values if isinstance(one, ast.Constant)}
        found |= {text for text in texts if isinstance(text, str) and CODE.fullmatch(text)}
    return found - NO_CODES


def _name(function: ast.expr) -> str:
    return getattr(function, "id", getattr(function, "attr", ""))


def strings_of_the_code() -> set[str]:
    return {
        node.value
        for tree in _sources("ttsweb", "voices", "synth", "workers")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_every_address_that_the_api_guide_asks_leads_to_a_view() -> None:
    addresses = set(re.findall(r'"\$TTS_URL(/[^"?]*)', read_api_pages()))
    assert len(addresses) >= 50
    for address in addresses:
        resolve(re.sub(r"\$([A-Z_]+)", _sample, address))  # raises where there is none


def _sample(variable: re.Match[str]) -> str:
    return "7" if variable[1] in NUMBERED else SAMPLE_ID


def test_every_path_of_the_api_is_asked_in_its_guide() -> None:
    asked = {_as_template(path) for path in re.findall(r'"\$TTS_URL(/[^"?]*)', read_api_pages())}
    assert sorted({_as_template(path) for path in api_paths()} - asked) == []


def test_every_path_under_api_that_the_guide_asks_is_described() -> None:
    asked = {
        _as_template(path) for path in re.findall(r'"\$TTS_URL(/api/[^"?]*)', read_api_pages())
    }
    assert sorted(asked - {_as_template(path) for path in api_paths()}) == []


def test_codes_of_refusals_are_those_of_the_guide_s_table() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|", read("errors.md"), re.MULTILINE)
    answer = {code for row in rows for code in re.findall(r"`([a-z0-9_]+)`", row)}
    raised, written = codes_of_refusals(), strings_of_the_code()
    assert len(raised) >= 150
    assert sorted(raised - answer) == []
    assert sorted(answer - written - FRAMEWORK_CODES) == []


def test_every_method_that_the_api_guide_calls_is_the_client_s() -> None:
    called = set(re.findall(r"\btts\.(\w+)\.(\w+)\(", read_api_pages()))
    assert len(called) >= 12
    with Client("http://127.0.0.1:1", "tts_sample") as client:
        for part, method in called:
            assert callable(getattr(getattr(client, part), method))


def test_api_guide_is_read_in_one_sitting() -> None:
    assert len(read("api.md").encode()) <= 25_000


@pytest.mark.parametrize(
    "name", ["api.md", "voices.md", "audio.md", "quality.md", "books-api.md", "clients.md"]
)
def test_python_of_a_guide_is_python(name: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", read(name), re.DOTALL)
    assert blocks
    for block in blocks:
        compile(block, name, "exec")


def test_every_code_that_the_install_guide_names_is_said_by_the_code() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+) \|", read("install.md"), re.MULTILINE)
    codes = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    source = "".join(
        path.read_text(encoding="utf-8") for path in (PROJECT / "workers/local").glob("model_*.py")
    )
    assert len(codes) >= 8
    assert sorted(code for code in codes if f'"{code}"' not in source) == []


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_commands_settings_and_files_of_a_guide_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    commands = set(re.findall(r"\./tts ([a-z][a-z_-]*)", text))
    settings = {name for name in re.findall(r"\bTTS_[A-Z0-9_]+", text) if "TTS_TEST_" not in name}
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", text)

    assert sorted(commands - known_commands()) == []
    assert sorted(settings - set(SETTINGS) - ONLY_CLIENT) == []
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_each_picture_is_shown_by_the_admin_s_guide_and_small() -> None:
    pictures = sorted((PROJECT / "docs" / "images").glob("*"))
    assert len(pictures) >= 8
    for picture in pictures:
        assert f"](images/{picture.name})" in read("admin.md")
        assert picture.stat().st_size <= 120_000


def test_each_picture_of_the_admin_s_guide_is_made_by_a_browser_s_test() -> None:
    shown = set(re.findall(r"\]\(images/([a-z-]+)\.png\)", read("admin.md")))
    tests = [path.read_text("utf-8") for path in (PROJECT / "tests/browser").glob("test_*.py")]
    keeps = r'(?:picture\((?:admin|studio)|assert_fit_for_all\(\w+, site\.url), "([a-z-]+)"\)'
    made = set(re.findall(keeps, "".join(tests)))
    looked_at = {f"{name}{mode}" for name in PAGES for mode in ("", "-dark", "-phone")}
    assert sorted(shown - made - looked_at) == []


@pytest.mark.parametrize("path", [PROJECT / "README.md", *GUIDES], ids=lambda path: path.name)
def test_links_into_a_document_lead_to_a_heading_of_it(path: Path) -> None:
    links = re.findall(r"\]\((?!https?:)([^)#\s]*)#([^)\s]+)\)", path.read_text(encoding="utf-8"))
    lost = [
        (file, anchor)
        for file, anchor in links
        if anchor not in headings(path.parent / file if file else path)
    ]
    assert lost == []


def headings(path: Path) -> set[str]:
    """Return the anchors of a document's headings, as the usual renderers make them."""
    found = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in found}
