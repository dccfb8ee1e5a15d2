"""Turn audio into codes and codes into audio: two halves that are loaded apart."""

from synth.engine.codec.chunk_schedule import ChunkSchedule
from synth.engine.codec.config import CodecConfig
from synth.engine.codec.convert import ConvertResult, convert_codec
from synth.engine.codec.decoder import CodecDecoder
from synth.engine.codec.encoder import CodecEncoder
from synth.engine.codec.fingerprint import PREPROCESSING_VERSION, codec_fingerprint
from synth.engine.codec.load import CODECS, CodecCache, load_decoder, load_encoder
from synth.engine.codec.precision import DecodeError, decode_error, decode_precision
from synth.engine.codec.reference import EncodedReference, encode_reference
from synth.engine.codec.resample import ResamplerChoice, resample_waveform
from synth.engine.codec.stream import CodecStream, decode_streams

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
