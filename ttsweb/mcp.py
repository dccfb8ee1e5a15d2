"""Offer the service to AI agents as tools of the Model Context Protocol, over stdin and stdout.

The tools do over the REST API what an agent asks for: voices, a spoken text, a book's plan.
"""

from __future__ import annotations

import json
from argparse import Namespace
from base64 import b64encode
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
from anyio.to_thread import run_sync
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import AudioContent, TextContent, ToolAnnotations
from pydantic import Field

from synth.formats import FORMATS
from ttsweb.client import JOB_FINAL, JOB_WITH_AUDIO, Client, ClientError, Job, NotFoundError
from ttsweb.client.book_types import Book, Plan
from ttsweb.commands.base import BaseCommand, UsageError, signals_interrupt
from ttsweb.commands.job_arguments import edits_of
from ttsweb.commands.remote_command import (
    RETRIES,
    job_error,
    open_client,
    reporting_remote_errors,
    sentence_of,
    server_url,
)
from ttsweb.private_files import users_umask

POLL_SECONDS = 1.0
CANCEL_SECONDS = 5.0
MOST_INLINE_BYTES = 100_000  # of audio that comes with the answer: about ten seconds of MP3
MOST_EXAMPLES = 5  # of what a plan leaves out for one reason
CHARS_PER_WORD = 6.0  # of English, with its blank

# Takes what is done, of how much.
Tell = Callable[[float, float], Awaitable[None]]


@dataclass(frozen=True)
class ShownVoice:
    """A voice as an agent sees it."""

    name: str
    id: str
    language: str
    description: str


@contextmanager
def telling_errors() -> Iterator[None]:
    """Turn what can go wrong into what the agent is told: a code and a sentence.

    Raises:
        ToolError: in place of an error of the client, of a file, or of an argument.
    """
    try:
        yield
    except ClientError as error:
        raise ToolError(f"{error.code}: {sentence_of(error)}") from error
    except UsageError as error:
        raise ToolError(f"argument_invalid: {error}") from error
    except OSError as error:
        reason = error.strerror or str(error)
        where = f"{error.filename}: " if error.filename else ""
        raise ToolError(f"file_error: {where}{reason}.") from error


