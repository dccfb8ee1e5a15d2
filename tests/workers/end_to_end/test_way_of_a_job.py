"""From `POST /api/v1/jobs` to the file a job passes few source files, in the order of the guide."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from django.conf import settings
from rest_framework.test import APIClient

from synth.card import read_card
from synth.models import Export, RenderJob
from tests.factories import make_user
from tests.workers.conftest import MiniatureProcess
from voices.models import Voice
from workers.kinds import WORKS
from workers.process import claiming

PROJECT = Path(__file__).resolve().parents[3]
PRODUCT = ("ttsweb", "voices", "synth", "workers")
MOST_FILES = 61


@contextmanager
def traced(files: dict[str, None]) -> Iterator[None]:
    """Note the product's files whose functions this thread calls, in their order."""

    def note(frame: FrameType, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PROJECT):
            name = path.relative_to(PROJECT).as_posix()
            if name.startswith(PRODUCT):
                files.setdefault(name)

    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_job_passes_the_files_that_the_guide_names_in_their_order(
    process: MiniatureProcess, voice: Voice
) -> None:
    assert all(work.perform for work in WORKS.values()), "modules are loaded"
    claiming.take_work(process)  # encodes the voice
    process.run_all()
    client = APIClient()
    client.force_authenticate(make_user())
    Voice.objects.update(shared=True)
    client.get("/api/v1/jobs")  # loads the routes
    read_card(settings.CHECKPOINT)  # is read once for all jobs
    order = {"text": "I saw the lamp.", "voice": "Ada", "format": "wav"}
    passed: dict[str, None] = {}

    with traced(passed):
        answer = client.post("/api/v1/jobs", order, format="json")
        claiming.take_segments(process)
        process.run_all()
        claiming.take_exports(process)
        process.run_all()

    assert answer.status_code == 202
    assert RenderJob.objects.get().status == RenderJob.Status.SUCCEEDED
    assert Export.objects.get().key
    guide = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = guide.partition("## The way of a job\n")[2].partition("\n## ")[0]
    named = re.findall(r"`((?:ttsweb|voices|synth|workers)/[\w/]+\.py)`", section)
    assert named == [name for name in passed if name in named]
    assert len(passed) <= MOST_FILES, list(passed)
