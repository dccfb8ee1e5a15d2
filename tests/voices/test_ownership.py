"""Voices belong to users: who sees them, who changes them, and what a name means."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from typing import Any

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.models import ApiKey, RenderJob
from tests.answers import refusal_of
from tests.factories import make_job, make_user, make_voice
from tests.synth.test_key_views import client_with
from tests.voices.clips import (
    CLIP,
    CODEC,
    OTHER_CLIP,
    Listing,
    give_codes,
    start_worker,
    upload,
    voice_fields,
)
from ttsweb.refusals import SubmitRejectedError
from voices.access import find_voice, visible_voices
from voices.models import ClipCodes, StoredClip, Voice, VoiceVersion
from voices.submit import NewClip, create_voice

pytestmark = pytest.mark.django_db(transaction=True)

URL = "/api/v1/voices"


def make(client: APIClient, name: str = "Ada") -> Any:
    return client.post(URL, voice_fields(name=name), format="multipart")


@pytest.fixture
def ada_user() -> User:
    return make_user("ada")


@pytest.fixture
def bob_user() -> User:
    return make_user("bob")


@pytest.fixture
def ada(ada_user: User) -> APIClient:
    return client_with(ada_user)


@pytest.fixture
def bob(bob_user: User) -> APIClient:
    return client_with(bob_user)


def changes_of(client: APIClient, voice_id: Any) -> list[tuple[int, str]]:
    """Return status and code of every way to change a voice."""
    path = f"{URL}/{voice_id}"
    clip = {"audio": upload(OTHER_CLIP), "transcript": "Other."}
    answers = [
        client.patch(path, {"description": "Other."}),
        client.patch(path, {"shared": True}),
        client.patch(path, clip, format="multipart"),
        client.post(f"{path}/encode"),
        client.delete(path),
        client.delete(f"/v1/audio/voices/{voice_id}"),
    ]
    return [refusal_of(answer) for answer in answers]


def test_voice_is_its_makers_alone_unless_it_is_shared(ada: APIClient, bob: APIClient) -> None:
    made = make(ada).json()
    path = f"{URL}/{made['id']}"

    assert (made["shared"], made["owner"]) == (False, "ada")
    assert bob.get(URL).json()["results"] == []
    assert bob.get("/v1/audio/voices").json()["voices"] == []
    for hidden in (path, f"{path}/audio", f"{path}/export", f"/v1/audio/voices/{made['id']}"):
        assert bob.get(hidden).status_code == 404, hidden
    assert ada.patch(path, {"shared": True}).json()["shared"] is True
    assert [one["id"] for one in bob.get(URL).json()["results"]] == [made["id"]]
    assert bob.get(f"{path}/audio").status_code == 200


@pytest.mark.parametrize(
    ("is_owned", "is_shared", "refusal"),
    [
        (True, False, (404, "voice_not_found")), (True, True, (403, "voice_not_yours")),
        (False, False, (403, "voice_not_yours")),
    ],
)  # fmt: skip
def test_voice_is_changed_by_its_owner_and_superusers_alone(
    ada_user: User, bob: APIClient, is_owned: bool, is_shared: bool, refusal: tuple[int, str]
) -> None:
    voice = make_voice("Ada", owner=ada_user if is_owned else None, shared=is_shared)

    def rows() -> Any:
        return list(Voice.objects.values()), list(VoiceVersion.objects.values())

    before = rows()
    assert set(changes_of(bob, voice.pk)) == {refusal}
    assert rows() == before
    boss = make_user("boss", is_superuser=True)
    plain = client_with(boss).patch(f"{URL}/{voice.pk}", {"language": "en"})
    assert refusal_of(plain) == refusal
    admin = client_with(boss, "read", "voices", "admin")
    assert admin.patch(f"{URL}/{voice.pk}", {"language": "en"}).status_code == 200


def test_superuser_sees_private_voices_with_the_scope_admin_alone(ada_user: User) -> None:
    voice = make_voice("Ada", owner=ada_user)
    boss = make_user("boss", is_superuser=True)
    assert client_with(boss).get(f"{URL}/{voice.pk}").status_code == 404
    assert client_with(boss, "read", "admin").get(f"{URL}/{voice.pk}").status_code == 200
    assert voice in visible_voices(boss)


def test_public_names_are_those_that_all_may_use(ada_user: User, settings: Settings) -> None:
    settings.OPENAI_PUBLIC_VOICES = True
    make_voice("private", owner=ada_user)
    make_voice("shared", owner=ada_user, shared=True)
    make_voice("built in")
    names = [one["name"] for one in APIClient().get("/v1/audio/voices").json()["voices"]]
    assert names == ["built in", "shared"]


def test_archived_and_shared_are_set_and_filtered_by(ada: APIClient, ada_user: User) -> None:
    first = make_voice("first", owner=ada_user)
    make_voice("second", owner=ada_user, shared=True)
    assert ada.patch(f"{URL}/{first.pk}", {"archived": True}).json()["archived"] is True
    for query, expected in (("archived=true", ["first"]), ("shared=true", ["second"])):
        found = ada.get(f"{URL}?{query}").json()["results"]
        assert [one["name"] for one in found] == expected
    assert ada.get(f"{URL}?shared=maybe").status_code == 400


@pytest.mark.parametrize("field", ["shared", "archived"])
def test_flag_that_is_none_is_refused(ada: APIClient, ada_user: User, field: str) -> None:
    path = f"{URL}/{make_voice(owner=ada_user).pk}"
    values: list[Any] = [None, "maybe", 3, [], {}]
    for value in values:
        answer = ada.patch(path, {field: value}, format="json")
        assert answer.status_code == 400, value
        assert answer.json()["errors"][0]["attr"].startswith(field), value


# --- names ---------------------------------------------------------------------------------------


def test_two_users_may_give_one_name_and_neither_sees_the_others(
    ada: APIClient, bob: APIClient
) -> None:
    assert make(ada, "Eve").status_code == 202
    assert make(bob, "eve").status_code == 202
    assert refusal_of(make(bob, "EVE")) == (409, "voice_name_taken")


def test_name_means_ones_own_voice_then_the_built_in_then_the_shared_one(
    ada_user: User, bob_user: User
) -> None:
    private = make_voice("Eve", owner=make_user())
    for wanted in ("Eve", str(private.pk)):
        with pytest.raises(SubmitRejectedError, match="voice"):
            find_voice(ada_user, wanted)
    assert find_voice(None, "Eve") == private
    shared = make_voice("Eve", owner=bob_user, shared=True)
    assert find_voice(ada_user, "eve") == shared
    built_in = make_voice("EVE")
    assert find_voice(ada_user, "eve") == built_in
    own = make_voice("eve", owner=ada_user)
    assert find_voice(ada_user, "Eve") == own
    assert find_voice(bob_user, "eve") == shared
    assert find_voice(ada_user, str(shared.pk)) == shared


def test_name_that_two_others_share_is_refused_and_the_id_works(
    ada: APIClient, ada_user: User
) -> None:
    both = [make_voice("Eve", owner=make_user(), shared=True) for _ in range(2)]

    for path, body in (
        ("/api/v1/jobs", {"text": "Hello.", "voice": "eve"}),
        ("/v1/audio/speech", {"model": "tts-1", "input": "Hello.", "voice": "eve"}),
    ):
        answer = ada.post(path, body, format="json")
        assert refusal_of(answer) == (409, "voice_ambiguous_name"), path
        assert "id" in json.dumps(answer.json()), path
    assert not RenderJob.objects.exists()
    by_id = ada.post("/api/v1/jobs", {"text": "Hello.", "voice": str(both[0].pk)}, format="json")
    assert by_id.status_code == 202


def test_list_tells_which_voice_a_name_means(ada: APIClient, ada_user: User) -> None:
    others = [make_voice("Eve", owner=make_user(), shared=True) for _ in range(2)]
    path = f"{URL}?means=eve"

    assert refusal_of(ada.get(path)) == (409, "voice_ambiguous_name")
    own = make_voice("eve", owner=ada_user)
    assert [one["id"] for one in ada.get(path).json()["results"]] == [str(own.pk)]
    by_id = ada.get(f"{URL}?means={others[0].pk}&shared=true").json()["results"]
    assert [one["id"] for one in by_id] == [str(others[0].pk)]
    assert ada.get(f"{URL}?means=Nobody").json()["results"] == []
    assert ada.get(f"{URL}?means=%00").status_code == 400


def test_job_is_not_tried_again_with_a_voice_that_is_shared_no_more(
    ada: APIClient, ada_user: User
) -> None:
    voice = make_voice("Eve", owner=make_user(), shared=True)
    job = make_job(voice=voice, owner=ada_user, status="failed", segments_failed=1)
    job.segments.update(status="failed")
    Voice.objects.update(shared=False)

    refused = ada.post(f"/api/v1/jobs/{job.pk}/retry")
    Voice.objects.update(shared=True)
    taken = ada.post(f"/api/v1/jobs/{job.pk}/retry")

    assert refusal_of(refused) == (409, "voice_not_shared")
    assert taken.status_code == 202


# --- clips ---------------------------------------------------------------------------------------


def test_clip_that_another_user_has_is_as_new_as_any(
    ada: APIClient, bob: APIClient, stored_objects: Listing
) -> None:
    """Neither codes, measures nor a quick answer tell that somebody else has the same bytes."""
    start_worker()
    make(ada)
    known = StoredClip.objects.get()
    give_codes(known)
    StoredClip.objects.update(measures={"duration_seconds": 1.0})

    shown = make(bob, "Mine").json()

    assert shown["clips"][0]["measures"] == {}
    assert StoredClip.objects.filter(fingerprint=known.fingerprint).count() == 2
    exported: Any = bob.get(f"{URL}/{shown['id']}/export")
    archive = b"".join(exported.streaming_content)
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        assert not [name for name in file.namelist() if name.startswith("codes/")]
    sent = bob.post(
        f"{URL}/import",
        {"archive": upload(archive, "v.zip"), "name": "Again", "shared": "true"},
        format="multipart",
    )
    assert (sent.status_code, sent.json()["shared"]) == (202, True)
    assert make(ada, "Again").status_code == 202
    assert StoredClip.objects.count() == 2, "one user's clips are stored once"


def test_codes_that_one_user_imports_are_not_another_ones(ada_user: User, bob_user: User) -> None:
    first, hers = (
        create_voice(
            name="Ada", consent_statement="Yes.", by="x", owner=owner,
            clips=[NewClip("Hello.", content=CLIP)],
        ).versions.get().clips.get().stored
        for owner in (bob_user, ada_user)
    )  # fmt: skip
    give_codes(first)
    assert first.fingerprint == hashlib.sha256(CLIP).hexdigest()
    assert not ClipCodes.objects.filter(clip=hers, codec_fingerprint=CODEC).exists()


# --- a user who goes -----------------------------------------------------------------------------


def test_voices_of_a_deleted_user_go_and_are_nobody_elses(
    ada: APIClient, ada_user: User, bob: APIClient, bob_user: User, stored_objects: Listing
) -> None:
    make(ada, "Built in")
    voice = Voice.objects.get()
    job = make_job(voice=voice, owner=bob_user)
    make_voice("Built in")  # without its owner the other one would have this name twice

    ada_user.delete()

    voice.refresh_from_db()
    job.refresh_from_db()
    assert (voice.deleted_at is None, job.status) == (False, RenderJob.Status.FAILED)
    assert bob.get(f"{URL}/{voice.pk}").status_code == 404
    assert stored_objects() == []
    assert not ApiKey.objects.filter(user__username="ada").exists()
