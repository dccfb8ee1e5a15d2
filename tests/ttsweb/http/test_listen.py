"""Where the site listens: which addresses and ports it takes, and what it says otherwise."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ttsweb.configuration.env import SETTINGS
from ttsweb.http.listen import ListenError, check_address, open_socket, url_of

LOOPBACK = ["localhost", "127.0.0.1", "[::1]"]


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_loopback_needs_no_allowed_hosts_and_a_name_without_an_address_is_told() -> None:
    for host in ("127.0.0.1", "localhost", "127.9.9.9"):
        check_address(host, LOOPBACK)
    with pytest.raises(ListenError, match=r"no-such-host\.invalid"):
        check_address("no-such-host.invalid", LOOPBACK)
    default = SETTINGS["TTS_ALLOWED_HOSTS"].default.split(",")
    assert default == [*LOOPBACK, "host.docker.internal"]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_needs_allowed_hosts_and_the_error_names_the_setting(host: str) -> None:
    for allowed in (LOOPBACK, [*LOOPBACK, "host.docker.internal"]):
        with pytest.raises(ListenError, match="TTS_ALLOWED_HOSTS") as caught:
            check_address(host, allowed)
        assert caught.value.code == "allowed_hosts_missing"
    check_address(host, [*LOOPBACK, "tts.example.org"])
    check_address(host, ["localhost"])  # chosen: a container whose port is published to its host


def test_taken_port_is_an_error_with_the_remedy_or_the_next_one_is_opened(taken_port: int) -> None:
    with pytest.raises(ListenError, match=f"Port {taken_port} .*--port auto") as caught:
        open_socket("127.0.0.1", taken_port, or_next=False)
    assert caught.value.code == "port_taken"
    with pytest.raises(ListenError) as caught:
        open_socket("192.0.2.1", taken_port, or_next=False)
    assert caught.value.code == "address_unusable"  # it is of another machine
    with (
        open_socket("127.0.0.1", taken_port, or_next=True) as opened,
        socket.create_connection(opened.getsockname(), timeout=5) as client,
    ):
        assert taken_port < opened.getsockname()[1] <= taken_port + 50
        assert client.getpeername() == opened.getsockname()


@pytest.mark.parametrize(
    ("address", "allowed", "name"),
    [
        ("127.0.0.1", LOOPBACK, "127.0.0.1"),
        ("0.0.0.0", ["*", "tts.example.org"], "tts.example.org"),
        ("0.0.0.0", [".a.org"], "a.org"),
    ],
)
def test_url_of_a_socket_uses_a_name_that_is_accepted(
    address: str, allowed: list[str], name: str, taken_port: int
) -> None:
    with open_socket(address, taken_port, or_next=True) as opened:
        assert url_of(opened, allowed) == f"http://{name}:{opened.getsockname()[1]}"
