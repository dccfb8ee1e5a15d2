"""Provide `convert_codec DIR`: turn a checkpoint's codec.pth into codec.safetensors."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ttsweb.commands.base import JSON, BaseCommand, CommandError, argument
from ttsweb.private_files import users_umask


class Command(BaseCommand):
    help = (
        "Convert DIR/codec.pth to DIR/codec.safetensors, which loads faster and contains no pickle."
    )
    needs_django = False

    arguments = (argument("checkpoint_dir", type=Path, metavar="DIR"), JSON)

    def handle(self, *args: Any, **options: Any) -> None:
        """Convert and say what was written; a codec that is refused ends in exit code 1."""
        # Here and not above: listing the commands must not load torch.
        from synth.engine.codec.codec_file import convert_codec
        from synth.engine.errors import EngineError

        try:
            with users_umask():  # the folder is the user's, and other users may speak with it
                result = convert_codec(options["checkpoint_dir"])
        except EngineError as error:
            raise CommandError(str(error)) from error
        if options["json"]:
            self.stdout.write(json.dumps(asdict(result), default=str))
            return
        self.stdout.write(
            f"{result.path}: {result.num_tensors} tensors, {result.num_bytes / 1e6:.1f} MB\n"
            f"codec fingerprint {result.codec_fingerprint}"
        )
