from __future__ import annotations

import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

BOOK = "tests/data/books/the-time-machine_standardebooks.epub"


@pytest.fixture(autouse=True)
def no_server(settings: Any) -> None:
    settings.API_KEY = ""
    settings.SERVER_URL = "http://127.0.0.1:9"


def printed(*arguments: str) -> str:
    out = StringIO()
    call_command("render", *arguments, stdout=out)
    return out.getvalue()


def test_a_plan_needs_neither_server_nor_key_nor_voice() -> None:
    plan = json.loads(printed(BOOK, "--plan", "--json"))

    read = [row["title"] for row in plan["chapters"] if row["included"]]
    assert read[:3] == ["I", "II", "III"]
    assert read[-1] == "Epilogue"
    assert len(read) == plan["totals"]["chapters"] == 13
    assert plan["totals"]["segments"] > 1000
    assert plan["completeness"]["is_complete"] is True


def test_a_plan_for_people_names_chapters_reasons_and_hours() -> None:
    shown = printed(BOOK, "--plan")

    assert "The Time Machine by H. G. Wells" in shown
    assert "Imprint (licence)" in shown
    assert "13 chapters" in shown
    assert "3:1" in shown


def test_a_plan_for_people_fits_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / "book.md"
    path.write_text(
        "# Contents\n\nOne\n\n# A chapter " + "of many words " * 20 + "\n\nText \ufffd here.\n\n"
        "# Another " + "title that is long " * 9 + "\n\n" + "word " * 1500
    )

    for shown in (printed(BOOK, "--plan"), printed(str(path), "--plan")):
        lines = shown.splitlines()
        assert max(map(len, lines)) <= 80
        assert all(any(c.isalnum() for c in line) for line in lines if line)
    assert "(contents)" in shown


def test_rules_and_pace_change_the_plan() -> None:
    calm = json.loads(printed(BOOK, "--plan", "--json", "--chars-per-second", "10"))
    noted = json.loads(printed(BOOK, "--plan", "--json", "--plan-notes", "inline"))

    assert calm["totals"]["hours"] > noted["totals"]["hours"] * 1.4
    assert noted["rules"]["notes"] == "inline"
    assert calm["completeness"]["spoken"] < noted["completeness"]["spoken"]


def test_a_file_that_is_no_book_is_told_with_its_code(tmp_path: Path) -> None:
    path = tmp_path / "broken.epub"
    path.write_bytes(b"PK\3\4 and no more")
    out = StringIO()

    with pytest.raises(CommandError) as caught:
        call_command("render", str(path), "--plan", "--json", stdout=out)

    assert json.loads(out.getvalue())["error"]["code"] == str(caught.value).partition(":")[0]
    assert caught.value.returncode == 1


def test_rendering_still_asks_for_a_voice() -> None:
    with pytest.raises(CommandError) as caught:
        call_command("render", BOOK)

    assert caught.value.returncode == 2
    assert "--voice" in str(caught.value)


def test_a_plan_tells_who_could_speak_and_how_much_is_dialogue(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    path.write_text(
        "# One\n\n<|speaker:Ann|>I was here.\n\n<|speaker:0|>“Come along now,” he said.\n",
        encoding="utf-8",
    )
    arguments = (str(path), "--plan", "--dialogue-voice", "Bob", "--character", "ANN=Ada")

    told, shown = json.loads(printed(*arguments, "--json")), printed(*arguments)

    found = [(one["name"], one["voice"], one["speeches"]) for one in told["characters"]]
    assert found == [("Ann", "Ada", 1)]
    assert told["dialogue"]["share"] > 0
    assert told["totals"]["segments"] == 4
    assert "character" in shown
    assert "of what is spoken" in shown


def test_two_voices_for_one_character_are_a_usage_error(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    path.write_text("Words.", encoding="utf-8")

    with pytest.raises(CommandError) as caught:
        printed(str(path), "--plan", "--character", "ANN=Ada", "--character", "ANN=Bob")

    assert caught.value.returncode == 2
