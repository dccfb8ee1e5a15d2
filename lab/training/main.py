"""Train the demo checkpoint: `python -m lab.training.main`, without Django.

The stages in order: data (needs espeak-ng), quantizer, encoder, codes, decoder, lm, export. Each
goes on where it was stopped, killed or not. Codes may be written before the encoder is trained:
decoder and lm can then learn beside it, and go on with the codes that it hears afterwards.
"""

from __future__ import annotations

import argparse
import sys

import torch

from lab.training.arguments import STAGES, add_arguments
from lab.training.espeak import EspeakMissingError
from lab.training.plan import Plan, settle_plan
from lab.training.run_folder import RunFolder, RunFolderError
from lab.training.stages import TRAINED, GateError, Options, check_gate, run_stage

DEFAULT_MINUTES = 120.0


def run(options: argparse.Namespace) -> int:
    """Train as the options say; return the exit code and say on standard error what goes wrong."""
    torch.set_num_threads(options.threads)
    try:
        if options.check:
            from lab.training.check import run_check

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
                show(f"{stage}: the time given is over; the same command continues")
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
    parser = argparse.ArgumentParser(prog="python -m lab.training.main", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args())


if __name__ == "__main__":
    raise SystemExit(main())
