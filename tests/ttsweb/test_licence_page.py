"""The licence page says what is owed where such weights are loaded, and nothing elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings

from tests.factories import make_user
from ttsweb.configuration.env import PROJECT_DIR
from ttsweb.pages.licence import is_fish_audio

BUILT_WITH = "Built with Fish Audio"
S2_CONFIG = {"model_type": "fish_qwen3_omni"}


def make_checkpoint(folder: Path, config: object, card: object = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config))
    if card is not None:
        (folder / "card.json").write_text(json.dumps(card))
    return folder


@pytest.mark.parametrize(
    ("card", "is_theirs"),
    [
        (None, True),
        ({"name": "Fish Audio S2 Pro", "licence": "Fish Audio Research License"}, True),
        ({"name": "mine", "licence": "fish audio, written licence of 2026"}, True),
        ({"name": "mine", "licence": "Apache-2.0"}, False),
        ({"licence": 5}, True),  # a card that says nothing cannot free the weights
    ],
)
def test_whose_weights_they_are_is_told_by_card_then_by_the_type_of_model(
    tmp_path: Path, card: object, is_theirs: bool
) -> None:
    assert is_fish_audio(make_checkpoint(tmp_path, S2_CONFIG, card)) is is_theirs


@pytest.mark.parametrize("config", [{"model_type": "other"}, [], "{"])
def test_another_model_without_a_card_is_not_theirs(tmp_path: Path, config: object) -> None:
    assert not is_fish_audio(make_checkpoint(tmp_path, config))


def test_a_folder_that_is_missing_is_not_theirs(tmp_path: Path) -> None:
    assert not is_fish_audio(tmp_path / "nowhere")


@pytest.mark.parametrize("path", ["/about", "/licences"])
def test_their_weights_are_named_on_both_public_pages(
    settings: Settings, tmp_path: Path, path: str
) -> None:
    settings.CHECKPOINT = make_checkpoint(tmp_path, S2_CONFIG)

    response = Client().get(path)

    assert response.status_code == 200
    assert BUILT_WITH in response.content.decode()


@pytest.mark.parametrize("path", ["/about", "/licences"])
def test_with_the_built_in_model_no_page_speaks_of_fish_audio_s_licence(
    settings: Settings, path: str
) -> None:
    settings.CHECKPOINT = PROJECT_DIR / "synth" / "demo"

    text = Client().get(path).content.decode()

    assert BUILT_WITH not in text
    assert "Research License" not in text


def test_parts_are_listed_with_licences_under_the_strict_policy() -> None:
    response = Client().get("/licences")

    text = response.content.decode()
    assert "FFmpeg with x264 and x265" in text
    assert "Django</th><td>BSD-3-Clause" in text
    assert "<script" not in text
    assert "style=" not in text
    assert "unsafe" not in response.headers["Content-Security-Policy"]


def test_a_card_that_cannot_be_read_leaves_the_page_whole(
    settings: Settings, tmp_path: Path
) -> None:
    settings.CHECKPOINT = make_checkpoint(tmp_path, S2_CONFIG)
    (tmp_path / "card.json").write_text("{")

    response = Client().get("/licences")

    assert response.status_code == 200
    assert "cannot be read" in response.content.decode()


def test_it_is_only_read() -> None:
    assert Client().post("/licences").status_code == 405


@pytest.mark.django_db
def test_every_page_of_the_site_leads_to_it() -> None:
    page = Client()
    page.force_login(make_user(is_superuser=True))

    assert 'href="/licences"' in page.get("/about").content.decode()
    assert 'href="/licences"' in page.get("/admin/").content.decode()
    assert 'href="/licences"' in page.get("/studio").content.decode()
