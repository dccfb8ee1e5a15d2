"""Every format goes out while it is made: at once, whole, and without a length nobody knows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from synth.audio.writers import StreamEncoder, open_writer, read_blocks
from synth.contract import AudioArray
from synth.formats import FORMATS
from tests.synth.audio.received import MOST_DELAY, delay_between, receive, speech_like

RATE = 44_100
PIECES = (0.1, 0.2, 0.5)  # seconds, as a worker cuts them
# What FFmpeg says of any WAV file that it gets without a length.
WAV_REMARKS = ["Ignoring maximum wav data size, file may be invalid\n",
               "Packet corrupt (stream = 0, dts = NOPTS).\n"]  # fmt: skip
DECODED = [name for name, one in FORMATS.items() if one.is_played]


def encode(form: str, samples: AudioArray, rate: int = RATE) -> list[bytes]:
    """Return what goes out with each piece, and at the end."""
    encoder, out, start = StreamEncoder(form, rate), [], 0
    for seconds in (*PIECES, *[PIECES[-1]] * len(samples)):
        end = start + round(seconds * rate)
        if start >= len(samples):
            break
        out.append(encoder.push(samples[start:end]))
        start = end
    return [*out, encoder.end()]


@pytest.mark.parametrize("form", FORMATS)
def test_first_bytes_go_out_with_the_first_piece_and_none_are_kept_back(form: str) -> None:
    out = encode(form, speech_like(4))

    assert out[0], "nothing went out with the first 0.1 s"
    if form in DECODED:
        for count, sent in ((2, 0.3), (3, 0.8), (5, 1.8)):
            heard = receive(b"".join(out[:count]))
            assert len(heard.samples) / heard.sample_rate > sent - 0.12, f"{sent} s were encoded"


@pytest.mark.parametrize("rate", [24_000, RATE])
@pytest.mark.parametrize("form", DECODED)
def test_stream_decodes_without_a_warning_to_the_audio_of_the_file(
    form: str, rate: int, tmp_path: Path
) -> None:
    samples = speech_like(3, rate)
    with open_writer(tmp_path / "file", form, rate) as writer:
        writer.write(samples)

    heard = receive(b"".join(encode(form, samples, rate)))

    file = np.concatenate(list(read_blocks(tmp_path / "file", form, heard.sample_rate)))
    delay = delay_between(heard.samples, file, most=MOST_DELAY)
    assert heard.warnings == (WAV_REMARKS if form == "wav" else [])
    assert 0 <= len(heard.samples) - len(file) <= MOST_DELAY
    both = heard.samples[delay : delay + len(file)], file[: len(heard.samples) - delay]
    assert np.corrcoef(*both)[0, 1] > 0.999


def test_bare_samples_are_those_of_the_file(tmp_path: Path) -> None:
    samples = speech_like(1)
    with open_writer(tmp_path / "file", "pcm", RATE) as writer:
        writer.write(samples)

    assert b"".join(encode("pcm", samples)) == (tmp_path / "file").read_bytes()


@pytest.mark.parametrize(
    ("form", "at", "unknown"),
    [
        pytest.param("wav", 4, b"\xff" * 4, id="wav: of all that follows"),
        pytest.param("wav", 40, b"\xff" * 4, id="wav: of its samples"),
        pytest.param("flac", 22, b"\0" * 4, id="flac: number of samples, its lower 32 bits"),
        pytest.param("flac", 26, b"\0" * 16, id="flac: digest of its samples"),
    ],
)
def test_head_says_that_the_length_is_unknown(form: str, at: int, unknown: bytes) -> None:
    head = b"".join(encode(form, speech_like(1)))

    assert head[at : at + len(unknown)] == unknown


def test_mp3_promises_no_length() -> None:
    content = b"".join(encode("mp3", speech_like(1)))

    assert not any(name in content for name in (b"Xing", b"Info", b"VBRI"))


@pytest.mark.parametrize("form", FORMATS)
def test_encoder_that_is_left_before_its_end_leaves_nothing_behind(
    form: str, capfd: pytest.CaptureFixture[str]
) -> None:
    encoder = StreamEncoder(form, RATE)
    encoder.push(speech_like(0.3))

    del encoder

    assert capfd.readouterr() == ("", "")
