"""The trained halves compute what the engine's do, and learn."""

from __future__ import annotations

import torch

from lab.training.codec_network import TrainedSnake, build_decoder, build_encoder, codec_config
from synth.engine.codec.layers import Snake

CONFIG = codec_config(num_books=3, book_size=8, decoder_dim=32, layers=1)


def test_snake_gives_what_the_engine_s_gives() -> None:
    engine, x = Snake(5), torch.randn(2, 5, 9)
    torch.nn.init.uniform_(engine.alpha, 0.5, 2)
    assert torch.allclose(TrainedSnake(engine.alpha)(x), engine(x.clone()), atol=1e-6)


def test_snake_s_gradient_is_the_true_one() -> None:
    alpha = torch.nn.Parameter(torch.rand(1, 3, 1, dtype=torch.float64) + 0.5)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(TrainedSnake(alpha), (x,))
    assert torch.autograd.gradcheck(lambda _: TrainedSnake(alpha)(x), (alpha,))


def test_first_weights_keep_the_signal_s_size() -> None:
    torch.manual_seed(0)
    encoder = build_encoder(CONFIG)

    hidden = encoder.encoder(0.1 * torch.randn(1, 1, 8192))

    assert 0.2 < float(hidden.detach().std()) < 20
    assert float(hidden.detach().std(dim=2).mean()) > 0.05  # not bias alone


def test_names_of_weights_are_the_engine_s() -> None:
    from synth.engine.codec.halves import CodecDecoder

    with torch.device("meta"):
        engine = CodecDecoder(CONFIG)
    assert (
        dict(build_decoder(CONFIG).named_parameters()).keys()
        == dict(engine.named_parameters()).keys()
    )
