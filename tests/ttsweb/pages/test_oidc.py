"""Signing in by an OpenID provider, over HTTP, with tokens that are really signed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.ttsweb.pages.people import (
    CLIENT_ID,
    CLIENT_SECRET,
    Browser,
    Place,
    Provider,
    place_in,
    provider_at_work,
)
from tests.workers.commands import environment_for, run
from ttsweb.configuration.builders import openid_provider
from ttsweb.configuration.env import SettingError

NEWCOMER = {"sub": "42", "email": "eve@example.net", "email_verified": True}


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with provider_at_work() as found:
        yield found


@pytest.fixture(scope="module")
def place(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("oidc")
    secret = folder / "oidc"
    secret.write_text(
        provider.issuer.replace("://", f"://{CLIENT_ID}:{quote(CLIENT_SECRET, safe='')}@")
    )
    with place_in(folder, TTS_OIDC_URL_FILE=str(secret)) as found:
        assert provider.asked == []  # read when somebody wants to sign in
        yield found


@pytest.fixture(autouse=True)
def no_errors(provider: Provider) -> None:
    provider.errs, provider.userinfo, provider.signs_with = {}, {}, None
    provider.claims = dict(NEWCOMER)


def sign_in(place: Place, browser: Browser | None = None) -> tuple[str, str]:
    """Go through a sign-in as a browser does; return the user's name, and the last page."""
    browser = browser or Browser(place.url)
    page = browser.get("/admin/login/")
    assert "Sign in with 127.0.0.1" in page.text
    last = browser.get("/admin/login/oidc?next=/about", follow_redirects=True)
    return browser.name(), last.text


def test_newcomer_becomes_a_user_without_rights_and_is_known_again_by_sub(
    place: Place, provider: Provider
) -> None:
    name, page = sign_in(place)

    assert name == "eve@example.net"
    assert "An administrator opens the pages" in page
    row = place.users()[name]
    assert (row["is_staff"], row["is_superuser"], row["has_password"]) == (False, False, False)
    assert row["permissions"] == row["groups"] == []
    provider.claims = NEWCOMER | {"email": "moved@example.net"}
    assert sign_in(place)[0] == "eve@example.net"
    provider.claims = provider.userinfo = {"sub": "42"}  # which has no address any more
    assert sign_in(place)[0] == "eve@example.net"


def test_verified_address_leads_to_the_account_that_has_it(
    place: Place, provider: Provider
) -> None:
    provider.claims = {"sub": "of-ann", "email": "Ann@Example.org", "email_verified": True}

    assert sign_in(place)[0] == "ann"


def test_address_may_be_told_beside_the_token_of_the_same_person_alone(
    place: Place, provider: Provider
) -> None:
    provider.claims = {"sub": "43"}
    provider.userinfo = {"sub": "42", "email": "zoe@example.net", "email_verified": True}
    assert sign_in(place)[0] == ""
    provider.userinfo["sub"] = "43"

    assert sign_in(place)[0] == "zoe@example.net"


def test_unverified_address_takes_over_no_account_and_makes_none(
    place: Place, provider: Provider
) -> None:
    before = place.users()
    for verified in (False, None, "false", 1, "yes", [True]):
        for email in ("boss@example.org", "new@example.org"):
            provider.claims = {"sub": "evil", "email": email, "email_verified": verified}

            name, page = sign_in(place)

            assert (verified, name) == (verified, "")
            assert "has not verified an e-mail address" in page
    assert place.users().keys() == before.keys()


def test_account_that_was_switched_off_stays_outside(place: Place, provider: Provider) -> None:
    provider.claims = {"sub": "off", "email": "off@example.net", "email_verified": True}
    browser = Browser(place.url)
    assert sign_in(place, browser)[0] == "off@example.net"

    place.change_user("off@example.net", is_active=False)

    assert browser.name() == ""
    assert "Your account here is switched off." in sign_in(place)[1]


def test_audit_log_has_who_came_from_the_provider_and_whom_it_does_not_know(
    place: Place, provider: Provider
) -> None:
    place.run("AuditEntry.objects.all().delete()")
    name = sign_in(place)[0]
    provider.claims = NEWCOMER | {"sub": "44", "email_verified": False}
    sign_in(place)
    httpx.get(f"{place.url}/admin/login/oidc/callback?error=no&state=x")  # a stranger

    rows = place.run(
        "for one in AuditEntry.objects.order_by('pk'):"
        " print(one.method, one.route, one.username, one.user_id, one.status)"
    )
    known = f"GET sign-in-oidc-callback {name} {place.users()[name]['id']} 302"
    assert rows.splitlines() == [known, "GET sign-in-oidc-callback (unknown name) None 302"]


