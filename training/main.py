"""Train the demo checkpoint: `python -m training.main`, without Django.

The stages in order: data (needs espeak-ng), quantizer, encoder, codes, decoder, lm, export. Each
goes on where it was stopped, killed or not. Codes may be written before the encoder is trained:
decoder and lm can then learn beside it, and go on with the codes that it hears afterwards.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

import torch

from training.espeak import EspeakMissingError
from training.plan import PLANS, Plan, settle_plan
from training.run_folder import RunFolder, RunFolderError
from training.stages import STAGES, TRAINED, GateError, Options, check_gate, run_stage

DEFAULT_FOLDER = Path("data/training")
DEFAULT_MINUTES = 120.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("--stage", choices=STAGES, help="one stage only; default: all in order")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--minutes", type=float, help="training time: of one stage, or of all (default 120)"
    )
    parser.add_argument(
        "--sitting-minutes", type=float, default=math.inf, help="stop, to be resumed, after these"
    )
    parser.add_argument("--folder", type=Path, default=DEFAULT_FOLDER, help="where the run lives")
    parser.add_argument("--plan", choices=sorted(PLANS), help="sizes; default: cpu or the folder's")
    parser.add_argument("--start-from", type=Path, help="a checkpoint whose encoder is taken over")
    parser.add_argument(
        "--frozen-blocks", type=int, help="leave that many of the encoder's first blocks alone"
    )
    parser.add_argument("--threads", type=int, default=1, help="of the CPU; 1 is best when shared")
    parser.add_argument("--force", action="store_true", help="go on past a missed gate")
    parser.add_argument(
        "--check", action="store_true", help="a toy of every stage; fails unless losses fall"
    )


def run(options: argparse.Namespace) -> int:
    """Train as the options say; return the exit code and say on standard error what goes wrong."""
    torch.set_num_threads(options.threads)
    try:
        if options.check:
            from training.check import run_check

            return run_check(options.minutes or 3.0, show)
        folder = RunFolder(options.folder)
        plan = settle_plan(folder, options.plan, frozen_blocks=options.frozen_blocks)
        device = prepare_device(options.device)
        stages = STAGES if options.stage is None else (options.stage,)
        for stage in stages:
            chosen = Options(
                device=device,
                minutes=minutes_of(stage, plan, options.minutes, alone=len(stages) == 1),
                sitting_minutes=options.sitting_minutes,
                force=options.force,
                start_from=options.start_from,
            )
            if not run_stage(stage, folder, plan, chosen, show):
                show(f"{stage}: this sitting is over; the same command goes on")
                return 0
            check_gate(stage, folder, chosen, show)
    except (RunFolderError, GateError, EspeakMissingError) as error:
        show(f"train-demo: {error}")
        return 1
    return 0


def minutes_of(stage: str, plan: Plan, minutes: float | None, *, alone: bool) -> float:
    """Return a stage's budget: all of it when it runs alone, else its share of the whole."""
    whole = minutes or DEFAULT_MINUTES
    if stage not in TRAINED:
        return whole
    share = plan.minutes[TRAINED.index(stage)]
    return whole if alone and minutes is not None else share * whole


def prepare_device(name: str) -> torch.device:
    """Return the device; on CUDA, let float32 matrices and convolutions round to TF32.

    That is enough for the codec; the language model runs in bfloat16 there.
    """
    if name == "cuda":
        if not torch.cuda.is_available():
            raise RunFolderError("torch sees no CUDA device here: use --device cpu.")
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    return torch.device(name)


def show(line: str) -> None:
    """Write a line of progress to standard error; on a terminal, steps overwrite each other."""
    is_step = ": step " in line
    if is_step and sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{line}")
    else:
        sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main() -> int:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m training.main", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
