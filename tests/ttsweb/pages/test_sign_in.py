"""Signing in by a password, a second step and a reverse proxy; over HTTP, as browsers do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyotp
import pytest
from django.core.management import call_command
from pytest_django import Settings

from synth.accounts import sign_in
from synth.accounts.sign_in import Attempt, LockedOutError
from synth.models import SecondFactor, SignInTry
from tests.factories import make_user
from tests.ttsweb.pages.people import Browser, Place, place_in
from ttsweb.configuration.builders import login_header
from ttsweb.configuration.env import SettingError

BOSS, ANN = ("boss", "a password of its own"), ("ann", "another password")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    header = "X-Remote-User@127.0.0.5,10.0.0.0/8"
    with place_in(tmp_path_factory.mktemp("sign-in"), TTS_LOGIN_HEADER=header) as found:
        yield found


def enrol(browser: Browser) -> tuple[str, list[str]]:
    """Switch the second step on as a person does; return the code used, and those of recovery."""
    page = browser.send_form("/account", act="begin")
    assert "<svg" in page.text
    found = re.search(r'id="factor-secret">(\w+)<', page.text)
    assert found is not None
    app = pyotp.TOTP(found[1])
    assert "not right" in browser.send_form("/account", act="confirm", code="000000").text
    code = app.now()
    shown = browser.send_form("/account", act="confirm", code=code).text
    return code, re.findall(r"<li><code>([\w-]+)</code></li>", shown)


def test_second_step_asks_after_the_password_and_takes_no_code_twice(place: Place) -> None:
    browser = Browser(place.url)
    browser.log_in(*ANN)
    code, recovery = enrol(browser)
    assert len(recovery) == sign_in.NUM_RECOVERY_CODES
    assert recovery[0] not in browser.get("/account").text  # shown this once

    new = Browser(place.url)
    first = new.log_in(*ANN)

    assert first.headers["Location"] == "/admin/login/code"
    assert new.name() == ""  # the password alone opens nothing
    assert new.get("/api/v1/jobs").status_code == 401
    used = new.send_form("/admin/login/code", code=code)
    assert "wrong or was used already" in used.text  # it switched the step on
    done = new.send_form("/admin/login/code", code=recovery[0].upper().replace("-", " "))
    assert (done.headers["Location"], new.name()) == ("/account", "ann")

    again = Browser(place.url)
    again.log_in(*ANN)
    again.send_form("/admin/login/code", code=recovery[0])
    assert again.name() == ""
    again.send_form("/admin/login/code", code=recovery[1])
    assert again.name() == "ann"

    # Keys are what they were; whoever runs the site lets one in who has lost everything.
    assert httpx.get(f"{place.url}/api/v1/jobs", headers=place.headers).status_code == 200
    boss = Browser(place.url)
    boss.log_in(*BOSS)
    reset = {"action": "reset_second_factors", "_selected_action": place.users()["ann"]["id"]}
    said = boss.send_form("/admin/auth/user/", **reset)
    assert said.status_code == 302
    fresh = Browser(place.url)
    fresh.log_in(*ANN)
    assert fresh.name() == "ann"


def test_codes_that_are_tried_stand_in_the_audit_log_with_the_account(place: Place) -> None:
    place.run("User.objects.create_user('cid', password='a third password', is_staff=True)")
    cid = Browser(place.url)
    cid.log_in("cid", "a third password")
    enrol(cid)
    place.run("AuditEntry.objects.all().delete()")
    thief = Browser(place.url, "127.0.0.9")
    thief.log_in("cid", "a third password")
    for _ in range(sign_in.TRIES_OF_CODE + 1):
        thief.send_form("/admin/login/code", code="000000")

    rows = place.run(
        "for one in AuditEntry.objects.order_by('pk'):"
        " print(one.route, one.username, one.user_id, one.address, one.status)"
    )
    who = "cid None 127.0.0.9"
    wrong = [f"sign-in-code {who} 200"] * sign_in.TRIES_OF_CODE
    assert rows.splitlines() == [f"sign-in {who} 302", *wrong, f"sign-in-code {who} 429"]


def test_stranger_is_locked_out_where_he_is_and_nobody_else(place: Place) -> None:
    stranger = Browser(place.url, "127.0.0.2")
    for _ in range(sign_in.TRIES_OF_NAME):
        assert stranger.log_in("boss", "wrong").status_code == 200

    locked = stranger.log_in(*BOSS)  # the right one is not even looked at

    assert (locked.status_code, stranger.name()) == (429, "")
    assert "Too many tries failed. Try again in 15 minutes." in locked.text
    at_home = Browser(place.url, "127.0.0.3")
    at_home.log_in(*BOSS)
    assert at_home.name() == "boss"
    stranger.log_in(*ANN)
    assert stranger.name() == "ann"  # another name


def test_forged_header_is_refused_and_that_of_the_proxy_taken(place: Place) -> None:
    by_proxy = Browser(place.url, "127.0.0.5", **{"X-Remote-User": "boss"})
    assert by_proxy.name() == "boss"
    assert by_proxy.get("/admin/").status_code == 200
    del by_proxy.headers["X-Remote-User"]
    assert by_proxy.name() == ""  # it ends with the header

    direct = Browser(place.url, **{"X-Remote-User": "boss"})
    page, answer = direct.get("/account"), direct.get("/api/v1/jobs")
    assert (page.status_code, "Only the reverse proxy" in page.text) == (403, True)
    assert (answer.status_code, answer.json()["code"]) == (403, "login_header_refused")
    forwarded = {"X-Remote-User": "boss", "X-Forwarded-For": "127.0.0.5"}
    assert Browser(place.url, **forwarded).get("/account").status_code == 403

    # What a proxy adds its own header to, or lets pass in another spelling.
    for forged in ([("X-Remote-User", "ann"), ("X-Remote-User", "boss")],
                   [("X-Remote-User", "ann"), ("X_Remote_User", "boss")],
                   [("X_Remote_User", "boss")]):  # fmt: skip
        with Browser(place.url, "127.0.0.5") as mixed:
            assert mixed.get("/account", headers=forged).status_code == 403


def test_new_name_of_the_proxy_is_a_user_without_rights_and_keys_go_before_it(
    place: Place,
) -> None:
    browser = Browser(place.url, "127.0.0.5", **{"X-Remote-User": "nina@example.org"})
    assert browser.name() == "nina@example.org"

    row = place.users()["nina@example.org"]

    assert (row["is_staff"], row["is_superuser"], row["has_password"]) == (False, False, False)
    assert browser.get("/admin/login/").headers["Location"] == "/account"
    assert browser.get("/api/v1/users").status_code == 403
    assert browser.get("/api/v1/users", headers=place.headers).status_code == 200  # the key's user
    place.change_user("nina@example.org", is_active=False)
    assert browser.get("/account").status_code == 403
    bad = Browser(place.url, "127.0.0.5", **{"X-Remote-User": "no name\t<b>"})
    assert bad.get("/account").status_code == 403


@pytest.mark.parametrize(
    "text",
    [
        "X-Remote-User", "X-Remote-User@", "@127.0.0.1", "X-Remote-User@8.8.8.8",
        "X-Remote-User@0.0.0.0/0", "X-Remote-User@::/0", "X-Remote-User@10.0.0.5,here",
        "Authorization@127.0.0.1", "X_Remote_User@127.0.0.1", "X-Remote-User@0.0.0.0",
    ],
)  # fmt: skip
def test_header_without_addresses_of_proxies_stops_the_start(text: str) -> None:
    with pytest.raises(SettingError, match=r"^TTS_LOGIN_HEADER=.+: expected a header's name"):
        login_header(text)


def test_header_is_of_the_addresses_that_are_named() -> None:
    header = login_header("X-Remote-User@127.0.0.1, 10.1.0.0/16,fd00::/8")
    assert header is not None
    addresses = ("127.0.0.1", "::ffff:10.1.2.3", "fd00::1", "127.0.0.2", "10.2.0.1", "", "unix:")
    assert [header.is_proxy(one) for one in addresses] == [True] * 3 + [False] * 4


@pytest.mark.django_db
def test_tries_from_one_address_with_many_names_end_and_its_neighbours_go_on() -> None:
    for number in range(sign_in.TRIES_OF_ADDRESS):
        Attempt(f"name {number}", "2001:db8:1:1::1")

    with pytest.raises(LockedOutError):
        Attempt("another", "2001:db8:1:1:ffff::2")  # one host has all of that network

    Attempt("another", "2001:db8:1:2::1").succeed()
    counted = SignInTry.objects.filter(was_refused=False).count()
    assert counted == sign_in.TRIES_OF_ADDRESS  # what is refused prolongs nothing


@pytest.mark.django_db
def test_codes_are_counted_of_the_user_from_everywhere() -> None:
    for _ in range(sign_in.TRIES_OF_CODE):
        Attempt("ann", "10.0.0.1", is_code=True)

    with pytest.raises(LockedOutError):
        Attempt("Ann", "10.0.0.2", is_code=True)
    Attempt("ann", "10.0.0.2")  # the password is another matter


@pytest.mark.django_db
def test_success_forgets_the_tries_before_it_and_old_ones_count_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(sign_in.TRIES_OF_NAME - 1):
        Attempt("ann", "10.0.0.1")
    Attempt("ann", "10.0.0.1").succeed()
    assert SignInTry.objects.count() == 0

    for _ in range(sign_in.TRIES_OF_NAME):
        Attempt("ann", "10.0.0.1")
    rows = SignInTry.objects.all()
    for row in rows:
        row.tried_at -= sign_in.TRIES_WITHIN
        row.save()
    Attempt("ann", "10.0.0.1")
    assert sign_in.forget_tries() == sign_in.TRIES_OF_NAME


@pytest.mark.django_db
def test_secrets_are_encrypted_at_rest_and_move_to_a_new_key(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    user: Any = make_user("ann")
    row = sign_in.begin_second_factor(user)
    secret = row.secret
    codes = sign_in.confirm_second_factor(row, pyotp.TOTP(secret).now())
    stored = str(SecondFactor.objects.values().get())
    assert codes and secret not in stored and codes[0] not in stored

    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another key of fifty characters, more or less"
    call_command("reencrypt")
    settings.SECRET_KEY_FALLBACKS = []

    assert SecondFactor.objects.get().secret == secret


def test_pages_of_the_log_in_ask_nobody_else(place: Place, tmp_path: Path) -> None:
    page = Browser(place.url).get("/admin/login/")

    assert "script-src 'self'" in page.headers["Content-Security-Policy"]
    assert "Sign in with" not in page.text  # no provider is set
    assert page.headers["Cache-Control"].startswith("max-age=0")
