"""Put the trained parts of a run together as a checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from lab.training.codec_network import build_decoder, build_encoder, codec_config
from lab.training.codes_stage import load_quantizer
from lab.training.evaluation.clean_speech import VOICES_FILE, voices_json
from lab.training.export import export_checkpoint
from lab.training.plan import Plan
from lab.training.run_folder import RunFolder


def export_run(run: RunFolder, plan: Plan, folder: Path, report: Callable[[str], None]) -> None:
    """Write the run's checkpoint into `folder`; encoder, decoder and language model must exist."""
    _, books = load_quantizer(run)
    sizes = plan.sizes
    encoder = build_encoder(
        codec_config(num_books=len(books), book_size=sizes.codes, layers=plan.encoder.layers)
    )
    decoder = build_decoder(
        codec_config(
            num_books=len(books),
            book_size=sizes.codes,
            decoder_dim=plan.decoder.decoder_dim,
            layers=plan.decoder.layers,
        )
    )
    encoder.load_state_dict(run.load("encoder-state")["network"])
    decoder.load_state_dict(run.load("decoder-state")["network"])
    export_checkpoint(folder, sizes, run.load("lm-state")["network"], encoder, decoder)
    content = json.dumps(voices_json(), indent=1)
    (folder / VOICES_FILE).write_text(content + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    report(f"export: {folder}, {size / 1e6:.1f} MB")
