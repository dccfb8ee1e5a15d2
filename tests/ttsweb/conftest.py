from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.ttsweb.client import faulty_server
from tests.ttsweb.client.faulty_server import FaultyClient


@pytest.fixture
def client() -> Iterator[FaultyClient]:
    """A client that notes its pauses, of a server that misbehaves as it is told."""
    with faulty_server.serving() as client:
        yield client
