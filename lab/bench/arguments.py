"""Read what benchmarks have in common from the command line, and refuse what cannot be measured."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from synth.engine.codec.config import DECODE_PRECISIONS, ENCODE_PRECISIONS, KERNEL_CHOICES
from synth.engine.errors import InvalidSpecError
from synth.engine.presets import PRESETS, Preset


def add_model_arguments(parser: ArgumentParser, *, preset: str = "mid") -> None:
    """Take the model's shape, the device and the seed of weights and prompts."""
    shapes = "; ".join(f"{shape.name}: {shape.summary}" for shape in PRESETS.values())
    parser.add_argument("--preset", default=preset, help=f"{shapes} (default: {preset})")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N (default: auto)")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, prompts and draws")


def numbers(*, low: int) -> Callable[[str], list[int]]:
    """Return a reader of whole numbers with commas between them, each at least `low`."""

    def read(text: str) -> list[int]:
        try:
            values = [int(part) for part in text.split(",")]
        except ValueError as error:
            raise ArgumentTypeError(
                f"{text!r}: expected whole numbers separated by commas, such as 1,8,16"
            ) from error
        wrong = [value for value in values if value < low]
        if wrong:
            raise ArgumentTypeError(f"{wrong[0]} is too small; use at least {low}")
        return list(dict.fromkeys(values))

    return read


def number(*, low: int) -> Callable[[str], int]:
    """Return a reader of one whole number, at least `low`."""
    read_all = numbers(low=low)

    def read(text: str) -> int:
        values = read_all(text)
        if len(values) != 1:
            raise ArgumentTypeError(f"{text!r}: expected one whole number")
        return values[0]

    return read


def names(*known: str) -> Callable[[str], list[str]]:
    """Return a reader of names with commas between them, each one of `known`."""

    def read(text: str) -> list[str]:
        values = text.split(",")
        for value in values:
            if value not in known:
                raise ArgumentTypeError(f"{value!r} is unknown; use {', '.join(known)}")
        return list(dict.fromkeys(values))

    return read


def add_source_arguments(parser: ArgumentParser) -> None:
    """Take the preset or a checkpoint whose codec is measured instead."""
    add_model_arguments(parser)
    parser.add_argument(
        "--checkpoint", type=Path, help="measure the codec in this folder instead of the preset's"
    )
    parser.add_argument(
        "--kernels",
        choices=KERNEL_CHOICES,
        default="auto",
        help="kernels of the codec; auto: if the device has them (default: auto)",
    )


def add_ar_arguments(parser: ArgumentParser) -> None:
    """Take the sweeps and how much is measured."""
    add_model_arguments(parser)
    least = numbers(low=1)
    parser.add_argument(
        "--batch", type=least, default=[1, 8, 16], help="numbers of streams, such as 1,8,16"
    )
    parser.add_argument(
        "--context",
        type=least,
        default=[300],
        help="mean positions that are attended to, such as 300,1200",
    )
    parser.add_argument(
        "--shared",
        type=numbers(low=0),
        default=[0],
        help="positions that all streams share at the start, as with one voice, such as 0,600",
    )
    parser.add_argument(
        "--dtype",
        type=names("auto", "float32", "bfloat16", "int8"),
        default=["auto"],
        help="weight formats: auto, float32, bfloat16, int8",
    )
    parser.add_argument(
        "--graphs",
        type=names("auto", "on", "off"),
        default=["auto"],
        help="replay the step as a CUDA graph: auto (on with CUDA), on, off, or off,on",
    )
    parser.add_argument(
        "--kernels",
        type=names("auto", "off"),
        default=["auto"],
        help="own kernels: auto (if they can be compiled), off, or off,auto",
    )
    parser.add_argument(
        "--positions",
        type=number(low=0),
        default=0,
        help="positions of a slot (default: as many as needed)",
    )
    parser.add_argument("--frames", type=number(low=1), default=64, help="frames of one window")
    parser.add_argument(
        "--windows", type=number(low=1), default=5, help="number of windows; the median counts"
    )
    parser.add_argument("--baseline", action="store_true", help="also measure the plain loop")
    parser.add_argument(
        "--baseline-frames",
        type=number(low=1),
        default=16,
        help="frames of the plain loop's windows",
    )
    parser.add_argument(
        "--baseline-dtype",
        type=names("float32", "bfloat16"),
        help=(
            "number formats of the plain loop; the faster one counts (default: both, on CUDA "
            "bfloat16)"
        ),
    )


