"""A webhook's URL is refused at once where its spelling tells enough."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from synth.webhooks.endpoints import check_webhook_url
from ttsweb.refusals import SubmitRejectedError


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://127.0.0.1:8000/hook", "url_private_address"),
        ("https://localhost/hook", "url_private_address"),
        ("http://2130706433/", "url_private_address"),
        ("http://[::ffff:127.0.0.1]/", "url_private_address"),
        ("http://169.254.169.254/latest/meta-data/", "url_private_address"),
        ("ftp://hooks.example/", "url_scheme"),
        ("hooks.example", "url_scheme"),
        ("https://user:word@hooks.example/", "url_invalid"),
        ("https://hooks.example/\x00", "url_invalid"),
        ("https://hooks.example/\ud800", "url_invalid"),
        ("", "url_scheme"),
    ],
)
def test_url_that_is_refused(url: str, code: str) -> None:
    with pytest.raises(SubmitRejectedError) as caught:
        check_webhook_url(url)

    assert caught.value.code == code
    assert str(caught.value).endswith(".")


def test_name_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttsweb.http.guarded_url._look_up", None)

    check_webhook_url("https://hooks.example/in?a=b")


def test_private_address_is_taken_where_that_is_allowed(settings: Settings) -> None:
    settings.ALLOW_PRIVATE_URLS = True

    check_webhook_url("http://127.0.0.1:8000/hook")
