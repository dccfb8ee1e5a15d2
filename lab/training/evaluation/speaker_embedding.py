"""Tell speakers apart by the network of Resemblyzer (Apache-2.0), trained on people by its authors.

Only its weights are read: its own code draws in librosa, numba and a compiler, for a spectrogram
and forty lines. The network is that of "Generalized end-to-end loss for speaker verification"
(arXiv 1710.10467).
"""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from lab.training.evaluation.spectra import RATE, Floats, Wave, mel_triangles
from ttsweb.commands.base import StepError

REQUIREMENTS = Path(__file__).parent.relative_to(Path(__file__).parents[3]) / "requirements.txt"
_BANDS, _WIDTH = 40, 256
_WINDOW, _HOP = 400, 160  # samples
_FRAMES = 160  # of one look, 1.6 s
_STEP = 77  # frames between two looks: 1.3 a second
_COVERED = 0.75  # of the last look, else it is left out
_LEVEL = 10 ** (-30 / 20)  # root mean square; quieter waves are raised to it


class SpeakerEncoder(nn.Module):
    """Map spectrograms [B, 160, 40] to embeddings [B, 256] of length 1."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(_BANDS, _WIDTH, 3, batch_first=True)
        self.linear = nn.Linear(_WIDTH, _WIDTH)

    def forward(self, mels: Tensor) -> Tensor:
        """Return the embeddings."""
        _, (hidden, _) = self.lstm(mels)
        return nn.functional.normalize(torch.relu(self.linear(hidden[-1])), dim=1)


def embed_speaker(wave: Wave) -> npt.NDArray[np.float32]:
    """Return who speaks in a wave [N] at `RATE`: [256], of length 1; alike voices lie close.

    Raises:
        StepError: the weights are not installed; the text says how to get them.
    """
    loud = np.sqrt(np.mean(np.square(wave))) if len(wave) else 0.0
    samples = torch.from_numpy(wave * max(1.0, _LEVEL / max(float(loud), 1e-9)))
    starts = _look_starts(len(wave))
    end = (starts[-1] + _FRAMES) * _HOP
    samples = nn.functional.pad(samples, (0, max(0, end - len(wave))))
    mel = _mel(samples)
    with torch.inference_mode():
        looks = _encoder()(torch.stack([mel[start : start + _FRAMES] for start in starts]))
        embedding: npt.NDArray[np.float32] = nn.functional.normalize(looks.mean(0), dim=0).numpy()
    return embedding


def _look_starts(num_samples: int) -> list[int]:
    frames = -(-(num_samples + 1) // _HOP)
    starts = list(range(0, max(1, frames - _FRAMES + _STEP + 1), _STEP))
    is_covered = (num_samples - starts[-1] * _HOP) / (_FRAMES * _HOP) >= _COVERED
    return starts if is_covered or len(starts) == 1 else starts[:-1]


def _mel(samples: Tensor) -> Tensor:
    """Return the mel powers [frames, 40] that the network was trained on."""
    window = torch.hann_window(_WINDOW)
    spectrum = torch.stft(
        samples, _WINDOW, _HOP, window=window, pad_mode="constant", return_complex=True
    )
    filters = torch.from_numpy(mel_triangles(_WINDOW, _mel_edges()).astype(np.float32))
    return (filters @ spectrum.abs().square()).T


def _mel_edges() -> Floats:
    """Return the bands' edges in Hz by Slaney's scale: linear up to 1 kHz, then logarithmic."""
    per_mel, bend, growth = 200 / 3, 15.0, np.log(6.4) / 27
    mels = np.linspace(0, bend + np.log(RATE / 2 / 1000) / growth, _BANDS + 2)
    return np.where(mels < bend, mels * per_mel, 1000 * np.exp((mels - bend) * growth))


@lru_cache(maxsize=1)
def _encoder() -> SpeakerEncoder:
    state = torch.load(find_weights(), map_location="cpu", weights_only=True)["model_state"]
    encoder = SpeakerEncoder()
    encoder.load_state_dict({name: state[name] for name in encoder.state_dict()})
    return encoder.eval()


def find_weights() -> Path:
    """Return Resemblyzer's file of weights.

    Raises:
        StepError: extra_missing, with the command that installs it.
    """
    found = find_spec("resemblyzer")
    for folder in (found.submodule_search_locations or ()) if found else ():
        if (path := Path(folder) / "pretrained.pt").is_file():
            return path
    raise StepError(
        "extra_missing",
        "Telling speakers apart needs the weights of Resemblyzer: "
        f".venv/bin/python -m pip install --no-deps -r {REQUIREMENTS}",
    )
