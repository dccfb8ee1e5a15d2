"""`./tts render --plan` prints the plan of a book without server, key or voice."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from ttsweb import settings
from ttsweb.commands.base import CommandError

BOOK = "tests/data/books/the-time-machine_standardebooks.epub"


@pytest.fixture(autouse=True)
def no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "API_KEY", "")
    monkeypatch.setattr(settings, "SERVER_URL", "http://127.0.0.1:9")


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


def test_a_plan_tells_who_could_speak_and_how_much_is_dialogue(tmp_path: Path) -> None:
    path = tmp_path / "talk.md"
    text = "# One\n\n<|speaker:Ann|>I was here.\n\n<|speaker:0|>“Come along now,” he said.\n"
    path.write_text(text, encoding="utf-8")
    arguments = (str(path), "--plan", "--dialogue-voice", "Bob", "--character", "ANN=Ada")
    answer, shown = json.loads(printed(*arguments, "--json")), printed(*arguments)
    found = [(one["name"], one["voice"], one["speeches"]) for one in answer["characters"]]
    assert found == [("Ann", "Ada", 1)]
    assert answer["dialogue"]["share"] > 0
    assert answer["totals"]["segments"] == 4
    assert "character" in shown
    assert "of the spoken text" in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--voice"),
        (("--plan", "--character", "ANN=Ada", "--character", "ANN=Bob"), "ANN has two voices"),
        *((("--plan", "--include", what), "not a part of this plan")
          for what in ("99", "nothing", "a:b", "")),
        (("--plan", "--include", "2:99"), r"bell\.html: "),
    ],
)  # fmt: skip
def test_wrong_arguments_are_an_error(
    tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    path = tmp_path / "bell.html"
    path.write_text(SITE)
    with pytest.raises(CommandError, match=words) as caught:
        printed(str(path), *arguments)
    assert caught.value.returncode == 2


SITE = """<html lang="en"><head><title>The Bell</title></head><body><header>My Site</header>
<h1>The Bell</h1><p>It rang in the night.</p><footer>Write to us</footer></body></html>"""


def test_what_is_left_out_is_listed_with_its_words_and_can_be_included(tmp_path: Path) -> None:
    path = tmp_path / "bell.html"
    path.write_text(SITE)

    shown = printed(str(path), "--plan")
    assert "My Site" in shown
    place = next(line.split(":")[:2] for line in shown.splitlines() if "Write to us" in line)
    what = ":".join(part.strip() for part in place)

    plan = json.loads(printed(str(path), "--plan", "--json", "--include", what))
    answer = {row["text"]: row["included"] for row in plan["skipped"]}
    assert answer["Write to us"] is True
    plan = json.loads(printed(str(path), "--plan", "--json", "--include", "site"))
    assert all(row["included"] for row in plan["skipped"])
    assert plan["completeness"]["skipped"] == {}
    plan = json.loads(printed(str(path), "--plan", "--json", "--exclude", "2:1"))
    reasons = {row["text"]: row["reason"] for row in plan["skipped"]}
    assert reasons == {"It rang in the night.": "excluded", "Write to us": "site"}
