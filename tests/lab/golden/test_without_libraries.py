"""Check golden vectors on a machine that has torch and little else."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from lab.golden.case import GoldenFolder, GoldenFolderError, read_wav
from lab.golden.models import NoTokenizerError, VocabularyFile, read_vocabulary
from synth.engine.prompt import Tokenizer
from tests.synth.engine.conftest import GOLDEN


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the libraries away."""
    for name in ("tokenizers", "soundfile"):
        monkeypatch.setitem(sys.modules, name, None)


def test_the_ids_are_the_librarys_and_no_text_is_encoded() -> None:
    checkpoint = GoldenFolder(GOLDEN).checkpoint
    library = Tokenizer.from_checkpoint(checkpoint)
    own = Tokenizer(VocabularyFile(checkpoint / "tokenizer.json"))
    assert own.special == library.special
    assert own.id_of("<|voice|>") == library.id_of("<|voice|>")
    with pytest.raises(NoTokenizerError, match="not installed"):
        own.encode("text")


@pytest.mark.usefixtures("bare")
def test_ids_are_read_from_the_file_where_the_library_is_missing() -> None:
    found = read_vocabulary(GoldenFolder(GOLDEN).checkpoint)
    assert found is not None
    assert found.special.num_semantic == 256


def test_the_library_reads_the_file_where_it_is_there() -> None:
    assert read_vocabulary(GoldenFolder(GOLDEN).checkpoint) is None


@pytest.mark.parametrize("name", ["wav/speech_0p4s", "wav_voices/stereo_96k"])
def test_a_wav_has_the_same_samples_without_the_library(
    name: str, request: pytest.FixtureRequest
) -> None:
    path = GOLDEN / "vectors" / f"{name}.wav"
    expected, rate = read_wav(path)
    request.getfixturevalue("bare")
    found, found_rate = read_wav(path)
    assert torch.equal(found, expected)
    assert found_rate == rate


def test_another_format_names_the_library(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    soundfile.write(tmp_path / "wide.wav", np.zeros(9, np.float32), 44_100, subtype="FLOAT")
    soundfile.write(tmp_path / "deep.wav", np.zeros(9, np.float32), 44_100, subtype="PCM_24")
    request.getfixturevalue("bare")
    for name in ("wide.wav", "deep.wav"):
        with pytest.raises(GoldenFolderError, match="needs the package soundfile"):
            read_wav(tmp_path / name)
