"""A voice that left as a file comes back and speaks: no worker encodes it again."""

from __future__ import annotations

import tempfile
from typing import IO

import pytest

from tests.workers.pairs import (
    Pair,
    assert_whole,
    counter,
    new_voice,
    submit,
    wait_encoded,
    wait_ended,
)
from voices.models import ClipCodes, Voice
from voices.portable.export import export_voice
from voices.portable.import_ import import_voice
from voices.removal import delete_voice


def exported(voice: Voice) -> IO[bytes]:
    """Return a file with the voice's archive."""
    file = tempfile.TemporaryFile()  # noqa: SIM115  # the caller reads it
    version = voice.current_version
    assert version is not None
    file.writelines(export_voice(voice, version))
    return file


@pytest.mark.parametrize("pair", ["files"], indirect=True)
def test_voice_that_was_exported_deleted_and_imported_speaks_without_an_encoder_run(
    pair: Pair,
) -> None:
    worker = pair.start_worker("w1").wait_ready()
    voice = new_voice()
    before = wait_encoded(voice)
    with exported(voice) as file:
        delete_voice(voice)
        assert not ClipCodes.objects.exists()
        back = import_voice(file, by="tester")
        version = back.current_version
        assert version is not None
        assert (version.status, version.frames) == ("ready", before.frames)
        assert version.warnings == before.warnings
        first = submit(back, text="Ox one.")
        wait_ended(first)

        worker.stop()
        delete_voice(back)
        waiting = import_voice(file, by="tester", name="Later")
    assert waiting.current_version is not None
    assert waiting.current_version.status == "pending"  # nobody has the codec loaded
    pair.start_worker("w1")
    wait_encoded(waiting)
    second = submit(waiting, text="Ox two.")
    wait_ended(second)

    assert_whole(first, second)
    assert counter("encoder_run") == 1
