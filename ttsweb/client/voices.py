"""The voices of a server, as the client sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import cast

from ttsweb.client.errors import NotFoundError, VoiceFailedError
from ttsweb.client.resource import Resource, is_id
from ttsweb.client.types import VOICE_FINAL, Clip, Voice

NAMES_LISTED = 20


class Voices(Resource[Voice]):
    """The voices of a server; every method raises `ClientError`s."""

    kind = "voices"
    final = VOICE_FINAL

    def list(self) -> Iterator[Voice]:
        """Yield all voices, newest first."""
        return self._rows()

    def find(self, name_or_id: str) -> Voice:
        """Return a voice by its id, or by its name in whatever case, as the server takes it.

        Raises:
            NotFoundError: voice_not_found, with the names that there are.
            ConflictError: voice_ambiguous_name, others share several of this name.
        """
        if is_id(name_or_id):
            return self.get(name_or_id)
        for voice in self._http.pages("/api/v1/voices", {"means": name_or_id}):
            return cast("Voice", voice)
        names = [voice["name"] for voice in self.list()]
        raise NotFoundError(
            404, "voice_not_found", f"No voice is named {name_or_id!r}. {_listing(names)}"
        )

    def create(
        self,
        name: str,
        clips: Sequence[Clip],
        *,
        consent: str,
        description: str = "",
        language: str = "",
        shared: bool = False,
        cache_codes: bool = True,
    ) -> Voice:
        """Make a voice; it speaks once it was encoded, see `wait_ready`.

        Args:
            consent: how the speaker agreed; the server keeps it.
            shared: True lets every other user of the server speak with it.
            cache_codes: False makes workers keep nothing of this voice in memory.
        """
        files = [("audio", clip.read()) for clip in clips]
        data = {
            "name": name,
            "consent_statement": consent,
            "transcript": [clip.transcript for clip in clips],
            "description": description,
            "language": language,
            "shared": "true" if shared else "false",
            "cache_codes": "true" if cache_codes else "false",
        }
        found = self._read("POST", "/api/v1/voices", data=data, files=files, repeatable=False)
        return cast("Voice", found)

    def export(
        self,
        voice_id: str,
        target: Path,
        *,
        on_bytes: Callable[[int, int | None], None] | None = None,
    ) -> Path:
        """Write a voice as one archive, with its clips, transcripts, codes and consent.

        Args:
            on_bytes: called with the bytes that are there and those of the whole, None if unknown.

        Raises:
            DownloadError: several tries in a row brought nothing.
            OSError: the file cannot be written.
        """
        return self._download(voice_id, "/export", target, on_bytes)

    def import_(self, archive: Path, *, name: str = "", shared: bool = False) -> Voice:
        """Make a voice of an archive that `export` has written, of this server or another one.

        Args:
            name: instead of the name in the archive.

        Raises:
            OSError: the file cannot be read.
        """
        data = {"shared": "true" if shared else "false"} | ({"name": name} if name else {})
        with archive.open("rb") as file:
            found = self._read(
                "POST",
                "/api/v1/voices/import",
                data=data,
                files={"archive": (archive.name, file, "application/zip")},
                repeatable=False,
                retries=0,  # the file has been read by then
            )
        return cast("Voice", found)

    def wait_ready(
        self,
        voice_id: str,
        *,
        timeout: float | None = None,
        on_update: Callable[[Voice], None] | None = None,
    ) -> Voice:
        """Return a voice once it is encoded.

        Args:
            on_update: called with the voice about once a second.

        Raises:
            VoiceFailedError: it cannot be encoded; code and sentence say why.
            WaitTimeoutError: it was not ready after `timeout` seconds.
        """
        voice = self.wait(voice_id, timeout=timeout, on_update=on_update)
        if voice["status"] == "failed":
            raise VoiceFailedError(voice["error_code"], voice["error_message"])
        return voice


def _listing(names: Sequence[str]) -> str:
    if not names:
        return "There are no voices yet; add one with ./tts voices add."
    more = " and more" if len(names) > NAMES_LISTED else ""
    return f"There are: {', '.join(sorted(names)[:NAMES_LISTED])}{more}."
