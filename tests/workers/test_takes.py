"""A take is made once; what is not needed any more leaves no object."""

from __future__ import annotations

import numpy as np
import pytest
from django.core.files.storage import default_storage

from synth.contract import FinishReason, SegmentAudio, Timings
from synth.models import Take
from tests.factories import make_segment
from workers.takes import drop_unused_take, find_take, save_take

pytestmark = pytest.mark.django_db
KEY = "a" * 64
RENDERED = SegmentAudio(
    codes=np.zeros((10, 20), dtype=np.int16),
    audio=np.full(44_100, 0.5, dtype=np.float32),
    sample_rate=44_100,
    finish_reason=FinishReason.END,
    timings=Timings(0.1, 0.2, 0.3, 0.4),
)


def test_take_holds_what_was_rendered() -> None:
    take = save_take(KEY, RENDERED)

    assert (take.frames, take.sample_rate, take.audio_seconds) == (20, 44_100, 1.0)
    assert take.finish_reason == "end"
    assert take.measures["peak_dbfs"] == pytest.approx(-6.02, abs=0.01)
    assert take.measures["codec_seconds"] == 0.4
    assert find_take(KEY) == take


def test_second_take_of_a_name_is_thrown_away() -> None:
    first = save_take(KEY, RENDERED)

    second = save_take(KEY, RENDERED)

    folder = default_storage.path(f"takes/{KEY[:2]}/{KEY}")
    assert (second.pk, second.audio_key) == (first.pk, first.audio_key)
    assert len(default_storage.listdir(folder)[1]) == 2


def test_take_without_its_audio_is_not_found_and_gets_it_back() -> None:
    first = save_take(KEY, RENDERED)
    default_storage.delete(first.audio_key)
    assert find_take(KEY) is None

    again = save_take(KEY, RENDERED)

    assert again.pk == first.pk
    assert find_take(KEY) == again


def test_unused_take_goes_with_its_objects_and_a_used_one_stays() -> None:
    unused, used = save_take(KEY, RENDERED), save_take("b" * 64, RENDERED)
    make_segment(take=used)

    for take in (unused, used):
        drop_unused_take(take)

    assert list(Take.objects.all()) == [used]
    assert not default_storage.exists(unused.audio_key)
    assert not default_storage.exists(unused.codes_key)
    assert default_storage.exists(used.audio_key)
