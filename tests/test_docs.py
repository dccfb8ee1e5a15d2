"""What the guides name exists: routes, commands, settings, codes and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.urls import resolve

from tests.test_readme import PROJECT, known_commands
from ttsweb.client import Client
from ttsweb.setting_specs import SETTINGS

GUIDES = sorted((PROJECT / "docs").glob("*.md"))
SAMPLE_ID = "7ef65327-2515-439f-be13-a942a8da4e3a"
ONLY_CLIENT = {"TTS_API_KEY", "TTS_URL"}


def read(name: str) -> str:
    return (PROJECT / "docs" / name).read_text(encoding="utf-8")


def test_every_address_that_the_api_guide_asks_leads_to_a_view() -> None:
    addresses = set(re.findall(r'"\$TTS_URL(/[^"?]*)', read("api.md")))

    assert len(addresses) >= 8
    for address in addresses:
        resolve(re.sub(r"\$(JOB|VOICE)", SAMPLE_ID, address))  # raises where there is none


def test_every_method_that_the_api_guide_calls_is_the_client_s() -> None:
    called = set(re.findall(r"\btts\.(voices|jobs)\.(\w+)\(", read("api.md")))

    assert len(called) >= 6
    with Client("http://127.0.0.1:1", "tts_sample") as client:
        for part, method in called:
            assert callable(getattr(getattr(client, part), method))


@pytest.mark.parametrize("name", ["api.md"])
def test_python_of_a_guide_is_python(name: str) -> None:
    blocks = re.findall(r"```python\n(.*?)```", read(name), re.DOTALL)

    assert len(blocks) >= 3
    for block in blocks:
        compile(block, name, "exec")


def test_every_code_that_the_install_guide_names_is_said_by_the_code() -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+) \|", read("install.md"), re.MULTILINE)
    codes = {code for row in rows for code in re.findall(r"`([a-z_]+)`", row)}
    source = "".join(
        path.read_text(encoding="utf-8") for path in (PROJECT / "workers/model_pull").glob("*.py")
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