@dataclass(frozen=True)
class Tools:
    """What the tools need: the server, and the folder into which speech is written."""

    client: Client
    folder: Path

    def list_voices(self) -> list[ShownVoice]:
        with telling_errors():
            return [
                ShownVoice(
                    name=voice["name"],
                    id=voice["id"],
                    language=voice["language"],
                    description=voice["description"],
                )
                for voice in self.client.voices.list()
                if voice["status"] == "ready"
                and not voice["archived"]
                and voice["consent_withdrawn_at"] is None
            ]

    async def speak(
        self, text: str, voice: str, form: str, language: str, file_name: str, tell: Tell
    ) -> list[TextContent | AudioContent]:
        """Have a text spoken into a file; whoever calls this off has its job cancelled."""
        if form not in FORMATS:
            raise ToolError(f"format_unknown: {form!r} is none of {', '.join(FORMATS)}.")
        given = self._target(file_name, form) if file_name else None
        with telling_errors():
            options: dict[str, Any] = {"format": form, "priority": "interactive"}
            if language:
                options["language"] = language
            job = await run_sync(lambda: self._create(text, voice, options))
            job = await self._wait(job, tell)
            target = given or self._target(f"speech-{job['id'][:8]}", form)
            error = await run_sync(job_error, self.client, job)
            if job["status"] not in JOB_WITH_AUDIO:
                code, sentence = error or (f"job_{job['status']}", "There is no audio.")
                raise ToolError(f"{code}: {sentence}")
            await run_sync(self._download, job["id"], target)
            return await run_sync(self._spoken, job, target, form, error)

    def _create(self, text: str, voice: str, options: dict[str, Any]) -> Job:
        try:
            return self.client.jobs.create(text, voice=voice, **options)
        except NotFoundError as error:
            if error.code == "voice_not_found":
                self.client.voices.find(voice)  # its error names the voices that there are
            raise

    async def _wait(self, job: Job, tell: Tell) -> Job:
        try:
            while job["status"] not in JOB_FINAL:
                job = await run_sync(self.client.jobs.poll, job["id"], POLL_SECONDS)
                await tell(job["segments_done"], job["segments_total"])
        except anyio.get_cancelled_exc_class():
            with anyio.move_on_after(CANCEL_SECONDS, shield=True), telling_errors():
                await run_sync(self.client.jobs.cancel, job["id"])
            raise
        return job

    def _target(self, name: str, form: str) -> Path:
        """Return where a file goes, which is not there yet and lies in the folder itself.

        Raises:
            ToolError: file_name_invalid, file_exists.
        """
        suffix = f".{form}"
        if Path(name).name != name or name.startswith(".") or not name.isprintable():
            raise ToolError(f"file_name_invalid: {name!r} is not the plain name of a file.")
        path = self.folder / (name if name.endswith(suffix) else f"{name}{suffix}")
        if path.exists():
            raise ToolError(
                f"file_exists: {path} exists and is not overwritten; give another name."
            )
        return path

    def _download(self, job_id: str, target: Path) -> None:
        with users_umask():
            target.parent.mkdir(parents=True, exist_ok=True)
            self.client.jobs.download(job_id, target)

    def _spoken(
        self, job: Job, target: Path, form: str, error: tuple[str, str] | None
    ) -> list[TextContent | AudioContent]:
        said = {
            "file": str(target.resolve()),
            "audio_seconds": round(job["audio_seconds"], 3),
            "job": job["id"],
            "audio_url": f"{self.client.url}/api/v1/jobs/{job['id']}/audio",
        }
        if error is not None:
            said["missing"] = f"{error[0]}: {error[1]}"
        found: list[TextContent | AudioContent] = [
            TextContent(type="text", text=json.dumps(said, ensure_ascii=False))
        ]
        if target.stat().st_size <= MOST_INLINE_BYTES:
            audio = b64encode(target.read_bytes()).decode()
            kind = FORMATS[form].content_type
            found.append(AudioContent(type="audio", data=audio, mime_type=kind))
        return found

    async def plan_book(
        self,
        file: str,
        book_id: str,
        voice: str,
        start: bool,
        include: Sequence[str],
        exclude: Sequence[str],
        tell: Tell,
    ) -> dict[str, Any]:
        """Return the plan of a book that is uploaded now or was before; start it if wanted."""
        if bool(file) == bool(book_id):
            raise ToolError("argument_invalid: Give `file`, or the `book` of an earlier answer.")
        who = voice or None
        with telling_errors():
            if file:
                path = Path(file).expanduser()
                book = await run_sync(lambda: self.client.books.upload(path, voice=who))
            else:
                book = await run_sync(self.client.books.get, book_id)
            number = 0
            while book["status"] == "importing":
                await anyio.sleep(POLL_SECONDS)
                book = await run_sync(self.client.books.get, book["id"])
                await tell(number := number + 1, number + 1)
            if book["status"] == "failed" and book["job"] is None:
                raise ToolError(f"{book['error_code']}: {book['error_message']}")
            plan = await run_sync(self.client.books.plan, book["id"])
            chosen = Namespace(include=include, exclude=exclude)
            edits = edits_of(chosen, [chapter["id"] for chapter in plan["chapters"]])
            if edits:
                plan = await run_sync(
                    lambda: self.client.books.edit(
                        book["id"], edits, plan_number=plan["plan_number"]
                    )
                )
            if start:
                book = await run_sync(lambda: self.client.books.start(book["id"], voice=who))
        return shown_plan(book, plan)


def shown_plan(book: Book, plan: Plan) -> dict[str, Any]:
    """Return of a plan what an agent has to know before the book is rendered."""
    totals = plan["totals"]
    return {
        "book": book["id"],
        "status": book["status"],
        "job": book["job"],
        "title": plan["title"],
        "authors": plan["authors"],
        "language": plan["language"],
        "characters": totals["characters"],
        "about_words": round(totals["characters"] / CHARS_PER_WORD),
        "hours_of_audio": totals["hours"],
        "chapters": [
            {
                "number": chapter["index"] + 1,
                "title": chapter["title"] or chapter["beginning"],
                "spoken": chapter["included"],
                "characters": chapter["characters"],
                "minutes": round(chapter["seconds"] / 60, 1),
            }
            for chapter in plan["chapters"]
        ],
        "left_out": _left_out(plan),
        "could_not_be_read": [
            f"{loss['path']}: {loss['why']}" for loss in plan["completeness"]["missing"]
        ],
        "warnings": plan["warnings"],
    }


