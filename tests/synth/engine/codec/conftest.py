"""Give codec tests a small codec of our own sizes, and the golden folder's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import Array
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lab.golden.case import GoldenFolder
from synth.engine.codec.codec_file import expected_shapes
from synth.engine.codec.config import CodecConfig, TransformerConfig
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.load import load_decoder, load_encoder
from synth.engine.codec.streams import Work
from synth.engine.native.library import ConvolutionC, Library

State = dict[str, Tensor]
WriteCodec = Callable[..., Path]


def make_config(**changes: object) -> CodecConfig:
    """Return sizes that differ from one another wherever the codec lets them differ."""
    sizes: dict[str, object] = {
        "sample_rate": 44100,
        "latent_dim": 24,
        "encoder_dim": 2,
        "encoder_strides": (2, 4, 8, 8),
        "decoder_dim": 32,
        "decoder_rates": (8, 8, 4, 2),
        "downsample_factors": (2, 2),
        "upsample_factors": (2, 2),
        "codebook_dim": 5,
        "semantic_codebook_size": 50,
        "residual_codebook_size": 30,
        "num_residual_codebooks": 3,
        "encoder_transformer": TransformerConfig(32, 3, 1, 40, 512),
        "pre_module": TransformerConfig(24, 3, 1, 20, 128),
        "post_module": TransformerConfig(24, 4, 2, 28, 128),
    }
    return CodecConfig(**(sizes | changes))  # type: ignore[arg-type]  # a test's free choice


def random_state(config: CodecConfig, seed: int = 0) -> State:
    """Return random weights for a codec of these sizes, under the names of a codec file."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: torch.randn(shape, generator=generator) * 0.2 + (0.5 if len(shape) == 1 else 0.0)
        for name, shape in expected_shapes(config).items()
    }


@contextmanager
def watched_passes(decoder: CodecDecoder) -> Iterator[list[tuple[int, int]]]:
    """Note for each pass through a decoder how many matrices and how many frames go with it."""
    passes: list[tuple[int, int]] = []
    real = Library.convolve

    def convolve(library: Library, steps: Array[ConvolutionC]) -> None:
        real(library, steps)
        first = [step for step in steps if step.codebooks.table]  # one for each input
        frames = sum(step.batch * step.length for step in first)
        passes.append((sum(step.batch for step in first), frames))

    hook = decoder.quantizer.post_module.norm.register_forward_hook(
        lambda _module, args, _output: passes.append(
            (args[0].shape[0], args[0].shape[0] * args[0].shape[1])
        )
    )
    with hook, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Library, "convolve", convolve)
        yield passes


def keep_eager(work: Work) -> Work:
    """Stand in for a capture: the work itself is its replay."""
    return work


@pytest.fixture
def encoder(checkpoint: Path) -> CodecEncoder:
    """Return the small codec's encoding half."""
    return load_encoder(checkpoint, "cpu")


@pytest.fixture
def config() -> CodecConfig:
    """Return the sizes of a small codec."""
    return make_config()


@pytest.fixture
def state(config: CodecConfig) -> State:
    """Return the weights of a small codec, as a codec file names them."""
    return random_state(config)


@pytest.fixture
def write_codec(tmp_path: Path) -> WriteCodec:
    """Return a function that writes an object as codec.pth into a fresh folder."""

    def write(content: object, folder: str = "checkpoint") -> Path:
        checkpoint = tmp_path / folder
        checkpoint.mkdir(exist_ok=True)
        torch.save(content, checkpoint / "codec.pth")
        return checkpoint

    return write


@pytest.fixture
def checkpoint(write_codec: WriteCodec, state: State) -> Path:
    """Return a folder that holds the small codec."""
    return write_codec(state)


@pytest.fixture(scope="session")
def golden_checkpoint(golden: GoldenFolder) -> Path:
    """Return the golden checkpoint's folder, which is only to be read."""
    return golden.checkpoint


@pytest.fixture(scope="session")
def golden_encoder(golden: GoldenFolder) -> CodecEncoder:
    """Return the golden checkpoint's encoding half."""
    return load_encoder(golden.checkpoint, "cpu")


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("auto", marks=pytest.mark.compiler, id="compiled"),
        pytest.param("off", id="plain"),
    ],
)
def golden_decoder(golden: GoldenFolder, request: pytest.FixtureRequest) -> CodecDecoder:
    """Return the golden checkpoint's decoding half, run by compiled code or by PyTorch."""
    return load_decoder(golden.checkpoint, "cpu", kernels=request.param)