def add_fast_arguments(parser: ArgumentParser) -> None:
    """Take the batches and how much is measured."""
    add_model_arguments(parser)
    parser.add_argument("--batch", type=numbers(low=1), default=[1, 8, 64], help="streams")
    parser.add_argument(
        "--dtype", default="auto", help="number format, as TTS_DTYPE (default: auto)"
    )
    parser.add_argument(
        "--graphs", type=names("auto", "on", "off"), default=["auto"], help="as in ar"
    )
    parser.add_argument("--kernels", type=names("auto", "off"), default=["auto"], help="as in ar")
    parser.add_argument("--frames", type=number(low=1), default=64, help="frames of one window")
    parser.add_argument(
        "--windows", type=number(low=1), default=5, help="number of windows; the median counts"
    )


def add_prefill_arguments(parser: ArgumentParser) -> None:
    """Take the sweeps and how much is measured."""
    add_model_arguments(parser)
    parser.add_argument(
        "--tokens", type=numbers(low=1), default=[100, 180, 500], help="positions of a text"
    )
    parser.add_argument(
        "--prefix",
        type=numbers(low=0),
        default=[0, 600],
        help="positions of a voice before the text",
    )
    parser.add_argument(
        "--dtype",
        type=names("auto", "float32", "bfloat16", "int8"),
        default=["auto"],
        help="weight formats: auto, float32, bfloat16, int8",
    )
    parser.add_argument(
        "--windows", type=number(low=1), default=5, help="number of windows; the median counts"
    )
    parser.add_argument("--baseline", action="store_true", help="also measure the plain loop")


def add_codec_arguments(parser: ArgumentParser) -> None:
    """Take the sweeps and how much is measured."""
    add_source_arguments(parser)
    least = numbers(low=1)
    parser.add_argument("--frames", type=least, default=[4, 16, 64], help="frames of one segment")
    parser.add_argument(
        "--batch", type=least, default=[1, 8], help="segments that are decoded together"
    )
    parser.add_argument(
        "--precision",
        type=names(*DECODE_PRECISIONS),
        default=["float32", "bfloat16"],
        help="number format of the decoder",
    )
    parser.add_argument(
        "--streamed",
        type=names("0", "1"),
        default=["0", "1"],
        help="0 for a whole segment, 1 for chunks",
    )
    parser.add_argument(
        "--graphs",
        choices=("auto", "off"),
        default="auto",
        help="replay the chunks of streams as graphs; auto: on CUDA (default: auto)",
    )
    parser.add_argument(
        "--windows", type=number(low=1), default=5, help="number of runs; the median counts"
    )


def add_encode_arguments(parser: ArgumentParser) -> None:
    """Take the clips' lengths and how much is measured."""
    add_source_arguments(parser)
    parser.add_argument(
        "--seconds", type=numbers(low=1), default=[10, 30], help="seconds of the clips"
    )
    parser.add_argument(
        "--clip",
        type=Path,
        help="WAV or FLAC file to encode, repeated to the length; default: a tone",
    )
    parser.add_argument(
        "--precision",
        type=names(*ENCODE_PRECISIONS),
        help=(
            "number formats besides float32, which is always measured (default: what the device "
            "has)"
        ),
    )
    parser.add_argument(
        "--windows", type=number(low=1), default=5, help="number of runs; the median counts"
    )


def _add_engine_arguments(parser: ArgumentParser) -> None:
    """Take the model, and how a whole engine computes it."""
    add_model_arguments(parser)
    parser.add_argument(
        "--dtype", default="auto", help="number format, as TTS_DTYPE (default: auto)"
    )
    parser.add_argument(
        "--codec-dtype",
        choices=DECODE_PRECISIONS,
        default="float32",
        help="number format of the decoder",
    )
    parser.add_argument("--graphs", choices=("auto", "on", "off"), default="auto")


def add_stream_arguments(parser: ArgumentParser) -> None:
    """Take the requests and what else the engine does meanwhile."""
    _add_engine_arguments(parser)
    parser.add_argument("--requests", type=number(low=1), default=5, help="requests of each row")
    parser.add_argument("--frames", type=number(low=1), default=32, help="frames of each request")
    parser.add_argument(
        "--text-letters", type=number(low=1), default=100, help="letters of each request's text"
    )
    parser.add_argument(
        "--voice-frames",
        type=number(low=1),
        default=215,
        help="frames of the voice's clip (215: 10 s)",
    )
    parser.add_argument("--slots", type=number(low=2), default=8, help="slots of the engine")
    parser.add_argument(
        "--busy", type=numbers(low=0), default=[0], help="slots that render something else"
    )


