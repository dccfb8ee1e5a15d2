"""What `serve --wyoming` refuses before it starts, and the key that it makes for itself."""

from __future__ import annotations

import importlib.util
import socket
from argparse import ArgumentTypeError
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from pytest_django import Settings

from synth.accounts.access import create_key, find_key, revoke_key
from synth.models import ApiKey
from tests.workers.commands import free_port
from ttsweb.commands.base import StepError
from ttsweb.install import extras
from workers.local.site import WyomingServer
from workers.management.commands.serve import address


@pytest.fixture
def site() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def key_of(site: socket.socket, user_name: str = "") -> str:
    """Return the key that the process is given."""
    server = WyomingServer("127.0.0.1", free_port(), user_name)
    try:
        child = server.child(site, "http://tts.example.org:8000")
        return child._environment["TTS_API_KEY"]
    finally:
        server.close()


@pytest.mark.parametrize(
    ("text", "found"),
    [("10200", ("", 10200)), ("0.0.0.0:10200", ("0.0.0.0", 10200)), ("[::1]:99", ("::1", 99))],
)
def test_address_is_a_port_with_or_without_a_host(text: str, found: tuple[str, int]) -> None:
    assert address(text) == found


@pytest.mark.parametrize("text", ["", "auto", "host", "host:", ":", "host:0", "1.2.3.4:65536"])
def test_address_without_a_port_is_a_usage_error(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        address(text)


def test_package_that_is_missing_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "wyoming" else real(name))
    with pytest.raises(StepError, match=r"^--wyoming needs .*\./tts install wyoming$") as caught:
        WyomingServer("127.0.0.1", free_port(), "")
    assert caught.value.code == "extra_missing"


def test_port_that_is_taken_is_told(site: socket.socket) -> None:
    port = site.getsockname()[1]
    with pytest.raises(StepError, match=rf"^Port {port} .* give --wyoming another$"):
        WyomingServer("127.0.0.1", port, "")


@pytest.mark.django_db
@pytest.mark.parametrize(("users", "name"), [(["ada"], ""), (["bert", "ada"], "ada")])
def test_key_is_one_row_of_the_account_with_a_new_secret_at_each_start(
    site: socket.socket, users: list[str], name: str
) -> None:
    for one in users:
        User.objects.create_user(one)
    first = key_of(site, name)
    ApiKey.objects.update(max_unfinished_jobs=3)
    second = key_of(site, name)

    row = find_key(second)
    assert first != second and ApiKey.objects.count() == 1
    assert (row.user.username, row.scopes, row.max_unfinished_jobs) == ("ada", ["read", "jobs"], 3)
    with pytest.raises(Exception, match="does not exist"):
        find_key(first)
    revoke_key(row)  # it is not brought back to life
    assert find_key(key_of(site, name)).pk != row.pk


@pytest.mark.django_db
def test_key_of_the_settings_is_used_where_no_account_is_named(
    site: socket.socket, settings: Settings
) -> None:
    ada, bert = User.objects.create_user("ada"), User.objects.create_user("bert")
    _, settings.API_KEY = create_key(ada, "home")
    assert key_of(site) == settings.API_KEY
    assert find_key(key_of(site, "bert")).user == bert

    settings.API_KEY = "tts_wrong"
    with pytest.raises(StepError, match="It stands in TTS_API_KEY") as caught:
        key_of(site)
    assert caught.value.code == "key_invalid"
