"""Jobs that the engine of these tests could render, and what a process holds of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from synth.accounts.access import create_key
from synth.engine import Engine
from synth.models import RenderJob
from tests.factories import make_job, make_user, make_version
from tests.workers.conftest import MiniatureProcess
from ttsweb.work import Kind
from workers.process.held_claims import HeldClaim
from workers.remote.connection import Connection
from workers.remote.site import RemoteSite

SiteOf = Callable[..., RemoteSite | None]


@pytest.fixture
def site_of(request: pytest.FixtureRequest) -> SiteOf:
    """What gives a worker `here` no site of its own, and one `elsewhere` one that asks by HTTP."""

    def make(where: str, name: str = "mini") -> RemoteSite | None:
        if where == "here":
            return None
        url = request.getfixturevalue("live_server").url
        operator = make_user(f"operator of {name}", is_staff=True)
        key = create_key(operator, "home", scopes=["worker"])[1]
        site = RemoteSite(Connection(url, key, name=name), name=name, is_screened=False)
        site.begin()
        return site

    return make


@pytest.fixture
def two_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine say that it has two slots; nothing is rendered here."""
    monkeypatch.setattr(Engine, "slots", 2)


@pytest.fixture
def four_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Engine, "slots", 4)


def ready_job(process: MiniatureProcess, segments: int = 1, **fields: Any) -> RenderJob:
    """Return a job of so many segments in a voice that the process's engine can speak with."""
    version = make_version(codec_fingerprint=process.host.engine.codec_fingerprint)
    return make_job(version=version, segments=segments, **fields)


def segments_of(process: MiniatureProcess) -> list[HeldClaim]:
    """Return the claims on segments that a process holds, in the order of their text."""
    return sorted(process.held.of(Kind.SEGMENT), key=lambda claim: claim.pk)
