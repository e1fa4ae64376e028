"""`koff mcp`, asked by the client of the official SDK."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from koff.cli.mcp_tools import Monitor, build_server
from koff.cli.monitor_client import MonitorClient
from koff.kafkatest import reap, spawn, wait_until
from koff.kafkatest.ports import free_ports, is_listening
from tests.koff_process import KOFF, run_koff
from tests.unit.serve.page.moving import build_view, serving
from tests.unit.serve.views import Source

pytestmark = pytest.mark.timeout(300)
Found = dict[str, Any]
TOKEN = "s" * 24
TOKENS = f"agent {TOKEN}\n"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    late = {"keeps-up": 0, "is-late": 900}
    with serving(Source(build_view(late, "prod"), build_view({"other": 0}, "test"))) as served:
        yield served


def serve(url: str) -> Any:
    return build_server(Monitor(MonitorClient(url)))


async def call_tool(server: Any, tool: str, arguments: Found) -> Found:
    async with Client(server) as client:
        result = await client.call_tool(tool, arguments)
        found: Any = result.structured_content
        if result.is_error:
            found = {"error": result.content[0].text}
        return dict(found)


def ask(server: Any, tool: str, **arguments: Any) -> Found:
    """What the tool returns. An error has its text in `error`."""
    return asyncio.run(call_tool(server, tool, arguments))


def test_every_tool_reads_only_and_explains_itself(url: str):
    async def list_tools() -> list[Any]:
        async with Client(serve(url)) as client:
            return list((await client.list_tools()).tools)

    tools = asyncio.run(list_tools())
    assert {tool.name for tool in tools} == {
        *("list_clusters", "list_groups", "describe_group", "list_incidents", "list_events", "plan_reset")
    }
    assert all(tool.annotations.read_only_hint and len(tool.description) > 50 for tool in tools)


def test_groups_come_worst_first_with_a_sentence(url: str):
    server = serve(url)
    found = ask(server, "list_groups", cluster="prod")
    assert [group["group"] for group in found["groups"]] == ["is-late", "keeps-up"]
    assert "records wait" in found["groups"][0]["sentence"]
    assert "trend" not in found["groups"][0]
    assert found["counts"]
    assert [each["cluster"] for each in ask(server, "list_clusters")["clusters"]] == ["prod", "test"]
    assert ask(server, "list_groups", status=["OK"], cluster="prod")["groups"][0]["group"] == "keeps-up"


def test_one_group_has_its_partitions_and_commands(url: str):
    found = ask(serve(url), "describe_group", cluster="prod", group="is-late")
    assert found["partitions"][0]["lag"] == 900
    assert found["commands"]


def test_a_reset_is_planned_and_never_done(url: str):
    server = serve(url)
    latest = ask(server, "plan_reset", cluster="prod", group="is-late", to="latest")
    assert latest["partitions"] == [
        {
            "topic": "is-late",
            "partition": 0,
            "committed": 300,
            "target": 1200,
            "skipped": 900,
            "read_again": 0,
        }
    ]
    earliest = ask(server, "plan_reset", cluster="prod", group="is-late", to="earliest")
    assert earliest["partitions"][0]["read_again"] is None  # nobody has asked for the start of the log


def test_incidents_and_events_are_listed(url: str):
    server = serve(url)
    assert ask(server, "list_incidents", is_open=True, cluster="prod")["incidents"] == []
    assert ask(server, "list_events", limit=5)["events"] == []


def test_errors_name_the_cause(url: str):
    server = serve(url)
    absent = ask(server, "describe_group", cluster="prod", group="absent")["error"]
    assert "koff monitor says 404: there is no group named 'absent'" in absent
    assert "does not respond" in ask(serve("http://127.0.0.1:9"), "list_clusters")["error"]


def test_an_agent_may_start_koff_mcp_and_talk_by_standard_input_and_output(url: str):
    command, *args = [*KOFF, "mcp", "--url", url]
    found = ask(StdioServerParameters(command=command, args=args), "list_groups", cluster="test")
    assert [group["group"] for group in found["groups"]] == ["other"]


def test_agents_that_come_by_http_are_known_by_their_own_token(tmp_path: Path):
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    (port,) = free_ports(1)
    with serving(Source(build_view({"late": 0}, "prod")), tokens_file=tokens) as url:
        process = spawn([*KOFF, "mcp", "--url", url, "--listen", f"127.0.0.1:{port}"])
        try:
            wait_until(lambda: is_listening(port), timeout_s=60, what="koff mcp")
            address = f"http://127.0.0.1:{port}/mcp"
            with_token = {"Authorization": f"Bearer {TOKEN}"}
            assert ask_by_http(address, with_token)["groups"][0]["group"] == "late"
            assert "koff monitor says 401" in ask_by_http(address, {})["error"]
        finally:
            reap(process)


def ask_by_http(address: str, headers: dict[str, str]) -> Found:
    async def call() -> Found:
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            return await call_tool(streamable_http_client(address, http_client=http), "list_groups", {})

    return asyncio.run(call())


def test_what_cannot_be_is_refused(tmp_path: Path):
    token = tmp_path / "token"
    token.write_text("x" * 16)
    both = run_koff("mcp", "--listen", "127.0.0.1:0", "--token-file", str(token))
    assert (both.returncode, "each agent sends its own token" in both.stderr) == (2, True)
    wrong = run_koff("mcp", "--url", "ftp://koff")
    assert (wrong.returncode, "must begin with http" in wrong.stderr) == (2, True)
