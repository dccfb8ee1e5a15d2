"""Tell addresses of the public Internet from all others."""

from __future__ import annotations

import ipaddress

# Written out, since what `is_global` says differs between the versions of Python.
_REFUSED_4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
        "168.63.129.16/32",  # Azure's services for the machine itself
    )
)  # fmt: skip
_GLOBAL_6 = ipaddress.IPv6Network("2000::/3")  # all that is assigned for public use
_REFUSED_6 = tuple(
    ipaddress.IPv6Network(network)
    # Protocols (ORCHID, benchmarks), two of documentation, the former 6bone.
    for network in ("2001::/23", "2001:db8::/32", "3fff::/20", "3ffe::/16")
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """Return whether `address`, an IP address as text, is one of the public Internet.

    An IPv6 address that embeds an IPv4 address (mapped, NAT64, 6to4, Teredo) is judged by that one
    too. Text that is no address is not public.
    """
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv4Address):
        return _is_public_4(found)
    return _is_public_6(found)


def _is_public_4(address: ipaddress.IPv4Address) -> bool:
    return address.is_global and not any(address in network for network in _REFUSED_4)


def _is_public_6(address: ipaddress.IPv6Address) -> bool:
    if address.ipv4_mapped is not None:
        return _is_public_4(address.ipv4_mapped)
    if address in _NAT64:  # how a host without IPv4 reaches it
        return _is_public_4(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
    embedded = [address.sixtofour, *(address.teredo or ())]
    if any(one is not None and not _is_public_4(one) for one in embedded):
        return False
    return (
        address in _GLOBAL_6
        and address.is_global
        and not any(address in network for network in _REFUSED_6)
    )
