"""The admin user and the demo voice: made once, kept afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from django.contrib.auth import get_user_model

from tests.factories import make_user
from ttsweb.commands.base import StepError
from voices.models import Voice, VoiceVersion
from voices.removal import delete_voice
from workers.local.demo import (
    DEMO_CLIP,
    find_or_make_admin,
    find_or_make_voice,
    newest_version,
)

pytestmark = pytest.mark.django_db


def test_admin_can_log_in_with_the_password_that_is_shown_once() -> None:
    user, password = find_or_make_admin()
    assert user.username == "admin" and user.is_superuser
    assert len(password) >= 16
    assert user.check_password(password)
    found, shown = find_or_make_admin()
    assert (found.pk, found.password, shown) == (user.pk, user.password, "")


def test_superuser_of_another_name_is_enough() -> None:
    owner = make_user("grace", is_superuser=True)
    found, password = find_or_make_admin()
    assert (found, password) == (owner, "")
    assert get_user_model().objects.count() == 1


def test_demo_voice_is_made_once_with_its_consent_and_again_where_need_be() -> None:
    user = make_user()
    made, found = (find_or_make_voice(DEMO_CLIP, user) for _ in range(2))
    assert made == found
    assert VoiceVersion.objects.count() == 1
    assert found.owner == user
    assert "no person" in found.consent_statement

    VoiceVersion.objects.update(status="failed", error_code="worker_lost")
    assert newest_version(find_or_make_voice(DEMO_CLIP, user)).status == "pending"
    voice = find_or_make_voice(replace(DEMO_CLIP, transcript="Something else."), user)
    assert Voice.objects.count() == 1
    assert newest_version(voice).number == 2
    delete_voice(voice)
    assert find_or_make_voice(DEMO_CLIP, user) != voice


@pytest.mark.parametrize(
    ("content", "code"), [(None, "clip_not_read"), (b"Not audio.", "clip_not_audio")]
)
def test_clip_that_cannot_be_used_is_told(tmp_path: Path, content: bytes | None, code: str) -> None:
    path = tmp_path / "clip.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StepError) as caught:
        find_or_make_voice(replace(DEMO_CLIP, path=path), make_user())
    assert caught.value.code == code
    assert Voice.objects.count() == 0
