"""Addresses of the public Internet are told from all others, however they are written."""

from __future__ import annotations

import pytest

from ttsweb.http.guarded_url import is_public


@pytest.mark.parametrize(
    "address",
    [
        "8.8.8.8", "193.99.144.80", "172.32.0.1", "100.128.0.1", "2606:4700:4700::1111",
        "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1",
    ],
)  # fmt: skip
def test_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.255", "127.0.0.1", "127.255.255.254",
        "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8",
        "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "203.0.113.9", "224.0.0.1",
        "239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "::7f00:1",
        "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::808:808", "100::1", "2001::1", "2001:0:808:808:0:0:80ff:fffe",
        "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::", "3fff::1", "4000::1", "fc00::1",
        "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "localhost", "",
    ],
)  # fmt: skip
def test_any_other_address_is_not(address: str) -> None:
    assert not is_public(address)
