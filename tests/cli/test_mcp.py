"""``floodmark mcp`` over stdin and stdout, asked by the protocol's own client: what it answers, that it refuses, and that it changes nothing."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client.session import ClientSession
from mcp.client.stdio import stdio_client
from recipes import variables

from .conftest import Verb

Questions = Callable[[ClientSession], Awaitable[Any]]


def asked(folder: Path, questions: Questions) -> Any:
    """What is answered by ``floodmark mcp`` in a folder."""
    environment = variables(folder)
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "floodmark.cli.main", "mcp"], cwd=str(folder), env=environment
    )

    async def conversation() -> Any:
        async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            return await questions(session)

    return asyncio.run(asyncio.wait_for(conversation(), 300))


def text(result: Any) -> Any:
    """The document of an answer."""
    return json.loads(result.content[0].text)


def test_an_agent_asks_what_a_change_means_and_changes_nothing(verb: Verb, shop: Path) -> None:
    assert verb("land", "orders").exit_code == 0
    assert verb("run", "hourly_sales", "--unbounded", "--until-caught-up", "--engine", "embedded").exit_code == 0
    code = shop / "operators" / "orders.py"
    before = {path: path.read_bytes() for path in (shop / "lake").rglob("*") if path.is_file()}

    async def questions(session: ClientSession) -> dict[str, Any]:
        tools = (await session.list_tools()).tools
        answers: dict[str, Any] = {"tools": {tool.name: tool.annotations.read_only_hint for tool in tools}}
        answers["status"] = text(await session.call_tool("status", {}))
        answers["explain"] = text(await session.call_tool("explain", {"operator": "hourly_sales"}))
        answers["same"] = text(await session.call_tool("plan", {"operators": ["hourly_sales"]}))
        code.write_text(
            code.read_text().replace('sum("cents")', 'max("cents")').replace("operator, sum", "max, operator")
        )
        answers["changed"] = text(await session.call_tool("plan", {}))
        answers["quarantine"] = text(await session.call_tool("quarantine", {"name": "orders"}))
        answers["diff"] = text(await session.call_tool("diff", {"table": "hourly_sales@0", "other": "hourly_sales"}))
        return answers

    answers = asked(shop, questions)
    assert answers["tools"] == dict.fromkeys(("status", "explain", "plan", "diff", "quarantine"), True)
    assert answers["status"]["tables"][0]["rows"] == 19
    assert answers["explain"]["inputs"][0][:2] == ["orders", "orders"]
    assert [plan["verdict"] for plan in answers["same"]["plans"]] == ["no-op"]
    assert {plan["operator"]: plan["verdict"] for plan in answers["changed"]["plans"]}["hourly_sales"] == "rebuild"
    assert answers["quarantine"]["by_reason"] == [["items: expected greater than 0", 1]]
    assert answers["diff"]["counts"]["only_right"] > 0
    assert {path: path.read_bytes() for path in (shop / "lake").rglob("*") if path.is_file()} == before


def test_an_error_has_its_code_and_a_name_is_never_an_option(shop: Path) -> None:
    async def questions(session: ClientSession) -> list[Any]:
        names = ("hourly", "--lake=/tmp/elsewhere")
        return [await session.call_tool("explain", {"operator": name}) for name in names]

    unknown, option = asked(shop, questions)
    assert unknown.is_error
    assert option.is_error
    assert "hourly_sales" in unknown.content[0].text
    assert "--lake=/tmp/elsewhere" in option.content[0].text


def test_without_the_extra_it_is_named(verb: Verb, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    result = verb("mcp")
    assert result.exit_code == 1
    assert "SETUP-148 floodmark mcp" in result.output
    assert "pip install 'floodmark[mcp]'" in result.output
