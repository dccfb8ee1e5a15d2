"""Workers with other weights, numbers or codecs beside each other, at the site and elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from synth.engine import Engine
from synth.models import Take, WorkerStatus
from tests.factories import stored
from tests.workers.conftest import MiniatureProcess
from tests.workers.engines import OtherEngine
from tests.workers.pairs import submit
from tests.workers.process.conftest import SiteOf
from voices.models import ClipCodes, Voice, VoiceVersion
from workers.process.claiming import has_engine_work, take_segments

pytestmark = pytest.mark.django_db(transaction=True)
OTHER_CODEC = "c" * 64
WHERE = pytest.mark.parametrize("where", ["here", "elsewhere"])


@WHERE
@pytest.mark.parametrize("fact", ["model", "numbers", "backend", "decoder", "decoder_numbers"])
def test_workers_that_differ_in_one_fact_share_voices_and_no_takes(
    process: MiniatureProcess, ready: Voice, engine: Engine, site_of: SiteOf, where: str, fact: str
) -> None:
    unlike: Any = OtherEngine(engine, **{fact: "another"})
    other = MiniatureProcess(unlike, name="other", role="gpu", site=site_of(where, "other"))
    first, again, third = (submit(ready, text="Ox.", seed=7) for _ in range(3))
    before = set()
    for job, worker, reused in ((first, process, 0), (again, other, 0), (third, other, 1)):
        take_segments(worker)
        worker.run_all()
        assert stored(job, "segments_done", "takes_reused") == (1, reused)
        before.add(job.segments.get().take)

    assert len(before) == Take.objects.count() == 2
    assert VoiceVersion.objects.get().status == "ready"


def say(process: MiniatureProcess, state: str) -> None:
    process.status.describe_engine(process.host.engine)
    process.status.state = WorkerStatus.State(state)
    process.status.write()


@WHERE
def test_voice_is_spoken_with_the_codes_of_the_codec_of_whoever_speaks(
    engine: Engine, voice: Voice, site_of: SiteOf, where: str
) -> None:
    ours: Any = OtherEngine(engine)
    theirs: Any = OtherEngine(engine, codec=OTHER_CODEC, decoder="another")
    one = MiniatureProcess(ours, name="one", role="gpu", site=site_of(where, "one"))
    other = MiniatureProcess(theirs, name="other", role="gpu", site=site_of(where, "other"))
    for worker in (one, other):
        say(worker, "ready")
    one.encode_all()
    first = submit(voice, text="Ox.", seed=7)

    assert not has_engine_work(other) and not take_segments(other)
    other.site.reopen_stale(OTHER_CODEC)
    version = VoiceVersion.objects.get()
    assert (version.status, version.codec_fingerprint) == ("ready", engine.codec_fingerprint)
    assert take_segments(one)  # and begins only after all that follows

    say(one, "stopped")
    other.site.reopen_stale(OTHER_CODEC)
    other.encode_all()
    second = submit(voice, text="Ox.", seed=7)
    assert not has_engine_work(one) and not take_segments(one)
    assert take_segments(other)
    other.run_all()
    one.run_all()

    assert [job.segments.get().status for job in (first, second)] == ["done", "done"]
    (own,), (foreign,) = ours.asked, theirs.asked
    assert np.array_equal(own.references[0].codes, foreign.references[0].codes[:, ::-1])
    assert not np.array_equal(own.references[0].codes, foreign.references[0].codes)
    assert set(ClipCodes.objects.values_list("codec_fingerprint", flat=True)) == {
        engine.codec_fingerprint,
        OTHER_CODEC,
    }
    assert Take.objects.count() == 2
