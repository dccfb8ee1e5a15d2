"""The page at the root says where to go and what speaks here."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client
from pytest_django import Settings


def test_the_page_leads_to_the_admin_and_the_schema_without_a_script() -> None:
    text = Client().get("/").content.decode()

    assert 'href="/admin/"' in text
    assert 'href="/api/v1/schema"' in text
    assert 'href="/api/v1/docs"' in text
    assert "<script" not in text
    assert "style=" not in text


def test_the_page_shows_the_card_as_text(settings: Settings, tmp_path: Path) -> None:
    settings.CHECKPOINT = tmp_path
    (tmp_path / "card.json").write_text(
        '{"name": "<b>Tiny</b>", "licence": "Apache-2.0", "description": "Robotic."}'
    )

    text = Client().get("/").content.decode()

    assert "&lt;b&gt;Tiny&lt;/b&gt;" in text
    assert "Apache-2.0" in text
    assert "Robotic." in text


@pytest.mark.parametrize("card", ["{", "[]", '{"name": 1}'])
def test_a_card_that_cannot_be_read_is_said_and_not_guessed(
    settings: Settings, tmp_path: Path, card: str
) -> None:
    settings.CHECKPOINT = tmp_path
    (tmp_path / "card.json").write_text(card)

    response = Client().get("/")

    assert response.status_code == 200
    assert "cannot be read" in response.content.decode()
