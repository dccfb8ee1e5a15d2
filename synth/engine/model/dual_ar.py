"""Join the slow and the fast AR to one model that is immutable once loaded."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import torch
from torch import nn

from synth.engine.errors import CheckpointError
from synth.engine.model.config import LMConfig
from synth.engine.model.fast_ar import FastAR
from synth.engine.model.linear import LinearForm
from synth.engine.model.slow_ar import SlowAR
from synth.engine.tokenizer import SpecialIds

if TYPE_CHECKING:
    from synth.engine.native.frame import NativeFrames

KERNELS = "synth.engine.kernels.frame"  # it imports triton, which is not everywhere
NATIVE = "synth.engine.native.frame"  # it imports this module


class DualAR(nn.Module):
    """Hold both transformers, the configuration they came from and the special token ids."""

    def __init__(self, config: LMConfig, special: SpecialIds) -> None:
        """Build the modules; under `torch.device("meta")` this takes no memory.

        Raises:
            CheckpointError: the tokenizer's ids do not fit the model's tables.
        """
        super().__init__()
        _check_ids(config, special)
        self.config, self.special, self.form = config, special, LinearForm.PLAIN
        self.slow, self.fast = SlowAR(config), FastAR(config)
        self.has_kernels = False
        self.native: NativeFrames | None = None

    @property
    def device(self) -> torch.device:
        """Return the device the weights are on."""
        return self.slow.norm.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of weights, caches and activations."""
        return self.slow.norm.weight.dtype

    @property
    def weight_format(self) -> str:
        """Return what the matrices are kept in: float32, bfloat16 or int8."""
        return "int8" if self.form.is_int8 else str(self.dtype).removeprefix("torch.")

    @property
    def has_own_frames(self) -> bool:
        """Return whether our own kernels compute decode steps: Triton's, or compiled code's."""
        return self.has_kernels or self.native is not None

    def finalize(self, form: LinearForm = LinearForm.PLAIN) -> None:
        """Prepare assigned weights for use, the matrices in `form`; call once."""
        self.form = form
        self.requires_grad_(False)
        self.eval()
        self.slow.finalize(self.special, form)
        self.fast.finalize(form)
        if form.is_native:
            self.native = importlib.import_module(NATIVE).NativeFrames(self)

    def use_kernels(self) -> None:
        """Let kernels compute the decode steps of a finalized model.

        Raises:
            CheckpointError: its layers are of a kind that no kernel is written for.
        """
        frame = importlib.import_module(KERNELS)  # a triton that cannot be imported shows now
        if not frame.can_make_frames(self):
            raise CheckpointError(
                "There are no kernels for this model's layers; set TTS_ENGINE_KERNELS=off."
            )
        self.has_kernels = True


def _check_ids(config: LMConfig, special: SpecialIds) -> None:
    size = config.audio_decoder_config.vocab_size
    if special.num_semantic != size:
        raise CheckpointError(
            f"tokenizer.json has {special.num_semantic} semantic tokens, but the model has "
            f"codebooks of {size}: a token is missing, or the two files belong to different "
            "models. Download the checkpoint again."
        )
    if max(special.semantic_end, special.im_end) >= config.text_config.vocab_size:
        raise CheckpointError(
            "tokenizer.json has ids beyond the model's vocab_size of "
            f"{config.text_config.vocab_size}; the two files belong to different models. "
            "Download the checkpoint again."
        )
