"""The voice pages of the admin: what a form saves, what it refuses, what its actions do."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from pytest_django import Settings

from synth.models import RenderJob
from tests.factories import logged_in, make_job, make_staff, make_user, make_voice
from tests.voices.clips import CLIP, OTHER_CLIP, Listing, upload
from voices.models import ReferenceClip, Voice, VoiceVersion
from voices.submit import NewClip, create_voice

pytestmark = pytest.mark.django_db(transaction=True)

LIST = "/admin/voices/voice/"
ADD = f"{LIST}add/"


@pytest.fixture
def staff() -> User:
    return make_user("boss", is_superuser=True)


@pytest.fixture
def page(staff: User) -> Client:
    return logged_in(staff)


@pytest.fixture
def voice() -> Voice:
    clips = [NewClip("Hello there.", "ada.wav", CLIP)]
    return create_voice(name="Ada", consent_statement="She agreed.", by="somebody", clips=clips)


def change_url(voice: Voice) -> str:
    return reverse("admin:voices_voice_change", args=[voice.pk])


def form(*rows: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """Return what a browser would send of the page with these rows."""
    values: dict[str, Any] = {
        "name": "Ada", "language": "en", "description": "", "cache_codes": "on",
        "consent_statement": "She agreed.", "clips-TOTAL_FORMS": str(len(rows)),
        "clips-INITIAL_FORMS": "0", "versions-TOTAL_FORMS": "0", "versions-INITIAL_FORMS": "0",
    }  # fmt: skip
    for index, row in enumerate(rows):
        values |= {f"clips-{index}-{name}": value for name, value in row.items()}
    return {name: value for name, value in (values | changed).items() if value is not None}


def new_row(**changed: Any) -> dict[str, Any]:
    return {"audio": upload(), "transcript": "First."} | changed


def second_row() -> dict[str, Any]:
    return new_row(audio=upload(OTHER_CLIP, "b.flac"), transcript="Second.")


def present_row(voice: Voice, **changed: Any) -> dict[str, Any]:
    clip = ReferenceClip.objects.filter(version__voice=voice).order_by("-version__number")[0]
    return {"clip": str(clip.pk), "transcript": clip.transcript} | changed


def errors_of(response: Any) -> str:
    context = response.context
    found = [str(context["adminform"].form.errors)]
    for inline in context["inline_admin_formsets"]:
        found += [str(inline.formset.errors), str(inline.formset.non_form_errors())]
    return " ".join(found)


def test_a_saved_form_makes_a_voice_that_waits_for_the_encoder(
    page: Client, staff: User, sent_encodings: Listing
) -> None:
    response = page.post(ADD, form(new_row(), second_row()), follow=True)

    assert "being encoded" in response.content.decode()
    voice = Voice.objects.get()
    assert (voice.owner, voice.consent_by, voice.language) == (staff, "boss", "en")
    version = VoiceVersion.objects.get()
    assert [clip.transcript for clip in version.clips.all()] == ["First.", "Second."]
    assert version.sent_at is not None
    assert len(sent_encodings()) == 1


def test_an_unchanged_page_and_a_changed_name_make_no_version(
    page: Client, voice: Voice, sent_encodings: Listing
) -> None:
    response = page.post(change_url(voice), form(present_row(voice)))
    assert response.status_code == 302
    assert VoiceVersion.objects.count() == len(sent_encodings()) == 1
    page.post(change_url(voice), form(present_row(voice), name="Eve", cache_codes=None))
    assert Voice.objects.values_list("name", "cache_codes").get() == ("Eve", False)
    assert VoiceVersion.objects.count() == 1


def test_other_clips_or_transcripts_in_the_rows_make_the_next_version(
    page: Client, voice: Voice, sent_encodings: Listing
) -> None:
    def save(*rows: dict[str, Any]) -> tuple[int, list[tuple[str, str]]]:
        page.post(change_url(voice), form(*rows))
        newest = voice.versions.order_by("-number")[0]
        return newest.number, [(clip.filename, clip.transcript) for clip in newest.clips.all()]

    assert save(present_row(voice, transcript="Other.")) == (2, [("ada.wav", "Other.")])
    assert len(sent_encodings()) == 2
    two = [("ada.wav", "Other."), ("b.flac", "Second.")]
    assert save(present_row(voice), second_row()) == (3, two)
    assert save(present_row(voice, DELETE="on"), second_row()) == (4, two[1:])
    assert save(present_row(voice, audio=upload())) == (5, [("ada.wav", "Second.")])
    assert ReferenceClip.objects.get(version__number=5).stored.container == "wav"


def test_another_consent_statement_is_kept_with_who_gave_it(page: Client, voice: Voice) -> None:
    page.post(change_url(voice), form(present_row(voice), consent_statement="Agreed again."))
    voice.refresh_from_db()
    assert (voice.consent_statement, voice.consent_by) == ("Agreed again.", "boss")


@pytest.mark.parametrize(
    ("row", "changed", "sentence"),
    [
        ({"transcript": "Hello."}, {}, "Choose a clip."),
        (new_row(audio=upload(b"text " * 99)), {}, "not an audio file"),
        (new_row(audio=upload(b"")), {}, "empty file"),
        (new_row(transcript="  "), {}, "needs a transcript"),
        (new_row(transcript="\x07"), {}, "control characters"),
        (new_row(), {"consent_statement": ""}, "required"),
        (new_row(), {"language": "not a tag"}, "language tag"),
        ({}, {}, "at least one clip"),
        ({"clip": "not-an-id", "transcript": "Hello."}, {}, "Choose a clip."),
    ],
)
def test_a_refused_form_says_why_and_leaves_nothing(
    page: Client, row: dict[str, Any], changed: dict[str, Any], sentence: str,
    stored_objects: Listing,
) -> None:  # fmt: skip
    response = page.post(ADD, form(row, **changed))
    assert response.status_code == 200
    assert sentence in errors_of(response)
    assert not Voice.objects.exists()
    assert stored_objects() == []


def test_the_clip_of_another_voice_cannot_be_taken_over(page: Client, voice: Voice) -> None:
    clips = [NewClip("Hi.", "e.flac", OTHER_CLIP)]
    other = create_voice(name="Eve", consent_statement="Yes.", by="x", clips=clips)
    response = page.post(change_url(voice), form(present_row(other)))
    assert "Choose a clip." in errors_of(response)
    assert voice.versions.count() == 1


def test_a_taken_name_is_refused_in_whatever_case(page: Client, staff: User) -> None:
    make_voice("Ada", owner=staff)
    response = page.post(ADD, form(new_row(), name="ADA"))
    assert "Another voice has this name; choose another name." in errors_of(response)


def test_clips_above_a_limit_are_refused(page: Client, settings: Settings) -> None:
    settings.MAX_CLIPS_PER_VOICE = 1
    assert "At most 1 clips" in errors_of(page.post(ADD, form(new_row(), second_row())))

    settings.MAX_CLIP_BYTES = len(CLIP) - 1
    response = page.post(ADD, form(new_row()))
    assert response.status_code == 413
    assert "larger than" in response.content.decode()
    assert not Voice.objects.exists()


def test_a_full_disk_is_a_message_and_nothing_is_saved(page: Client, full_disk: None) -> None:
    response = page.post(ADD, form(new_row()), follow=True)
    assert "Not saved: No space left on device." in response.content.decode()
    assert not Voice.objects.exists()


def test_the_page_shows_error_warnings_and_measures(page: Client, voice: Voice) -> None:
    stored = ReferenceClip.objects.get().stored
    stored.measures = {"duration_seconds": 1.5, "sample_rate": 44100}
    stored.save()
    VoiceVersion.objects.update(
        status="failed",
        error_code="clip_silent",
        error_message="Nothing is heard.",
        warnings=[{"code": "clip_short", "message": "Short."}],
    )

    text = page.get(change_url(voice)).content.decode()

    for shown in ("clip_silent", "Nothing is heard.", "Short.", "1.5 s", "44100 Hz"):
        assert shown in text
    assert f"/api/v1/voices/{voice.pk}/audio?clip=0" in text


def test_text_of_a_voice_is_never_markup(page: Client, voice: Voice) -> None:
    ReferenceClip.objects.update(filename="<script>a</script>", transcript="<b>bold</b>")
    VoiceVersion.objects.update(status="failed", error_message="<i>no</i>")
    Voice.objects.update(name="<u>name</u>")
    text = page.get(change_url(voice)).content.decode() + page.get(LIST).content.decode()
    for markup in ("<script>a", "<b>bold", "<i>no", "<u>name"):
        assert markup not in text


def test_the_player_plays_with_the_session_of_the_admin(page: Client, voice: Voice) -> None:
    response: Any = page.get(f"/api/v1/voices/{voice.pk}/audio?clip=0")
    assert response.status_code == 200
    assert b"".join(response.streaming_content) == CLIP


def test_encode_again_enqueues_ready_voices_and_names_waiting_ones(
    page: Client, sent_encodings: Listing
) -> None:
    ready, waiting = make_voice(), make_voice(ready=False)
    data = {"action": "encode_again", "_selected_action": [str(ready.pk), str(waiting.pk)]}
    text = page.post(LIST, data, follow=True).content.decode()
    assert ready.versions.get().sent_at is not None
    assert len(sent_encodings()) == 1
    assert "1 voice: queued to be encoded again." in text
    assert f"{waiting.name}: already waiting to be encoded." in text


@pytest.mark.parametrize("way", ["page", "list"])
def test_deleted_voice_loses_its_bytes_keeps_its_row_and_fails_the_work_that_needs_it(
    page: Client, voice: Voice, stored_objects: Listing, way: str
) -> None:
    job = make_job(voice=voice)
    url = reverse("admin:voices_voice_delete", args=[voice.pk])
    assert page.get(url).status_code == 200
    chosen = {"action": "delete_selected", "_selected_action": [str(voice.pk)]}

    page.post(*((url, {"post": "yes"}) if way == "page" else (LIST, chosen | {"post": "yes"})))

    voice.refresh_from_db()
    job.refresh_from_db()
    assert voice.deleted_at is not None
    assert job.status == RenderJob.Status.FAILED
    assert stored_objects() == []
    assert f"/admin/voices/voice/{voice.pk}/change/" not in page.get(LIST).content.decode()


def test_who_may_only_look_sees_no_form_and_changes_nothing(voice: Voice) -> None:
    page = logged_in(make_staff("view_voice"))
    assert page.get(change_url(voice)).status_code == 200
    assert page.get(ADD).status_code == 403
    response = page.post(change_url(voice), form(present_row(voice, transcript="Other.")))
    assert response.status_code == 403
    assert VoiceVersion.objects.count() == 1


@pytest.fixture
def ada_user() -> User:
    return make_user("ada")


@pytest.fixture
def clerk() -> User:
    return make_staff(username="staff", about="voice")


def test_staff_changes_own_voices_alone(clerk: User, ada_user: User) -> None:
    page = logged_in(clerk)
    voices = [
        make_voice("hidden", owner=ada_user), make_voice("shared", owner=ada_user, shared=True),
        make_voice("own", owner=clerk),
    ]  # fmt: skip
    hidden, shared, own = paths = [change_url(voice) for voice in voices]
    listed = page.get(LIST).content.decode()

    assert [path for path in paths if path in listed] == [shared, own]
    assert page.get(hidden).status_code == 302
    shown = page.get(shared)
    assert (shown.status_code, b'name="transcript' in shown.content) == (200, False)
    assert b'type="submit"' not in shown.content or b'name="_save"' not in shown.content
    assert page.post(shared, {"name": "mine"}).status_code == 403
    assert page.post(shared.replace("change", "delete"), {"post": "yes"}).status_code == 403
    assert b'name="_save"' in page.get(own).content


@pytest.mark.parametrize("action", ["encode_again", "archive", "delete_selected"])
def test_action_on_many_leaves_voices_of_others(clerk: User, ada_user: User, action: str) -> None:
    shared = make_voice("shared", owner=ada_user, shared=True)
    own = make_voice("own", owner=clerk)

    def rows() -> Any:
        return Voice.objects.filter(pk=shared.pk).values().get(), list(shared.versions.values())

    before = rows()
    chosen = {"action": action, "_selected_action": [shared.pk, own.pk], "post": "yes"}
    logged_in(clerk).post(LIST, chosen)
    assert rows() == before


def test_form_takes_a_name_that_another_user_has(clerk: User, ada_user: User) -> None:
    make_voice("Eve", owner=ada_user)
    own = make_voice("own", owner=clerk)
    make_voice("taken", owner=own.owner)
    form = logged_in(clerk).get(change_url(own)).context["adminform"].form
    assert type(form)(form.initial | {"name": "eve"}, instance=own).errors.get("name") is None
    assert type(form)(form.initial | {"name": "TAKEN"}, instance=own).errors["name"]
