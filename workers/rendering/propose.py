"""Propose what is said in a clip: decoded as any upload is, then heard by the transcriber."""

from __future__ import annotations

import logging
from functools import partial

from voices import transitions
from voices.clip_checks import MAX_TRANSCRIPT_CHARS
from voices.models import Transcript
from workers import errors
from workers.audio.clips import ClipError
from workers.errors import retry_while_away, settle_errors
from workers.process.held_claims import HeldClaim
from workers.process.worker_process import WorkerProcess
from workers.rendering.encode import decode_upload
from workers.rendering.transcriber import NotHeardError
from workers.site.clips import read_clip

logger = logging.getLogger(__name__)


def propose_transcript(process: WorkerProcess, claim: HeldClaim) -> None:
    """Hear a claimed clip and finish, fail or release its row."""
    with settle_errors(process, claim, _settle_known):
        row = Transcript.objects.get(pk=claim.pk)
        decoded = decode_upload(process, read_clip(row.original_key), row.container)
        claim.check()
        heard = process.speech.hear_clip(
            decoded.waveform, decoded.sample_rate, language=row.language
        )
        if not heard:
            raise NotHeardError("No words were heard in the clip.")
        finish = partial(transitions.finish_transcript, claim, heard[:MAX_TRANSCRIPT_CHARS])
        if retry_while_away(finish):
            logger.info("transcript proposed: characters=%d", len(heard))


def _settle_known(claim: HeldClaim, error: Exception) -> bool | None:
    if isinstance(error, ClipError):
        return errors.fail(claim, error.code, error.message)
    if isinstance(error, NotHeardError):
        return errors.fail(claim, "not_heard", f"Nothing can be proposed: {error}")
    if isinstance(error, FileNotFoundError):
        message = "The clip's file is no longer stored; send the clip again."
        return errors.fail(claim, "clip_lost", message)
    return None
