"""Read what benchmarks have in common from the command line, and refuse what cannot be measured."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable

from synth.engine.errors import InvalidSpecError
from synth.engine.preset_shapes import PRESETS, Preset


def add_model_arguments(parser: ArgumentParser, *, preset: str = "mid") -> None:
    """Take the model's shape, the device and the seed of weights and prompts."""
    shapes = "; ".join(f"{shape.name}: {shape.summary}" for shape in PRESETS.values())
    parser.add_argument("--preset", default=preset, help=f"{shapes} (default: {preset})")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda:N (default: auto)")
    parser.add_argument("--seed", type=int, default=0, help="of weights, prompts and draws")


def numbers(*, low: int) -> Callable[[str], list[int]]:
    """Return a reader of whole numbers with commas between them, each at least `low`."""

    def read(text: str) -> list[int]:
        try:
            values = [int(part) for part in text.split(",")]
        except ValueError as error:
            raise ArgumentTypeError(
                f"{text!r}: expected whole numbers with commas between them, such as 1,8,16"
            ) from error
        wrong = [value for value in values if value < low]
        if wrong:
            raise ArgumentTypeError(f"{wrong[0]} is too small: the least is {low}")
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
                raise ArgumentTypeError(f"{value!r} is unknown: use {', '.join(known)}")
        return list(dict.fromkeys(values))

    return read


def check_context(shape: Preset, positions: int) -> None:
    """Raise InvalidSpecError when a model of this shape has fewer positions."""
    limit = shape.config.text_config.max_seq_len
    if positions > limit:
        raise InvalidSpecError(
            f"This takes {positions} positions and a model of preset {shape.name} has {limit}: "
            "ask for a shorter context or fewer frames."
        )
