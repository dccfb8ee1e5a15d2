"""MCP's own client uses the tools of `./tts mcp` against a served project."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import AudioContent, CallToolResult, TextContent

from tests.workers.commands import (
    CLIP,
    MAKE_KEY,
    PATIENCE_SECONDS,
    PROJECT,
    TRANSCRIPT,
    check_is_speech,
    environment_for,
    run,
    run_python,
    serving,
)

BOOK = """# The Long Room

## One

The machine stood in the long room. I saw the pale light of the lamp.

![A lamp](lamp.png)

## Two

The sound of the wind came back[^1].

[^1]: In a note.
"""
THINGS = ("lamp", "wind", "light", "room", "sound", "house", "hill")
MANY = " ".join(f"The {one} and the {two}." for one in THINGS for two in THINGS)
Use = Callable[[Client], Awaitable[Any]]


@dataclass(frozen=True)
class Agent:
    """Starts `./tts mcp` for one agent, beside a served project."""

    environment: dict[str, str]
    folder: Path
    api: httpx.Client

    def use(self, use: Use, *arguments: str, **more: str) -> Any:
        command = [str(PROJECT / "manage.py"), "mcp", "--out", str(self.folder / "out"), *arguments]
        server = StdioServerParameters(
            command=sys.executable, args=command, env={**self.environment, **more}, cwd=self.folder
        )

        async def run() -> Any:
            async with asyncio.timeout(PATIENCE_SECONDS):
                async with Client(server) as client:
                    return await use(client)

        return asyncio.run(run())

    def call(self, tool: str, **arguments: Any) -> CallToolResult:
        [found] = self.call_each(tool, [arguments])
        return found

    def call_each(self, tool: str, each: list[dict[str, Any]]) -> list[CallToolResult]:
        """Return what one server answers to calls that follow each other."""

        async def use(client: Client) -> list[CallToolResult]:
            return [await client.call_tool(tool, arguments) for arguments in each]

        found: list[CallToolResult] = self.use(use)
        return found

    def errors(self, tool: str, rows: list[tuple[dict[str, Any], str]]) -> list[str]:
        """Return the rows, arguments and part of the error, that were answered otherwise."""
        results = self.call_each(tool, [arguments for arguments, _ in rows])
        return [
            f"{arguments}: {text_of(result)!r} is not {said!r}"
            for (arguments, said), result in zip(rows, results, strict=True)
            if not result.is_error or said not in text_of(result)
        ]


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    folder = tmp_path_factory.mktemp("agent")
    environment = environment_for(folder)
    key = run_python(environment, MAKE_KEY)
    with serving(environment) as (_, said):
        headers = {"Authorization": f"Bearer {key}"}
        with httpx.Client(base_url=f"{said['url']}/api/v1", headers=headers, timeout=60) as api:
            form = {"name": "Ada", "transcript": TRANSCRIPT, "consent_statement": "Synthetic."}
            files = {"audio": ("clip.wav", CLIP.read_bytes(), "audio/wav")}
            made = api.post("/voices", data={**form, "language": "en"}, files=files)
            place = f"/voices/{made.raise_for_status().json()['id']}"
            deadline = time.monotonic() + PATIENCE_SECONDS
            while api.get(place).json()["status"] != "ready":
                assert time.monotonic() < deadline
                time.sleep(0.2)
            port = said["url"].rpartition(":")[2].rstrip("/")
            yield Agent({**environment, "TTS_PORT": port}, folder, api)


def text_of(result: CallToolResult) -> str:
    [said] = [one for one in result.content if isinstance(one, TextContent)]
    return said.text


def spoken(result: CallToolResult) -> dict[str, Any]:
    assert not result.is_error, text_of(result)
    found: dict[str, Any] = json.loads(text_of(result))
    return found


def test_tools_are_three_and_say_what_they_take(agent: Agent) -> None:
    async def look(client: Client) -> Any:
        return await client.list_tools()

    tools = {tool.name: tool for tool in agent.use(look).tools}

    assert list(tools) == ["list_voices", "speak", "render_book_plan"]
    assert all(tool.description for tool in tools.values())
    assert tools["speak"].input_schema["required"] == ["text", "voice"]
    assert "ctx" not in tools["speak"].input_schema["properties"]
    formats = tools["speak"].input_schema["properties"]["format"]["enum"]
    assert {"mp3", "wav", "flac"} <= set(formats)
    for tool in tools.values():
        for name, said in tool.input_schema["properties"].items():
            assert said.get("description"), f"{tool.name}: {name}"


def test_voices_that_can_speak_are_listed(agent: Agent) -> None:
    result = agent.call("list_voices")
    assert result.structured_content is not None
    [voice] = result.structured_content["result"]
    assert (voice["name"], voice["language"]) == ("Ada", "en")


def test_text_becomes_a_file_that_comes_along_where_it_is_short(agent: Agent) -> None:
    asked = [("mp3", ""), ("wav", "greeting"), ("flac", "a.flac")]
    usual = {"text": "I saw the pale lamp.", "voice": "ada"}
    each = [{**usual, "format": form, "file_name": name} for form, name in asked]
    for (form, name), result in zip(asked, agent.call_each("speak", each), strict=True):
        said = spoken(result)
        path = Path(said["file"])

        assert path.parent == agent.folder / "out" and path.suffix == f".{form}"
        assert path.stem == (name.removesuffix(f".{form}") or f"speech-{said['job'][:8]}")
        check_is_speech(path, seconds=(0.5, 5))
        assert agent.api.get(said["audio_url"]).content == path.read_bytes()
        audio = [one for one in result.content if isinstance(one, AudioContent)]
        assert len(audio) == (path.stat().st_size <= 100_000), form
        for one in audio:
            assert base64.b64decode(one.data) == path.read_bytes()
            assert one.mime_type == {"mp3": "audio/mpeg"}.get(form, f"audio/{form}")


def test_what_cannot_be_spoken_is_told(agent: Agent) -> None:
    taken = agent.folder / "out" / "taken.mp3"
    taken.parent.mkdir(exist_ok=True)
    taken.write_bytes(b"mine")
    before = len(agent.api.get("/jobs").json()["results"])
    rows = [
        ({"voice": "Nobody"}, "voice_not_found: No voice is named 'Nobody'. There are: Ada."),
        ({"text": " "}, "text_empty: "),
        ({"format": "mp9"}, "format_unknown: 'mp9' is none of "),
        ({"language": "???"}, "language"),
        ({"file_name": "../escape"}, "file_name_invalid: "),
        ({"file_name": ".hidden"}, "file_name_invalid: "),
        ({"file_name": "taken"}, "file_exists: "),
    ]

    usual = {"text": "Hello.", "voice": "Ada"}
    assert agent.errors("speak", [({**usual, **given}, said) for given, said in rows]) == []
    assert taken.read_bytes() == b"mine"
    assert len(agent.api.get("/jobs").json()["results"]) == before


def test_call_that_is_given_up_has_its_job_cancelled(agent: Agent) -> None:
    async def leave(client: Client) -> None:
        asked = {"text": MANY, "voice": "Ada"}
        call = asyncio.create_task(client.call_tool("speak", asked))
        while not (await asyncio.to_thread(newest))["segments_done"]:
            await asyncio.sleep(0.1)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

    def newest() -> dict[str, Any]:
        jobs = agent.api.get("/jobs", params={"limit": 1}).json()["results"]
        return jobs[0] if jobs and jobs[0]["segments_total"] > 20 else {"segments_done": 0}

    agent.use(leave)

    assert agent.api.get(f"/jobs/{newest()['id']}?wait=20").json()["status"] == "cancelled"


def test_plan_of_a_book_is_shown_changed_and_started(agent: Agent) -> None:
    path = agent.folder / "room.md"
    path.write_text(BOOK)
    shown = agent.call("render_book_plan", file=str(path))
    assert not shown.is_error and shown.structured_content is not None
    plan = shown.structured_content

    assert (plan["title"], plan["status"], plan["job"]) == ("The Long Room", "planned", None)
    assert [chapter["title"] for chapter in plan["chapters"] if chapter["spoken"]][-2:] == [
        "One",
        "Two",
    ]
    assert plan["characters"] > 100 and plan["about_words"] == round(plan["characters"] / 6)
    assert "note" in " ".join(plan["left_out"]), plan["left_out"]
    for reason, left in plan["left_out"].items():
        assert left["characters"] >= 0 and left["why"] and left["examples"], reason

    last = len(plan["chapters"])
    fewer = agent.call("render_book_plan", book=plan["book"], exclude=[str(last)])
    assert fewer.structured_content is not None
    assert not fewer.structured_content["chapters"][-1]["spoken"]

    started = agent.call("render_book_plan", book=plan["book"], voice="Ada", start=True)
    assert not started.is_error and started.structured_content is not None
    job = started.structured_content["job"]
    done = agent.api.get(f"/jobs/{job}?wait=30").json()
    assert done["status"] in ("running", "succeeded")


def test_what_cannot_be_planned_is_told(agent: Agent) -> None:
    (agent.folder / "small.md").write_text("# A book\n\nOnly a word.\n")
    (agent.folder / "empty.epub").write_bytes(b"")
    rows: list[tuple[dict[str, Any], str]] = [
        ({}, "argument_invalid: Give `file`"),
        ({"file": "a.md", "book": "b"}, "argument_invalid: Give `file`"),
        ({"file": "not-there.epub"}, "file_error: not-there.epub: No such file"),
        ({"file": "empty.epub"}, "book_empty: "),
        ({"book": "no id"}, "book_not_found: "),
        ({"file": "small.md", "exclude": ["99"]}, "argument_invalid: '99' is not a part"),
        ({"file": "small.md", "start": True}, "voice"),
    ]
    assert agent.errors("render_book_plan", rows) == []


def test_key_of_the_settings_is_used_and_what_is_wrong_with_it_told(agent: Agent) -> None:
    async def speak(client: Client) -> str:
        result = await client.call_tool("speak", {"text": "Hello.", "voice": "Ada"})
        assert result.is_error
        return text_of(result)

    key = agent.api.headers["Authorization"].removeprefix("Bearer ")
    assert "key_invalid: " in agent.use(speak, TTS_API_KEY="tts_wrong")
    assert "server_unreachable: " in agent.use(speak, TTS_API_KEY=key, TTS_URL="http://127.0.0.1:9")


@pytest.mark.parametrize(
    ("arguments", "settings", "code", "said"),
    [
        (["--user", "nobody"], {}, 1, "user_not_found"),
        (["--user", "tester"], {"TTS_URL": "http://tts.example.org"}, 2, "--user names an account"),
        ([], {"TTS_URL": "http://tts.example.org"}, 1, "api_key_missing"),
    ],
)
def test_start_that_makes_no_sense_is_refused(
    agent: Agent, arguments: list[str], settings: dict[str, str], code: int, said: str
) -> None:
    ended = run({**agent.environment, **settings}, "mcp", *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    assert said in ended.stderr
