"""Read `codec_config.json`, which may stand beside a codec: its windows and sample rate count."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from synth.engine.codec.config import HEAD_DIM, CodecConfig, TransformerConfig
from synth.engine.errors import CheckpointError

FILE_NAME = "codec_config.json"


def apply_config_file(config: CodecConfig, checkpoint_dir: Path) -> CodecConfig:
    """Return `config` with the sample rate and windows of `codec_config.json`, if it exists.

    Every other number of the file must agree with the sizes read from the tensors.

    Raises:
        CheckpointError: the file is not JSON, holds a field that is not known, or contradicts the
            tensors; the text names the field.
    """
    path = checkpoint_dir / FILE_NAME
    if not path.is_file():
        return config
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}.") from error
    return _ConfigFile(path, config).apply(given)


class _ConfigFile:
    """Walk the file's fields beside the config that the tensors gave."""

    def __init__(self, path: Path, config: CodecConfig) -> None:
        self._path, self._config = path, config

    def apply(self, given: Any) -> CodecConfig:
        config = self._config
        blocks = len(config.encoder_strides)
        # The reference builds the transformers that this list names for the decoder and drops
        # them again, so what it says has no tensors to agree with.
        top = self._fields(
            given, "", also=("sample_rate", "quantizer", "decoder_transformer_layers"),
            encoder_dim=config.encoder_dim,
            encoder_rates=list(config.encoder_strides),
            decoder_dim=config.decoder_dim,
            decoder_rates=list(config.decoder_rates),
            encoder_transformer_layers=[0] * (blocks - 1) + [config.encoder_transformer.num_layers],
        )  # fmt: skip
        quantizer = self._fields(
            top.get("quantizer", {}), "quantizer.", also=("pre_module", "post_module"),
            input_dim=config.latent_dim,
            n_codebooks=config.num_residual_codebooks,
            codebook_size=config.residual_codebook_size,
            codebook_dim=config.codebook_dim,
            semantic_codebook_size=config.semantic_codebook_size,
            downsample_factor=list(config.downsample_factors),
        )  # fmt: skip
        return dataclasses.replace(
            config,
            sample_rate=self._positive(top, "", "sample_rate", config.sample_rate),
            pre_module=self._transformer(quantizer, "pre_module", config.pre_module),
            post_module=self._transformer(quantizer, "post_module", config.post_module),
        )

    def _transformer(
        self, given: dict[str, Any], name: str, config: TransformerConfig
    ) -> TransformerConfig:
        at = f"quantizer.{name}."
        module = self._fields(
            given.get(name, {}), at, also=("window_size", "config"), input_dim=config.dim
        )
        self._fields(
            module.get("config", {}), f"{at}config.",
            n_layer=config.num_layers,
            n_head=config.num_heads,
            dim=config.dim,
            intermediate_size=config.ffn_dim,
            head_dim=HEAD_DIM,
        )  # fmt: skip
        window = self._positive(module, at, "window_size", config.window)
        return dataclasses.replace(config, window=window)

    def _fields(
        self, given: Any, at: str, *, also: tuple[str, ...] = (), **derived: object
    ) -> dict[str, Any]:
        """Return `given` as a mapping after comparing each of its fields with the derived value."""
        if not isinstance(given, dict):
            raise CheckpointError(f"{self._path}: {at.rstrip('.') or 'the file'} is not an object.")
        for field, value in given.items():
            if field in also:
                continue
            if field not in derived:
                raise CheckpointError(
                    f"{self._path}: {at}{field} is not a known field; correct the file or "
                    "remove it."
                )
            if value != derived[field]:
                raise CheckpointError(
                    f"{self._path}: {at}{field} is {value!r}, but the codec's tensors have "
                    f"{derived[field]!r}; correct the file or remove it."
                )
        return given

    def _positive(self, given: dict[str, Any], at: str, field: str, default: int) -> int:
        value = given.get(field, default)
        if type(value) is not int or value < 1:
            raise CheckpointError(
                f"{self._path}: {at}{field} is {value!r}, not a whole number above 0."
            )
        return value