def add_segments_arguments(parser: ArgumentParser) -> None:
    """Take the segments, the engine's slots and the codec's precision."""
    _add_engine_arguments(parser)
    parser.add_argument("--kernels", choices=("auto", "off"), default="auto")
    parser.add_argument("--slots", type=number(low=1), default=8, help="slots of the engine")
    parser.add_argument("--segments", type=number(low=1), default=32, help="segments in all")
    parser.add_argument(
        "--frames", type=number(low=2), default=200, help="mean frames of a segment"
    )
    parser.add_argument(
        "--text-letters", type=number(low=1), default=100, help="letters of each segment's text"
    )
    parser.add_argument(
        "--voices", type=number(low=1), default=1, help="number of voices, used in turn"
    )
    parser.add_argument(
        "--voice-frames",
        type=number(low=1),
        default=215,
        help="frames of a voice's clip (215: 10 s)",
    )
    parser.add_argument(
        "--max-positions",
        type=number(low=0),
        default=0,
        help="positions of a slot (default: as many as needed)",
    )


def add_cold_arguments(parser: ArgumentParser) -> None:
    """Take the model, where its files are kept, and how often it is started."""
    add_model_arguments(parser)
    parser.add_argument(
        "--checkpoint", type=Path, help="start this checkpoint instead of the preset's"
    )
    parser.add_argument(
        "--dtype", default="auto", help="number format, as TTS_DTYPE (default: auto)"
    )
    parser.add_argument(
        "--codec-dtype",
        choices=DECODE_PRECISIONS,
        default="float32",
        help="number format of the decoder",
    )
    parser.add_argument("--graphs", choices=("auto", "on", "off"), default="auto")
    parser.add_argument("--slots", type=number(low=1), default=8)
    parser.add_argument(
        "--max-positions", type=number(low=64), default=2048, help="positions of a slot"
    )
    parser.add_argument(
        "--frames", type=number(low=1), default=21, help="frames of the first audio"
    )
    parser.add_argument(
        "--runs", type=number(low=1), default=3, help="number of starts; the median counts"
    )
    parser.add_argument(
        "--from-disk",
        action="store_true",
        help="drop the weights from the page cache before each start",
    )


def check_context(shape: Preset, positions: int) -> None:
    """Raise InvalidSpecError when a model of this shape has fewer positions."""
    limit = shape.config.text_config.max_seq_len
    if positions > limit:
        raise InvalidSpecError(
            f"This needs {positions} positions, but a model of preset {shape.name} has only "
            f"{limit}; choose a shorter context or fewer frames."
        )


def add_e2e_arguments(parser: ArgumentParser) -> None:
    """Take the book, how much of it, and what the service runs on."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--book", type=Path, metavar="FILE.epub")
    what.add_argument(
        "--jobs",
        type=number(low=20),
        help="number of jobs of one sentence instead, in a batch, over HTTP",
    )
    parser.add_argument(
        "--posts",
        type=number(low=20),
        default=500,
        help="with --jobs: number of further jobs, sent one by one",
    )
    parser.add_argument(
        "--chapters", type=number(low=1), default=1, help="number of chapters, from the first on"
    )
    parser.add_argument("--segments", type=number(low=1), help="about this many segments at most")
    parser.add_argument(
        "--repeat", type=number(low=1), default=4, help="number of rounds; the median counts"
    )
    add_service_arguments(parser)


def add_service_arguments(parser: ArgumentParser) -> None:
    """Take what a worker of a benchmark runs on."""
    parser.add_argument("--slots", type=number(low=1), default=16)
    parser.add_argument("--checkpoint", type=Path, help="checkpoint; default: TTS_CHECKPOINT")
    shapes = ", ".join(PRESETS)
    parser.add_argument(
        "--preset", choices=sorted(PRESETS), help=f"preset with random weights: {shapes}"
    )
    parser.add_argument("--device", help="device; default: TTS_DEVICE")
    parser.add_argument(
        "--database", default="", metavar="URL", help="an empty database; default: SQLite"
    )
    parser.add_argument("--broker", default="", metavar="URL", help="Redis; default: files")


def add_inline_arguments(parser: ArgumentParser) -> None:
    """Take how many requests, with clips how long, and what the service runs on."""
    parser.add_argument("--requests", type=number(low=1), default=12, help="requests of each kind")
    parser.add_argument(
        "--seconds", type=numbers(low=1), default=[3, 10, 30], help="seconds of the clip"
    )
    add_service_arguments(parser)
