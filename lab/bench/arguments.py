"""Read what benchmarks have in common from the command line, and refuse what cannot be measured."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from pathlib import Path

from lab.bench.models.shapes import PRESETS, Preset
from synth.engine.codec.config import KERNEL_CHOICES, PRECISIONS
from synth.engine.errors import InvalidSpecError

# What matrices are kept in on a GPU.
GPU_FORMATS = ("float32", "bfloat16", "float16", "int8", "int8-slow", "fp8")


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


def _take_count(
    parser: ArgumentParser, flag: str, default: int | None, text: str | None = None, *, low: int = 1
) -> None:
    parser.add_argument(flag, type=number(low=low), default=default, help=text)


def _take_counts(
    parser: ArgumentParser, flag: str, default: list[int], text: str, *, low: int = 1
) -> None:
    parser.add_argument(flag, type=numbers(low=low), default=default, help=text)


def _take_dtypes(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dtype",
        type=names("auto", *GPU_FORMATS),
        default=["auto"],
        help=f"weight formats: auto, {', '.join(GPU_FORMATS)}",
    )


def _take_dtype(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--dtype", default="auto", help="number format, as TTS_DTYPE (default: auto)"
    )


def _take_windows(parser: ArgumentParser, what: str = "windows") -> None:
    _take_count(parser, "--windows", 5, f"number of {what}; the median counts")


def _take_baseline(parser: ArgumentParser) -> None:
    parser.add_argument("--baseline", action="store_true", help="also measure the plain loop")


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
    _take_counts(parser, "--batch", [1, 8, 16], "numbers of streams, such as 1,8,16")
    context = "mean positions that are attended to, such as 300,1200"
    _take_counts(parser, "--context", [300], context)
    shared = "positions that all streams share at the start, as with one voice, such as 0,600"
    _take_counts(parser, "--shared", [0], shared, low=0)
    _take_dtypes(parser)
    graphs = "replay the step as a CUDA graph: auto (on with CUDA), on, off, or off,on"
    parser.add_argument("--graphs", type=names("auto", "on", "off"), default=["auto"], help=graphs)
    kernels = "own kernels: auto (if they can be compiled), off, or off,auto"
    parser.add_argument("--kernels", type=names("auto", "off"), default=["auto"], help=kernels)
    positions = "positions of a slot (default: as many as needed)"
    _take_count(parser, "--positions", 0, positions, low=0)
    _take_count(parser, "--frames", 64, "frames of one window")
    _take_windows(parser)
    _take_baseline(parser)
    _take_count(parser, "--baseline-frames", 16, "frames of the plain loop's windows")
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
    _take_counts(parser, "--batch", [1, 8, 64], "streams")
    _take_dtype(parser)
    parser.add_argument(
        "--graphs", type=names("auto", "on", "off"), default=["auto"], help="as in ar"
    )
    parser.add_argument("--kernels", type=names("auto", "off"), default=["auto"], help="as in ar")
    _take_count(parser, "--frames", 64, "frames of one window")
    _take_windows(parser)


def add_prefill_arguments(parser: ArgumentParser) -> None:
    """Take the sweeps and how much is measured."""
    add_model_arguments(parser)
    _take_counts(parser, "--tokens", [100, 180, 500], "positions of a text")
    _take_counts(parser, "--prefix", [0, 600], "positions of a voice before the text", low=0)
    _take_dtypes(parser)
    _take_windows(parser)
    _take_baseline(parser)


def add_codec_arguments(parser: ArgumentParser) -> None:
    """Take the sweeps and how much is measured."""
    add_source_arguments(parser)
    _take_counts(parser, "--frames", [4, 16, 64], "frames of one segment")
    _take_counts(parser, "--batch", [1, 8], "segments that are decoded together")
    parser.add_argument(
        "--precision",
        type=names(*PRECISIONS),
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
    _take_windows(parser, "runs")


def add_encode_arguments(parser: ArgumentParser) -> None:
    """Take the clips' lengths and how much is measured."""
    add_source_arguments(parser)
    _take_counts(parser, "--seconds", [10, 30], "seconds of the clips")
    clip = "WAV or FLAC file to encode, repeated to the length; default: a tone"
    parser.add_argument("--clip", type=Path, help=clip)
    parser.add_argument(
        "--precision",
        type=names(*PRECISIONS),
        help=(
            "number formats besides float32, which is always measured (default: what the device "
            "has)"
        ),
    )
    _take_windows(parser, "runs")


def _add_engine_arguments(parser: ArgumentParser) -> None:
    """Take how a whole engine computes its model."""
    _take_dtype(parser)
    parser.add_argument(
        "--codec-dtype",
        choices=("auto", *PRECISIONS),
        default="auto",
        help="number format of the decoder (default: auto, what an engine takes)",
    )
    parser.add_argument("--graphs", choices=("auto", "on", "off"), default="auto")