def _left_out(plan: Plan) -> dict[str, dict[str, Any]]:
    """Return by reason what is not spoken: how much, why, and how some of it begins."""
    examples: dict[str, list[str]] = defaultdict(list)
    numbers = {chapter["id"]: chapter["index"] + 1 for chapter in plan["chapters"]}
    for chapter in plan["chapters"]:
        if not chapter["included"]:
            where = f"{numbers[chapter['id']]}: {chapter['beginning'] or chapter['title']}"
            examples[chapter["reason"] or "excluded"].append(where)
    for row in plan["skipped"]:
        if not row["included"]:
            where = f"{numbers[row['chapter']]}:{row['block']}: {row['text'] or row['kind']}"
            examples[row["reason"]].append(where)
    return {
        reason: {
            "characters": count,
            "why": plan["reasons"].get(reason, ""),
            "examples": examples[reason][:MOST_EXAMPLES],
        }
        for reason, count in plan["completeness"]["skipped"].items()
    }


INSTRUCTIONS = (
    "Speech with cloned voices. list_voices names the voices; speak writes an audio file of a "
    "text; render_book_plan shows of a book what would be spoken and what left out, and starts "
    "its rendering when asked to."
)
_Text = Annotated[str, Field(description="What is spoken.")]
_Voice = Annotated[str, Field(description="Name or id of a voice, as list_voices gives it.")]
_Format = Annotated[
    str, Field(description="Format of the file.", json_schema_extra={"enum": [*FORMATS]})
]
_Language = Annotated[str, Field(description="Tag of the text's language; empty: the voice's.")]
_Name = Annotated[
    str, Field(description="Name of the file, without a folder; empty: one is chosen.")
]
_Parts = Annotated[
    Sequence[str],
    Field(
        description="Parts of the book by reason (a key of left_out), by the number of a chapter, "
        "or by CHAPTER:BLOCK as in the examples of left_out."
    ),
]


def make_server(client: Client, folder: Path) -> MCPServer:
    """Return the server of one agent; `folder` takes the audio files."""
    tools = Tools(client, folder)
    server: MCPServer = MCPServer("ttsweb", instructions=INSTRUCTIONS, log_level="WARNING")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def list_voices() -> list[ShownVoice]:
        """List the voices that can speak now."""
        return tools.list_voices()

    @server.tool(structured_output=False)
    async def speak(
        ctx: Context,
        text: _Text,
        voice: _Voice,
        format: _Format = "mp3",
        language: _Language = "",
        file_name: _Name = "",
    ) -> list[TextContent | AudioContent]:
        """Speak a text with a voice, into an audio file.

        Returns the path of the file, its seconds, the job, and the address of the audio, which
        needs an API key. Short audio comes along.
        """
        return await tools.speak(text, voice, format, language, file_name, ctx.report_progress)

    @server.tool()
    async def render_book_plan(
        ctx: Context,
        file: Annotated[
            str, Field(description="Path of an EPUB, DOCX, HTML, Markdown, PDF or text file.")
        ] = "",
        book: Annotated[
            str, Field(description="Id of a book of an earlier answer, instead of a file.")
        ] = "",
        voice: Annotated[str, Field(description="Who speaks; needed for the start.")] = "",
        start: Annotated[
            bool, Field(description="Render the book now. Takes hours; ask first.")
        ] = False,
        include: _Parts = (),
        exclude: _Parts = (),
    ) -> dict[str, Any]:
        """Show what of a book would be spoken and what left out, and why; start it if wanted.

        Upload it with `file`, look at the plan, change it with `include` and `exclude`, and start
        it with `book`, `voice` and `start`.
        """
        return await tools.plan_book(
            file, book, voice, start, include, exclude, ctx.report_progress
        )

    return server


def run(command: BaseCommand, options: dict[str, Any]) -> None:
    """Return when the agent has gone, or a signal ended it.

    Args:
        options: `out`, and `api_key` of this machine's server in place of that of the settings.
    """
    api_key: str = options.get("api_key", "")
    with reporting_remote_errors(command.stdout, as_json=False), suppress(KeyboardInterrupt):
        client = Client(server_url(), api_key, retries=RETRIES) if api_key else open_client()
        with client, signals_interrupt():
            make_server(client, options["out"]).run()
