"""A take is made once; what is not needed any more leaves no object."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from django.core.files.storage import default_storage

from synth.contract import FinishReason, SegmentAudio, Timings
from synth.models import Take
from tests.factories import make_segment
from tests.workers.rendering.takes_support import save_take
from workers.rendering.render import (
    NotFiniteAudioError,
    add_takes,
    drop_unused_take,
    find_takes,
    store_take,
)

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
    assert find_takes([KEY]) == {KEY: take}


def test_second_take_of_a_name_is_thrown_away() -> None:
    first = save_take(KEY, RENDERED)

    second = save_take(KEY, RENDERED)

    folder = default_storage.path(f"takes/{KEY[:2]}/{KEY}")
    assert (second.pk, second.audio_key) == (first.pk, first.audio_key)
    assert len(default_storage.listdir(folder)[1]) == 2


def test_take_without_its_audio_is_not_found_and_gets_it_back() -> None:
    first = save_take(KEY, RENDERED)
    default_storage.delete(first.audio_key)
    assert find_takes([KEY]) == {}

    again = save_take(KEY, RENDERED)

    assert again.pk == first.pk
    assert find_takes([KEY]) == {KEY: again}


def test_unused_take_goes_with_its_objects_and_a_used_one_stays() -> None:
    unused, used = save_take(KEY, RENDERED), save_take("b" * 64, RENDERED)
    make_segment(take=used)

    for take in (unused, used):
        drop_unused_take(take)

    assert list(Take.objects.all()) == [used]
    assert not default_storage.exists(unused.audio_key)
    assert not default_storage.exists(unused.codes_key)
    assert default_storage.exists(used.audio_key)


def objects(key: str = KEY) -> set[str]:
    folder = f"takes/{key[:2]}/{key}"
    return {f"{folder}/{name}" for name in default_storage.listdir(folder)[1]}


def test_of_many_takes_with_one_name_the_first_stays_and_nothing_else() -> None:
    stored = [store_take(key, RENDERED) for key in (KEY, "b" * 64, KEY)]

    found = add_takes(stored)

    assert {key: take.pk for key, take in found.items()} == {
        KEY: stored[0].pk,
        "b" * 64: stored[1].pk,
    }
    assert objects() == {stored[0].codes_key, stored[0].audio_key}
    assert Take.objects.count() == 2


def test_writing_the_same_rows_again_changes_nothing() -> None:
    first = save_take(KEY, RENDERED)
    default_storage.delete(first.audio_key)
    stored = [store_take(KEY, RENDERED), store_take("b" * 64, RENDERED)]

    once = add_takes(stored)
    again = add_takes(stored)

    assert once == again
    assert all(default_storage.exists(take.audio_key) for take in again.values())
    assert again[KEY].pk == first.pk


def test_number_of_queries_does_not_grow_with_the_takes(django_assert_num_queries: Any) -> None:
    few = [store_take(f"{number:064}", RENDERED) for number in range(2)]
    many = [store_take(f"{number:064}", RENDERED) for number in range(10, 30)]

    with django_assert_num_queries(4):
        add_takes(few)
    with django_assert_num_queries(4):
        add_takes(many)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_audio_that_is_not_finite_is_refused_before_anything_is_stored(value: float) -> None:
    audio = RENDERED.audio.copy()
    audio[1000] = value

    with pytest.raises(NotFiniteAudioError):
        store_take(KEY, replace(RENDERED, audio=audio))

    assert not Path(default_storage.path("takes")).exists()


def test_audio_beyond_full_scale_is_cut_to_it() -> None:
    audio = np.linspace(-2, 2, 4410, dtype=np.float32)

    take = save_take(KEY, replace(RENDERED, audio=audio))

    kept, _ = soundfile.read(default_storage.path(take.audio_key), dtype="float32")
    assert np.allclose(kept, np.clip(audio, -1, 1), atol=2**-22)
    assert take.measures["peak_dbfs"] == pytest.approx(6.02, abs=0.01)
