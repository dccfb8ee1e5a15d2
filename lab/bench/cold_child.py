"""Start an engine step by step and say when each step was done: run as a process of its own.

Usage: cold_child.py OPTIONS.json; one JSON object per line on standard output. Times are of the
clock that all processes share, so the parent knows how long the interpreter took to get here.
"""

from __future__ import annotations

import time

_BEGUN = time.monotonic()

import json  # noqa: E402  # the clock is read before anything else is imported
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


def main() -> None:
    """Go through a start; each line names the step that has just ended."""
    options = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    tell("interpreter", _BEGUN)
    import numpy  # noqa: F401

    tell("numpy")
    import torch

    if options["threads"]:
        torch.set_num_threads(options["threads"])
    tell("torch")
    engine = start_engine(options)
    from synth.contract import RenderSpec, Sampling

    engine.render(RenderSpec("A first sentence.", None, Sampling(max_frames=options["frames"])))
    tell("first audio", threads=torch.get_num_threads(), device=engine.device)
    engine.close()


def start_engine(options: dict[str, Any]) -> Any:
    """Return an engine that was loaded and warmed up, each step told."""
    from synth.engine import Engine, EngineConfig
    from synth.engine.loading.loaded_models import load_models

    tell("engine's modules")
    config = EngineConfig(
        checkpoint=Path(options["checkpoint"]),
        device=options["device"],
        dtype=options["dtype"],
        codec_decode_dtype=options["codec_dtype"],
        graphs=options["graphs"],
        slots=options["slots"],
        max_positions=options["max_positions"],
        cache_dir=Path(options["cache_dir"]),
    )
    models = load_models(config)
    tell("weights")
    engine = Engine(config, models)
    tell("slots and thread")
    engine.warm_up()
    tell("warm-up")
    return engine


def tell(step: str, when: float | None = None, **more: Any) -> None:
    """Print a step, the time when it ended and the most memory that was resident until then."""
    line = {"step": step, "ended": time.monotonic() if when is None else when, **more}
    line["peak_bytes"] = peak_bytes()
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def peak_bytes() -> int | None:
    """Return this process's peak of resident memory, None where the system does not tell.

    Not from getrusage: what it says goes on over an exec, so a child has its parent's peak.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return 1024 * int(found[0]) if found else None


if __name__ == "__main__":
    main()
