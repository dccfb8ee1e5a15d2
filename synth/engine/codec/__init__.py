"""Turn audio into codes and codes into audio: two halves that are loaded apart."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from synth.engine.codec.config import CodecConfig
    from synth.engine.codec.decoder import CodecDecoder
    from synth.engine.codec.encoder import CodecEncoder
    from synth.engine.codec.files.convert import ConvertResult, convert_codec
    from synth.engine.codec.files.fingerprint import PREPROCESSING_VERSION, codec_fingerprint
    from synth.engine.codec.files.load import CODECS, CodecCache, load_decoder, load_encoder
    from synth.engine.codec.files.reference import EncodedReference, encode_reference
    from synth.engine.codec.precision import DecodeError, decode_error, decode_precision
    from synth.engine.codec.resample import ResamplerChoice, resample_waveform
    from synth.engine.codec.streams.chunk_schedule import ChunkSchedule
    from synth.engine.codec.streams.decoder import CodecStream, decode_streams

__all__ = [
    "CODECS",
    "PREPROCESSING_VERSION",
    "ChunkSchedule",
    "CodecCache",
    "CodecConfig",
    "CodecDecoder",
    "CodecEncoder",
    "CodecStream",
    "ConvertResult",
    "DecodeError",
    "EncodedReference",
    "ResamplerChoice",
    "codec_fingerprint",
    "convert_codec",
    "decode_error",
    "decode_precision",
    "decode_streams",
    "encode_reference",
    "load_decoder",
    "load_encoder",
    "resample_waveform",
]

# Loaded when they are asked for: what only describes shapes and arguments does not wait for torch.
_MODULES = {
    "CODECS": "synth.engine.codec.files.load",
    "ChunkSchedule": "synth.engine.codec.streams.chunk_schedule",
    "CodecCache": "synth.engine.codec.files.load",
    "CodecConfig": "synth.engine.codec.config",
    "CodecDecoder": "synth.engine.codec.decoder",
    "CodecEncoder": "synth.engine.codec.encoder",
    "CodecStream": "synth.engine.codec.streams.decoder",
    "ConvertResult": "synth.engine.codec.files.convert",
    "DecodeError": "synth.engine.codec.precision",
    "EncodedReference": "synth.engine.codec.files.reference",
    "PREPROCESSING_VERSION": "synth.engine.codec.files.fingerprint",
    "ResamplerChoice": "synth.engine.codec.resample",
    "codec_fingerprint": "synth.engine.codec.files.fingerprint",
    "convert_codec": "synth.engine.codec.files.convert",
    "decode_error": "synth.engine.codec.precision",
    "decode_precision": "synth.engine.codec.precision",
    "decode_streams": "synth.engine.codec.streams.decoder",
    "encode_reference": "synth.engine.codec.files.reference",
    "load_decoder": "synth.engine.codec.files.load",
    "load_encoder": "synth.engine.codec.files.load",
    "resample_waveform": "synth.engine.codec.resample",
}


def __getattr__(name: str) -> Any:
    """Return a public name, from the module that it is of."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
