"""What a client's name of a voice means: a voice, an alias, a default voice, or nothing."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from tests.factories import logged_in, make_staff, make_user, make_version, make_voice
from ttsweb.refusals import SubmitRejectedError
from voices.access import WELL_KNOWN, default_voices, find_named_voice
from voices.models import Voice, VoiceAlias, VoiceVersion
from voices.objects import delete_voice

pytestmark = pytest.mark.django_db(transaction=True)

PAGE = "/admin/voices/voicealias/"


@pytest.fixture
def user() -> User:
    return make_user("ann")


def made(name: str, age: int, **fields: Any) -> Voice:
    """Make a voice that is so many hours old."""
    voice = make_voice(name, **fields)
    Voice.objects.filter(pk=voice.pk).update(created_at=timezone.now() - dt.timedelta(hours=age))
    return voice


def refusal(user: User, name: str, **how: bool) -> SubmitRejectedError:
    with pytest.raises(SubmitRejectedError) as caught:
        find_named_voice(user, name, **how)
    return caught.value


def test_default_voices_are_everybody_s_then_one_s_own_oldest_first(user: User) -> None:
    other = make_user()
    made("Own", 9, owner=user)
    made("Own too", 8, owner=user)
    made("Built in", 2)
    made("Shared", 3, owner=other, shared=True)
    made("Another's", 10, owner=other)
    for name in ("Archived", "Withdrawn"):
        made(name, 11)
    Voice.objects.filter(name="Archived").update(archived=True)
    Voice.objects.filter(name="Withdrawn").update(consent_withdrawn_at=timezone.now())
    make_version(make_voice("Encoding", versions=0), status=VoiceVersion.Status.PENDING)
    make_version(make_voice("Failed", versions=0), status=VoiceVersion.Status.FAILED)
    again = made("Failed later", 1)
    make_version(again, status=VoiceVersion.Status.FAILED)

    names = ["Shared", "Built in", "Own", "Own too"]
    assert [voice.name for voice in default_voices(user)] == names
    boss = make_user(is_superuser=True)
    assert [voice.name for voice in default_voices(boss)] == names[:2]
    found = [find_named_voice(user, name).name for name in WELL_KNOWN]
    assert found == (names * 4)[:13]
    assert find_named_voice(user, "ALLOY").name == "Shared"


def test_alias_comes_before_the_default_and_a_real_name_before_the_alias(user: User) -> None:
    ada, bob = made("Ada", 3), made("Bob", 2)
    private = made("Private", 9, owner=make_user())
    VoiceAlias.objects.create(name="alloy", voice=bob)
    VoiceAlias.objects.create(name="narrator", voice=ada)
    VoiceAlias.objects.create(name="ash", voice=private)

    for name, voice in (
        ("Alloy", bob), ("alloy", bob), ("NARRATOR", ada), ("bob", bob), (str(ada.pk), ada),
        ("ash", bob),  # the second of the default voices, as this user may not use the other one
    ):  # fmt: skip
        assert find_named_voice(user, name) == voice, name
    nova = made("Nova", 1)
    VoiceAlias.objects.create(name="nova", voice=ada)
    assert find_named_voice(user, "nova") == nova
    delete_voice(bob)
    assert not VoiceAlias.objects.filter(name="alloy").exists()
    assert find_named_voice(user, "alloy") == ada


def test_unknown_name_is_refused_with_those_that_are_near(user: User) -> None:
    for name in ("Ada", "Adam", "Zoe"):
        make_voice(name)
    made("Adda", 1, owner=make_user())  # which this user may not know of

    near, far = refusal(user, "Addam"), refusal(user, "af_bella")
    assert near.code == far.code == "voice_not_found"
    assert "Similar names: Adam, Ada." in str(near)
    assert "Similar" not in str(far) and "GET /v1/audio/voices" in str(far)
    assert refusal(user, "alloy", may_default=False).code == "voice_not_found"


def test_without_a_voice_that_can_speak_the_refusal_says_what_to_do(user: User) -> None:
    none = refusal(user, "alloy")
    assert (none.code, none.retry_after) == ("voices_not_ready", None)
    assert "make one in the admin" in str(none)
    make_version(make_voice("Soon", versions=0), status=VoiceVersion.Status.ENCODING)
    soon = refusal(user, "alloy")
    assert (soon.code, soon.retry_after) == ("voices_not_ready", 2)


def rows(*pairs: tuple[str, str], **more: str) -> dict[str, str]:
    """Return what the form sends of these names and voices."""
    values = {"names-TOTAL_FORMS": str(len(pairs)), "names-INITIAL_FORMS": "0"}
    for index, (name, voice) in enumerate(pairs):
        values |= {f"names-{index}-name": name, f"names-{index}-voice": voice}
    return values | more


def shown(browser: Client) -> dict[str, tuple[str, str]]:
    """Return for each name on the page the chosen voice, and what no choice means."""
    rows = browser.get(PAGE).context["rows"]
    return {
        str(row["name"].value() or ""): (
            row["voice"].value() or "", row.fields["voice"].choices[0][1].removeprefix("Default: ")
        )
        for row in rows
    }  # fmt: skip


def test_page_shows_what_names_mean_and_one_form_sets_them() -> None:
    browser = logged_in()
    ada, bob = made("Ada", 3), made("Bob", 2)

    before = shown(browser)
    assert list(before)[:13] == list(WELL_KNOWN)
    assert [before[name][1] for name in WELL_KNOWN] == ["Ada", "Bob"] * 6 + ["Ada"]
    answer = browser.post(
        PAGE, rows(("alloy", str(bob.pk)), ("ash", ""), (" Narrator ", str(ada.pk)), ("", ""))
    )

    assert (answer.status_code, answer.headers["Location"]) == (302, PAGE)
    found = dict(VoiceAlias.objects.values_list("name", "voice__name"))
    assert found == {"alloy": "Bob", "narrator": "Ada"}
    after = shown(browser)
    assert (after["alloy"], after["narrator"]) == ((str(bob.pk), "Ada"), (str(ada.pk), "-"))
    same = rows(*((name, voice) for name, (voice, _) in after.items()))
    browser.post(PAGE, same)
    assert dict(VoiceAlias.objects.values_list("name", "voice__name")) == found
    assert "A voice of this name speaks." not in browser.get(PAGE).content.decode()
    make_voice("Nova")
    assert "A voice of this name speaks." in browser.get(PAGE).content.decode()
    browser.post(PAGE, rows(("alloy", ""), ("narrator", str(bob.pk))))
    found = dict(VoiceAlias.objects.values_list("name", "voice__name"))
    assert found == {"narrator": "Bob"}


def test_row_that_cannot_be_meant_is_refused_and_nothing_is_changed() -> None:
    browser, ada = logged_in(), make_voice("Ada")
    VoiceAlias.objects.create(name="alloy", voice=ada)
    for wrong, words in (
        ([("", str(ada.pk))], "Give a name to this row"),
        ([("nova", str(ada.pk)), ("NOVA", "")], "nova: each name may stand here only once"),
        ([("nova", "3f662d3d-42ae-436f-af86-d2be87c536c3")], "Select a valid choice"),
        ([("x" * 101, str(ada.pk))], "at most 100 characters"),
    ):
        page = browser.post(PAGE, rows(*wrong))
        assert (page.status_code, words in page.content.decode()) == (200, True), wrong
    assert list(VoiceAlias.objects.values_list("name", flat=True)) == ["alloy"]


def test_staff_see_and_change_as_their_permissions_say() -> None:
    ada = make_voice("Ada")
    change = rows(("alloy", str(ada.pk)))
    for permissions, see, save in (
        ((), 403, 403), (("view_voicealias",), 200, 403), (("change_voicealias",), 200, 302),
    ):  # fmt: skip
        browser = logged_in(make_staff(*permissions))
        codes = (browser.get(PAGE).status_code, browser.post(PAGE, change).status_code)
        assert codes == (see, save), permissions
    assert VoiceAlias.objects.get().voice == ada
