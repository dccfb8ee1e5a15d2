"""Give codec tests a small codec of our own sizes, and the golden folder's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import Array
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from lab.golden.case import GoldenFolder
from synth.engine.codec.codec_file import expected_shapes
from synth.engine.codec.config import CodecConfig, TransformerConfig
from synth.engine.codec.halves import CodecDecoder, CodecEncoder
from synth.engine.codec.load import load_decoder, load_encoder
from synth.engine.codec.streams import CodecStream, StreamGraphs, Work, decode_streams
from synth.engine.native.library import ConvolutionC, Library

State = dict[str, Tensor]
WriteCodec = Callable[..., Path]
Module = TypeVar("Module", bound=nn.Module)
EXACT = 1e-4  # the audio's range is 2


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


def randomised(module: Module, seed: int, spread: float) -> Module:
    """Return the module with random weights, as blocks are built without any."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
    return module.requires_grad_(False)


def random_codes(config: CodecConfig, frames: int, seed: int = 0) -> Tensor:
    """Return codes [K, frames] within the residual codebooks."""
    generator = torch.Generator().manual_seed(seed)
    size = (config.num_codebooks, frames)
    return torch.randint(0, config.residual_codebook_size, size, generator=generator)


def golden_codes(frames: int, seed: int = 0) -> Tensor:
    """Return codes [10, frames] that the golden codec knows."""
    return torch.randint(0, 128, (10, frames), generator=torch.Generator().manual_seed(seed))


def whole(decoder: CodecDecoder, codes: Tensor) -> Tensor:
    return decoder.decode([codes], max_batch_frames=max(1, codes.shape[1]))[0]


def decode_rounds(
    decoder: CodecDecoder,
    codes: Sequence[Tensor],
    rounds: Sequence[Sequence[int]],
    graphs: StreamGraphs | None = None,
    *,
    before_each: Callable[[], None] = lambda: None,
) -> tuple[list[Tensor], list[CodecStream]]:
    """Return each stream's audio, in rounds of one chunk of each, and the streams."""
    streams = [CodecStream(decoder) for _ in codes]
    parts: list[list[Tensor]] = [[] for _ in codes]
    for lengths in rounds:
        before_each()
        starts = [stream.num_frames for stream in streams]
        chunks = [
            matrix[:, start : start + length]
            for matrix, start, length in zip(codes, starts, lengths, strict=True)
        ]
        for part, wave in zip(parts, decode_streams(streams, chunks, graphs=graphs), strict=True):
            part.append(wave)
    return [torch.cat(part) for part in parts], streams


def check_streams(
    found: Sequence[Tensor],
    streams: Sequence[CodecStream],
    codes: Sequence[Tensor],
    atol: float = EXACT,
) -> None:
    """Compare what streams gave with one pass over the frames that they took."""
    for audio, stream, matrix in zip(found, streams, codes, strict=True):
        expected = whole(stream.decoder, matrix[:, : stream.num_frames])
        torch.testing.assert_close(audio, expected, atol=atol, rtol=0)


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


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> CodecEncoder:
    folder = tmp_path_factory.mktemp("small-codec")
    torch.save(random_state(make_config()), folder / "codec.pth")
    return load_encoder(folder, "cpu")


@pytest.fixture
def config() -> CodecConfig:
    return make_config()


@pytest.fixture
def state(config: CodecConfig) -> State:
    return random_state(config)


@pytest.fixture
def write_codec(tmp_path: Path) -> WriteCodec:
    def write(content: object, folder: str = "checkpoint") -> Path:
        checkpoint = tmp_path / folder
        checkpoint.mkdir(exist_ok=True)
        torch.save(content, checkpoint / "codec.pth")
        return checkpoint

    return write


@pytest.fixture
def checkpoint(write_codec: WriteCodec, state: State) -> Path:
    return write_codec(state)


@pytest.fixture(scope="session")
def golden_checkpoint(golden: GoldenFolder) -> Path:
    return golden.checkpoint


@pytest.fixture(scope="session")
def golden_encoder(golden: GoldenFolder) -> CodecEncoder:
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