def add_stream_arguments(parser: ArgumentParser) -> None:
    """Take the requests and what else the engine does meanwhile."""
    add_model_arguments(parser)
    _add_engine_arguments(parser)
    _take_count(parser, "--requests", 5, "requests of each row")
    _take_count(parser, "--frames", 32, "frames of each request")
    _take_count(parser, "--text-letters", 100, "letters of each request's text")
    _take_count(parser, "--voice-frames", 215, "frames of the voice's clip (215: 10 s)")
    _take_count(parser, "--slots", 8, "slots of the engine", low=2)
    _take_counts(parser, "--busy", [0], "slots that render something else", low=0)
    _take_counts(parser, "--callers", [1], "callers at once; above 1 of a known voice, idle else")


def add_segments_arguments(parser: ArgumentParser) -> None:
    """Take the segments, the engine's slots and the codec's precision."""
    add_model_arguments(parser)
    _add_engine_arguments(parser)
    parser.add_argument("--kernels", choices=("auto", "off"), default="auto")
    _take_count(parser, "--slots", 8, "slots of the engine")
    _take_count(parser, "--segments", 32, "segments in all")
    _take_count(parser, "--frames", 200, "mean frames of a segment", low=2)
    _take_count(parser, "--text-letters", 100, "letters of each segment's text")
    _take_count(parser, "--voices", 1, "number of voices, used in turn")
    _take_count(parser, "--voice-frames", 215, "frames of a voice's clip (215: 10 s)")
    positions = "positions of a slot (default: as many as needed)"
    _take_count(parser, "--max-positions", 0, positions, low=0)


def add_agreement_arguments(parser: ArgumentParser) -> None:
    """Take the model, its number formats, and how much speech is run through."""
    shapes = ", ".join(PRESETS)
    parser.add_argument("--preset", default="mid", help=f"{shapes} (default: mid)")
    parser.add_argument("--checkpoint", type=Path, help="this checkpoint instead of a preset")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights and speech")
    formats = "number formats of a GPU, such as int8,fp8"
    default = ["bfloat16", "int8", "int8-slow", "fp8"]
    parser.add_argument("--dtype", type=names(*GPU_FORMATS), default=default, help=formats)
    streams = "streams; of more than 16 fp8 rounds inputs too"
    _take_counts(parser, "--batch", [2, 24], streams)
    _take_count(parser, "--frames", 16, "frames of each stream")


def add_joins_arguments(parser: ArgumentParser) -> None:
    """Take the checkpoint, whose clips speak, how much is rendered, and with what before it."""
    from ttsweb import settings

    parser.add_argument(
        "--checkpoint", type=Path, default=settings.CHECKPOINT, help="default: TTS_CHECKPOINT"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N (default: auto)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the draws")
    parser.add_argument("--clip", type=Path, help="a voice for a checkpoint without clips")
    # What is said in the clips of the built-in model.
    said = "The morning was bright, and the whole street smelled of bread."
    parser.add_argument("--transcript", default=said, help="what is said in the clips")
    _take_counts(parser, "--history", [0, 1, 2], "earlier segments, such as 0,1,2", low=0)
    _take_count(parser, "--chains", 16, "number of chains, of the voices in turn")
    _take_count(parser, "--length", 8, "segments of a chain", low=2)
    _take_count(parser, "--slots", 8, "slots of the engine")


def add_cold_arguments(parser: ArgumentParser) -> None:
    """Take the model, where its files are kept, and how often it is started."""
    add_model_arguments(parser)
    parser.add_argument(
        "--checkpoint", type=Path, help="start this checkpoint instead of the preset's"
    )
    _add_engine_arguments(parser)
    _take_count(parser, "--slots", 8)
    _take_count(parser, "--max-positions", 2048, "positions of a slot", low=64)
    _take_count(parser, "--frames", 21, "frames of the first audio")
    _take_count(parser, "--runs", 3, "number of starts; the median counts")
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
    posts = "with --jobs: number of further jobs, sent one by one"
    _take_count(parser, "--posts", 500, posts, low=20)
    _take_count(parser, "--chapters", 1, "number of chapters, from the first on")
    _take_count(parser, "--segments", None, "about this many segments at most")
    _take_count(parser, "--repeat", 4, "number of rounds; the median counts")
    add_service_arguments(parser)


def add_service_arguments(parser: ArgumentParser) -> None:
    """Take what a worker of a benchmark runs on."""
    _take_count(parser, "--slots", 16)
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


def add_first_byte_arguments(parser: ArgumentParser) -> None:
    """Take how often, and what the service runs on."""
    _take_count(parser, "--rounds", 3, "requests of each way; the median counts")
    add_service_arguments(parser)


def add_inline_arguments(parser: ArgumentParser) -> None:
    """Take how many requests, with clips how long, and what the service runs on."""
    _take_count(parser, "--requests", 12, "requests of each kind")
    _take_counts(parser, "--seconds", [3, 10, 30], "seconds of the clip")
    add_service_arguments(parser)
