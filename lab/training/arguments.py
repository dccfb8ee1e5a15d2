"""Read what the training is asked for; without torch, so that --help answers at once."""

from __future__ import annotations

import math
from argparse import ArgumentParser
from pathlib import Path

STAGES = ("data", "quantizer", "phases", "head", "decoder", "tune", "encoder", "lm", "export")
PLAN_NAMES = ("cpu", "gpu", "toy")
DEFAULT_FOLDER = Path("data/training")


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--stage", choices=STAGES, help="run one stage only; default: all in order")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--minutes", type=float, help="minutes of training, of one stage or of all (default 160)"
    )
    parser.add_argument(
        "--sitting-minutes",
        type=float,
        default=math.inf,
        help="stop after this many minutes; a later run resumes",
    )
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="folder of the run")
    parser.add_argument(
        "--plan", choices=PLAN_NAMES, help="model size; default: cpu, or that of the folder"
    )
    parser.add_argument("--start-from", type=Path, help="checkpoint folder to continue from")
    parser.add_argument(
        "--frozen-blocks",
        type=int,
        help="number of the encoder's first blocks that are not trained",
    )
    parser.add_argument(
        "--threads", type=int, default=1, help="CPU threads; 1 is best on a shared machine"
    )
    parser.add_argument("--force", action="store_true", help="continue after a missed gate")
    parser.add_argument(
        "--check",
        action="store_true",
        help="run a small version of every stage; fails unless losses fall",
    )
