"""What the engine does ends at the first look after a request that makes it unwanted was answered.

Workers look twice a second, and an engine drops what was cancelled between two frames: within two
seconds nothing of it is left in any slot.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from synth.accounts.access import create_key
from synth.engine import Engine
from synth.models import RenderJob, Segment
from tests.factories import make_user
from tests.workers.conftest import MiniatureProcess
from tests.workers.engines import BusyEngine
from tests.workers.pairs import submit
from tests.workers.process.conftest import SiteOf, segments_of
from voices.models import Voice
from workers.process.claiming import take_segments
from workers.process.pump import STOP_SECONDS, UnwantedStop

pytestmark = pytest.mark.django_db(transaction=True)
TEXT = "\n\n".join(f"Ox {number}." for number in range(4))


# What is sent, by the voice's owner unless it is of the job: method, address and body.
DEEDS: dict[str, tuple[str, str, dict[str, bool] | None]] = {
    "cancelled": ("post", "jobs/{job}/cancel", {}),
    "job_deleted": ("delete", "jobs/{job}", None),
    "voice_deleted": ("delete", "voices/{voice}", None),
    "consent_withdrawn": ("patch", "voices/{voice}", {"consent_withdrawn": True}),
    "voice_not_shared": ("patch", "voices/{voice}", {"shared": False}),
}


@pytest.mark.parametrize("deed", DEEDS)
@pytest.mark.parametrize("where", ["here", "elsewhere"])
def test_what_the_engine_does_ends_at_the_first_look_after_the_answer(
    ready: Voice, engine: Engine, site_of: SiteOf, where: str, deed: str
) -> None:
    assert STOP_SECONDS <= 1.0, "between two looks"
    owner, reader = make_user("owner"), make_user("reader")
    Voice.objects.filter(pk=ready.pk).update(owner=owner, shared=True)
    ready.refresh_from_db()
    job = submit(ready, text=TEXT, owner=reader)
    busy: Any = BusyEngine(engine)
    process = MiniatureProcess(busy, role="gpu", site=site_of(where))
    take_segments(process)
    while not process.waiting.empty():
        process.run_next()
    stop = UnwantedStop(process)
    stop.step()
    assert len(busy.futures) == 4 and not any(one.cancelled() for one in busy.futures)

    method, address, body = DEEDS[deed]
    user = reader if address.startswith("jobs") else owner
    key = create_key(user, "own", scopes=["jobs", "voices"])[1]
    send = getattr(Client(), method)
    how: dict[str, Any] = {} if body is None else {"data": body, "content_type": "application/json"}
    path = f"/api/v1/{address.format(job=job.pk, voice=ready.pk)}"
    answer = send(path, headers={"Authorization": f"Bearer {key}"}, **how)
    assert answer.status_code < 300, answer.content
    stop._next_look = 0.0
    stop.step()

    assert all(one.cancelled() for one in busy.futures)
    process.run_all()
    assert segments_of(process) == []
    if deed != "job_deleted":
        codes = set(Segment.objects.values_list("status", "error_code"))
        assert codes == {("cancelled", "") if deed == "cancelled" else ("failed", deed)}
        assert RenderJob.objects.get().status in RenderJob.FINAL
