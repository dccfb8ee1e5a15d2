"""Each changing request leaves one row that says who, what, when and from where, and no words."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from pytest_django import Settings
from rest_framework.test import APIClient

from synth.accounts import sign_in
from synth.accounts.access import create_key
from synth.jobs import submit
from synth.models import AuditEntry, RenderJob, SignInTry
from tests.answers import refusal_of
from tests.api.routes import client_with
from tests.factories import make_user, make_voice
from ttsweb import leases
from ttsweb.refusals import SubmitRejectedError

pytestmark = pytest.mark.django_db
SECRET = "A marked sentence that nobody else may read."


@pytest.fixture
def keyed(job_services: None) -> tuple[Any, Any, APIClient]:
    user = make_user("ann")
    row, key = create_key(user, "reader of " + SECRET, scopes=["read", "jobs", "voices"])
    return user, row, APIClient(HTTP_AUTHORIZATION=f"Bearer {key}")


def test_a_request_with_a_key_is_written_down_without_its_words(
    keyed: tuple[Any, Any, APIClient],
) -> None:
    user, key, client = keyed
    voice = make_voice("Ada", shared=True)

    made = client.post(
        reverse("jobs"), {"text": SECRET, "voice": "Ada"}, REMOTE_ADDR="10.1.2.3",
        HTTP_X_FORWARDED_FOR="1.2.3.4",
    )  # fmt: skip
    refused = client.patch(reverse("voice", args=[voice.pk]), {"name": SECRET})
    client.get(reverse("jobs"))
    client.get(reverse("jobs"), {"q": SECRET})

    changed, posted = AuditEntry.objects.all()
    assert (posted.user_id, posted.username) == (user.pk, "ann")
    assert (posted.key_id, posted.key_prefix) == (key.pk, key.prefix)
    assert (posted.method, posted.route, posted.status) == ("POST", "jobs", 202)
    assert posted.ids == {"id": made.json()["id"]}
    assert posted.address == "10.1.2.3"  # nobody said that there is a proxy
    assert abs(posted.created_at - leases.database_now()) < dt.timedelta(minutes=1)
    assert changed.ids == {"voice_id": str(voice.pk)}
    assert changed.status == refused.status_code
    assert SECRET not in json.dumps(list(AuditEntry.objects.values()), default=str)


def test_address_is_the_last_one_that_a_trusted_proxy_tells(
    keyed: tuple[Any, Any, APIClient], settings: Settings
) -> None:
    settings.BEHIND_HTTPS_PROXY = True

    keyed[2].post(reverse("preview"), {}, HTTP_X_FORWARDED_FOR="6.6.6.6, 10.9.9.9")

    assert AuditEntry.objects.get().address == "10.9.9.9"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/v1/audio/speech", {"input": SECRET, "model": "tts-1", "voice": "Ada"}),
        ("/v1/tts", {"text": SECRET, "reference_id": "VOICE"}),
        ("/v1/text-to-speech/VOICE", {"text": SECRET}),
    ],
)
def test_call_for_speech_has_its_job_which_is_accepted_while_its_audio_is_waited_for(
    keyed: tuple[Any, Any, APIClient], path: str, text: dict[str, str]
) -> None:
    voice = str(make_voice("Ada", shared=True).pk)
    body = {name: value.replace("VOICE", voice) for name, value in text.items()}

    keyed[2].post(path.replace("VOICE", voice), body, format="json")

    entry, job = AuditEntry.objects.get(), RenderJob.objects.get()
    named = {"voice_id": voice} if "VOICE" in path else {}
    assert (entry.status, entry.ids) == (202, named | {"id": str(job.pk)})


def test_names_in_paths_are_not_ids(keyed: tuple[Any, Any, APIClient]) -> None:
    keyed[2].delete(f"/model/{SECRET.replace(' ', '%20')}")
    keyed[2].post("/v1/text-to-speech/a-private-name", {"text": SECRET})

    assert [entry.ids for entry in AuditEntry.objects.all()] == [{}, {}]


def test_strangers_leave_nothing_but_their_tries_to_sign_in(client: Client) -> None:
    client.post(reverse("jobs"), {}, HTTP_HOST="localhost")
    key = {"authorization": f"Bearer tts_{uuid.uuid4().hex}", "host": "localhost"}
    client.delete(reverse("job", args=[uuid.uuid4()]), headers=key)
    assert AuditEntry.objects.count() == 0

    try_to_sign_in(client, "boss", times=8)

    assert {one.route for one in AuditEntry.objects.all()} == {"sign-in"}


def try_to_sign_in(client: Client, name: str, *, address: str = "10.1.2.3", times: int = 1) -> None:
    for _ in range(times):
        form = {"username": name, "password": SECRET}
        client.post("/admin/login/", form, HTTP_HOST="localhost", REMOTE_ADDR=address)


def test_tries_to_sign_in_name_the_account_and_say_which_were_refused_by_lock_out(
    client: Client,
) -> None:
    boss = make_user("boss", is_superuser=True, is_staff=True)
    boss.set_password(SECRET)
    boss.save()

    for _ in range(7):
        form = {"username": "boss", "password": "wrong"}
        client.post("/admin/login/", form, HTTP_HOST="localhost", REMOTE_ADDR="10.1.2.3")
    try_to_sign_in(client, "boss", address="10.9.9.9")

    *failed, done = AuditEntry.objects.order_by("pk")
    assert {(one.username, one.user_id, one.address) for one in failed} == {
        ("boss", None, "10.1.2.3")
    }
    assert [one.status for one in failed] == [200] * 5 + [429] * 2
    assert (done.username, done.user_id, done.status) == ("boss", boss.pk, 302)
    page = client.get(reverse("admin:synth_auditentry_changelist"), HTTP_HOST="localhost")
    for words in ("200 refused", "429 locked out", "302 password right"):
        assert words in page.content.decode()


def test_what_is_no_accounts_name_is_not_written_down(client: Client) -> None:
    make_user("boss")
    for typed in ("my own p4ssword", "Boss", "boss@example.org"):
        try_to_sign_in(client, typed)

    tries = AuditEntry.objects.all()
    assert {(one.username, one.user_id) for one in tries} == {("(unknown name)", None)}
    assert len(tries) == 3
    assert "p4ssword" not in json.dumps(list(tries.values()), default=str)


def test_refused_tries_of_one_network_do_not_fill_the_log_nor_prolong_the_lock_out(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sign_in, "REFUSED_KEPT", 3)
    make_user("boss")
    for host in range(12):
        try_to_sign_in(client, "boss", address=f"2001:db8::{host}")

    statuses = [one.status for one in AuditEntry.objects.order_by("pk")]
    assert statuses == [200] * sign_in.TRIES_OF_NAME + [429] * 3
    for number in range(sign_in.TRIES_OF_ADDRESS - sign_in.TRIES_OF_NAME):  # none was counted
        try_to_sign_in(client, f"name-{number}", address="2001:db8::1")
    assert AuditEntry.objects.latest("pk").status == 200
    over = leases.database_now() - sign_in.TRIES_WITHIN
    SignInTry.objects.update(tried_at=over)
    try_to_sign_in(client, "boss", address="2001:db8::1")
    assert AuditEntry.objects.latest("pk").status == 200


def test_who_is_signed_in_tries_no_other_password(client: Client) -> None:
    client.force_login(make_user("ann", is_staff=True))

    try_to_sign_in(client, "boss", times=7)

    assert AuditEntry.objects.count() == SignInTry.objects.count() == 0


def test_acts_in_the_admin_are_written_down_with_the_rows_they_are_for(client: Client) -> None:
    boss = make_user("boss", is_superuser=True, is_staff=True)
    client.force_login(boss)
    row, _ = create_key(boss, "old")

    act = {"action": "revoke", "_selected_action": [str(row.pk)]}
    client.post(reverse("admin:synth_apikey_changelist"), act, HTTP_HOST="localhost")

    entry = AuditEntry.objects.get()
    assert (entry.username, entry.key_id) == ("boss", None)
    assert entry.route == "admin:synth_apikey_changelist"
    assert entry.ids == {"chosen": [str(row.pk)]}


def test_entries_are_kept_for_ninety_days_and_outlive_their_user(
    keyed: tuple[Any, Any, APIClient], django_assert_num_queries: Any
) -> None:
    user, _, client = keyed
    for _ in range(3):
        client.post(reverse("preview"), {})
    user.delete()
    entries = list(AuditEntry.objects.all())
    assert {entry.username for entry in entries} == {"ann"}

    old = leases.database_now() - sign_in.AUDIT_KEPT_FOR - dt.timedelta(minutes=1)
    AuditEntry.objects.filter(pk__in=[entries[0].pk, entries[1].pk]).update(created_at=old)

    assert sign_in.forget_audit() == 2
    assert list(AuditEntry.objects.all()) == [entries[2]]


def test_log_is_shown_to_who_sees_the_installation(keyed: tuple[Any, Any, APIClient]) -> None:
    _, key, client = keyed
    client.post(reverse("preview"), {})
    path = reverse("audit")
    assert refusal_of(client.get(path)) == (403, "installation_hidden")
    boss = make_user("boss", is_superuser=True)
    assert refusal_of(client_with(boss, "read").get(path)) == (403, "installation_hidden")

    watcher = make_user("watcher", is_staff=True)
    watcher.user_permissions.add(Permission.objects.get(codename="view_workerstatus"))
    for admin in (client_with(boss, "read", "admin"), client_with(watcher, "read", "admin")):
        (entry,) = admin.get(path, {"username": "ann"}).json()["results"]
        assert (entry["route"], entry["key_prefix"]) == ("preview", key.prefix)

    admin = client_with(boss, "read", "admin")
    for query in ({"key": str(key.pk)}, {"route": "preview"}, {"method": "PUT,POST"}):
        assert [one["username"] for one in admin.get(path, query).json()["results"]] == ["ann"]
    for query in ({"username": "bob"}, {"method": "DELETE"}, {"key": str(uuid.uuid4())}):
        assert admin.get(path, query).json()["results"] == []
    assert refusal_of(admin.get(path, {"method": "HEAD"}))[0] == 400


def test_admin_shows_the_log_and_changes_nothing_of_it(client: Client) -> None:
    boss = make_user("boss", is_superuser=True, is_staff=True)
    client.force_login(boss)
    client.post(reverse("admin:auth_group_add"), {"name": "readers"}, HTTP_HOST="localhost")
    entry = AuditEntry.objects.get()

    shown = client.get(reverse("admin:synth_auditentry_changelist"), HTTP_HOST="localhost")
    page = reverse("admin:synth_auditentry_change", args=[entry.pk])

    assert "admin:auth_group_add" in shown.content.decode()
    assert client.get(page, HTTP_HOST="localhost").status_code == 200
    assert client.post(page, {"route": "other"}, HTTP_HOST="localhost").status_code == 403
    for place in ("add/", f"{entry.pk}/delete/"):
        address = reverse("admin:synth_auditentry_changelist") + place
        assert client.get(address, HTTP_HOST="localhost").status_code == 403


def test_entry_of_a_job_is_kept_with_the_job_or_not_at_all(
    keyed: tuple[Any, Any, APIClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_voice("Ada", shared=True)
    order = {"text": "Good morning.", "voice": "Ada"}

    def break_off(*_: Any, **__: Any) -> None:
        raise SubmitRejectedError("voice_not_found", "The voice was deleted.")

    with monkeypatch.context() as broken:
        broken.setattr(submit, "_insert_segments", break_off)
        refused = keyed[2].post(reverse("jobs"), order)
    made = keyed[2].post(reverse("jobs"), order, HTTP_IDEMPOTENCY_KEY="once")
    repeated = keyed[2].post(reverse("jobs"), order, HTTP_IDEMPOTENCY_KEY="once")

    entries = AuditEntry.objects.order_by("pk")
    job = {"id": made.json()["id"]}
    expected = [(refused.status_code, {}), (202, job), (200, job)]
    assert [(entry.status, entry.ids) for entry in entries] == expected
    assert repeated.status_code == 200 and refused.status_code >= 400
