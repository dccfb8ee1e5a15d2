"""Hold checkpoint cards to their fields."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from synth.card import MAX_CARD_BYTES, Card, CardError, read_card

PROJECT = Path(__file__).resolve().parents[2]
GOOD: dict[str, Any] = {"name": "Tiny", "licence": "CC0"}


def write(folder: Path, content: dict[str, Any] | str, *, stamp: int = 1) -> Path:
    text = content if isinstance(content, str) else json.dumps(content)
    path = folder / "card.json"
    path.write_text(text, encoding="utf-8")
    os.utime(path, ns=(stamp, stamp))
    return path


def refusal(folder: Path) -> str:
    with pytest.raises(CardError, match=r"card\.json") as caught:
        read_card(folder)
    return str(caught.value)


def test_given_fields_replace_the_documented_defaults_and_the_others_stay(tmp_path: Path) -> None:
    card = read_card(tmp_path / "s2-pro")
    assert card == Card(name="s2-pro")
    assert (card.segment_chars, card.temperature, card.top_p, card.top_k) == (300, 0.8, 0.8, 30)

    write(tmp_path, GOOD | {"segment_chars": 60, "languages": ["en", "pt-BR"], "top_p": 1})
    assert read_card(tmp_path) == Card(
        name="Tiny", licence="CC0", segment_chars=60, languages=("en", "pt-BR"), top_p=1
    )


def test_the_card_that_ships_with_the_project_is_valid() -> None:
    card = read_card(PROJECT / "synth" / "demo")
    assert card.segment_chars == 60
    assert card.description


def test_changed_card_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    write(tmp_path, GOOD, stamp=1)
    first = read_card(tmp_path)
    assert read_card(tmp_path) is first
    write(tmp_path, GOOD | {"name": "Next"}, stamp=2)
    assert read_card(tmp_path).name == "Next"


WRONG: dict[str, list[object]] = {
    "name": ["", 5, "x" * 101],
    "licence": [None],
    "speaks": [1],
    "quality_screen": ["no", None],
    "description": [[]],
    "languages": ["en", ["e"], [["en"]]],
    "segment_chars": [19, 60.0, True],
    "temperature": [0, 2, float("nan"), True],
    "top_p": [1.01, "0.8"],
    "top_k": [0, 65, None],
}


@pytest.mark.parametrize("field", WRONG)
def test_bad_value_is_an_error_that_names_file_and_field(tmp_path: Path, field: str) -> None:
    for stamp, value in enumerate(WRONG[field]):
        path = write(tmp_path, GOOD | {field: value}, stamp=stamp)
        said = refusal(tmp_path)
        assert str(path) in said and field in said, value


def test_missing_or_unknown_field_is_an_error_that_names_it(tmp_path: Path) -> None:
    for stamp, field in enumerate(("name", "licence")):
        write(tmp_path, {name: GOOD[name] for name in GOOD if name != field}, stamp=stamp)
        assert field in refusal(tmp_path)
    write(tmp_path, GOOD | {"segment_char": 60}, stamp=9)
    assert "segment_chars" in refusal(tmp_path)  # it lists the fields


def test_file_that_is_no_json_object_is_an_error(tmp_path: Path) -> None:
    texts = ("", "[1]", "{", '"x"', "[" * 90_000, " " * MAX_CARD_BYTES + "{}")
    for stamp, text in enumerate(texts):
        write(tmp_path, text, stamp=stamp)
        refusal(tmp_path)
