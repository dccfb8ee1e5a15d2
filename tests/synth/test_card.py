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


def test_folder_without_a_card_gets_the_documented_defaults(tmp_path: Path) -> None:
    card = read_card(tmp_path / "s2-pro")

    assert card == Card(name="s2-pro")
    assert (card.segment_chars, card.temperature, card.top_p, card.top_k) == (300, 0.8, 0.8, 30)


def test_given_fields_replace_the_defaults_and_the_others_stay(tmp_path: Path) -> None:
    write(tmp_path, GOOD | {"segment_chars": 60, "languages": ["en", "pt-BR"], "top_p": 1})

    card = read_card(tmp_path)

    assert card == Card(
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


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", ""),
        ("name", 5),
        ("name", "x" * 101),
        ("licence", None),
        ("speaks", 1),
        ("quality_screen", "no"),
        ("quality_screen", None),
        ("description", []),
        ("languages", "en"),
        ("languages", ["e"]),
        ("languages", [["en"]]),
        ("segment_chars", 19),
        ("segment_chars", 60.0),
        ("segment_chars", True),
        ("temperature", 0),
        ("temperature", 2),
        ("temperature", float("nan")),
        ("temperature", True),
        ("top_p", 1.01),
        ("top_p", "0.8"),
        ("top_k", 0),
        ("top_k", 65),
        ("top_k", None),
    ],
)
def test_bad_value_is_an_error_that_names_file_and_field(
    tmp_path: Path, field: str, value: object
) -> None:
    path = write(tmp_path, GOOD | {field: value})

    with pytest.raises(CardError) as caught:
        read_card(tmp_path)

    assert str(path) in str(caught.value)
    assert field in str(caught.value)


@pytest.mark.parametrize("field", ["name", "licence"])
def test_missing_required_field_is_an_error(tmp_path: Path, field: str) -> None:
    write(tmp_path, {name: value for name, value in GOOD.items() if name != field})

    with pytest.raises(CardError, match=field):
        read_card(tmp_path)


@pytest.mark.parametrize("text", ["", "[1]", "{", '"x"', "[" * 90_000, " " * MAX_CARD_BYTES + "{}"])
def test_file_that_is_no_json_object_is_an_error(tmp_path: Path, text: str) -> None:
    write(tmp_path, text)

    with pytest.raises(CardError, match=r"card\.json"):
        read_card(tmp_path)


def test_unknown_field_is_an_error_that_lists_the_fields(tmp_path: Path) -> None:
    write(tmp_path, GOOD | {"segment_char": 60})

    with pytest.raises(CardError, match="segment_chars"):
        read_card(tmp_path)
