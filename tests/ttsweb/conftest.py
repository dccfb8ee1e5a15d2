"""What tests of the client share: a server that misbehaves, and a client that notes its pauses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ttsweb.client import faulty_server
from tests.ttsweb.client.faulty_server import FaultyServer
from ttsweb.client import Client


@pytest.fixture
def faulty() -> Iterator[FaultyServer]:
    with faulty_server.serving() as server:
        yield server


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(faulty: FaultyServer, pauses: list[float]) -> Iterator[Client]:
    with Client(faulty.url, "tts_key", timeout=5, retries=3, sleep=pauses.append) as client:
        yield client