def test_address_of_two_accounts_leads_to_neither(place: Place, provider: Provider) -> None:
    for name in ("one", "two"):
        body = {"username": name, "email": "twin@example.org"}
        httpx.post(f"{place.url}/api/v1/users", json=body, headers=place.headers).raise_for_status()
    provider.claims = {"sub": "twin", "email": "twin@example.org", "email_verified": True}

    assert sign_in(place)[0] == ""


@pytest.mark.parametrize(
    "errs",
    [
        {"nonce": "of-another-log-in"}, {"nonce": None},
        {"iss": "http://127.0.0.1:1/realms/x"}, {"iss": None},
        {"aud": "another-client"}, {"aud": [CLIENT_ID, "other"]}, {"aud": None},
        {"azp": "other"},
        {"exp": 1_000_000_000}, {"exp": None},
        {"nbf": 4_000_000_000}, {"sub": None},
    ],
    ids=str,
)  # fmt: skip
def test_token_that_is_wrong_is_refused(
    errs: dict[str, Any], place: Place, provider: Provider
) -> None:
    provider.errs = errs

    name, page = sign_in(place)

    assert name == ""
    assert "did not work; try again" in page


def test_token_that_another_signed_is_refused(place: Place, provider: Provider) -> None:
    provider.signs_with = rsa.generate_private_key(65537, 2048)

    assert sign_in(place)[0] == ""


def test_answer_of_another_log_in_is_refused(place: Place, provider: Provider) -> None:
    victim, attacker = Browser(place.url), Browser(place.url)
    way = attacker.get("/admin/login/oidc").headers["Location"]
    back = attacker.get(way).headers["Location"]  # the attacker's own code and state

    assert victim.get(back).status_code in (302, 400)
    assert victim.name() == ""
    assert attacker.get(back).status_code == 302
    assert attacker.get(back).headers["Location"] == "/admin/login/"  # it is good once


def test_foreign_address_is_not_led_to_afterwards(place: Place, provider: Provider) -> None:
    provider.claims = {"sub": "of-ann", "email": "ann@example.org", "email_verified": True}
    browser = Browser(place.url)
    way = browser.get("/admin/login/oidc?next=https://evil.example/").headers["Location"]

    end = browser.get(browser.get(way).headers["Location"]).headers["Location"]

    assert urlsplit(end).netloc == ""


@pytest.mark.parametrize(
    "url",
    [
        "https://issuer.example/realms/x", "https://id@issuer.example/", "http://id:s@issuer.example",
        "ftp://id:secret@issuer.example", "https://id:secret@issuer.example/?a=b", "issuer",
        "https://id:secret@issuer.example:99999/",
    ],
)  # fmt: skip
def test_setting_of_another_form_stops_the_start_and_does_not_show_the_secret(url: str) -> None:
    with pytest.raises(SettingError, match=r"^TTS_OIDC_URL: expected") as caught:
        openid_provider(url)
    assert "id:secret" not in str(caught.value)


def test_provider_that_is_away_is_told_and_passwords_still_work(tmp_path: Any) -> None:
    with place_in(tmp_path, TTS_OIDC_URL="http://id:secret@127.0.0.1:9/x") as place:
        browser = Browser(place.url)

        page = browser.get("/admin/login/oidc", follow_redirects=True)
        assert "did not work; try again" in page.text
        browser.log_in("boss", "a password of its own")

        assert browser.name() == "boss"


def test_site_without_the_packages_says_how_to_get_them(tmp_path: Any) -> None:
    hide = tmp_path / "sitecustomize.py"
    hide.write_text(
        "import importlib.machinery as m\n"
        "find = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = classmethod(lambda _, name, *more: None if name == "
        "'mozilla_django_oidc' else find(name, *more))\n"
    )
    environment = environment_for(tmp_path) | {"TTS_OIDC_URL": "https://id:secret@issuer.example/"}
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"

    ended = run(environment, "serve", "--port", "auto", "--json")

    assert ended.returncode == 1
    assert "./tts install oidc" in ended.stdout + ended.stderr
