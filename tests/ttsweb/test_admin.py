"""The account pages of the admin open, in the look of the other pages."""

from __future__ import annotations

import pytest
from django.test import Client

from tests.factories import make_user


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    [
        "/admin/",
        "/admin/auth/user/",
        "/admin/auth/user/add/",
        "/admin/auth/group/add/",
        "/admin/synth/apikey/",
        "/admin/synth/apikey/add/",
        "/admin/voices/voice/",
        "/admin/voices/voice/add/",
    ],
)
def test_a_page_opens_with_our_style(path: str) -> None:
    page = Client()
    page.force_login(make_user(is_superuser=True))

    response = page.get(path)

    assert response.status_code == 200
    assert "ttsweb/admin.css" in response.content.decode()


@pytest.mark.django_db
def test_a_user_can_be_added_and_edited() -> None:
    page = Client()
    page.force_login(make_user(is_superuser=True))
    password = {"password1": "a long enough one", "password2": "a long enough one"}

    response = page.post(
        "/admin/auth/user/add/", {"username": "clerk", "usable_password": "true", **password}
    )

    assert response.status_code == 302
    assert page.get(response["Location"]).status_code == 200
