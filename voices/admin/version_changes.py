"""Say in words what changed from one version of a voice to the next."""

from __future__ import annotations

from voices.models import ReferenceClip, VoiceVersion


def changes_of(version: VoiceVersion) -> str:
    """Return how a version differs from the one before it, such as "clip 1 replaced".

    Clips are told apart by their bytes, and counted from 1. The queries are two at most, none
    where the voice's versions and their clips are fetched already.
    """
    voice = version.voice
    if voice is None:
        return "came with a job"
    older = [one for one in voice.versions.all() if one.number < version.number]
    if not older:
        return "first version"
    before = max(older, key=lambda one: one.number)
    return "; ".join(_changes(list(before.clips.all()), list(version.clips.all()))) or "nothing"


def _changes(before: list[ReferenceClip], after: list[ReferenceClip]) -> list[str]:
    if not before:  # the clips of a version go with its voice
        return ["clips of the previous version are no longer stored"]
    found = []
    for number, (old, new) in enumerate(zip(before, after, strict=False), start=1):
        if old.stored_id != new.stored_id:
            found.append(f"clip {number} replaced")
        if old.transcript != new.transcript:
            found.append(f"transcript {number} changed")
    added, removed = len(after) - len(before), len(before) - len(after)
    if added > 0:
        found.append(f"{added} clip{'s' if added > 1 else ''} added")
    if removed > 0:
        found.append(f"{removed} clip{'s' if removed > 1 else ''} removed")
    return found
