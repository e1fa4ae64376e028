"""The tools of `koff mcp`: each is one request to the JSON API of koff monitor, shortened for an agent."""

import json
from typing import Any, Literal
from urllib.parse import urlencode

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations

from koff.cli.monitor_client import MonitorClient
from koff.errors import KoffError
from koff.version import VERSION

Json = dict[str, Any]
Verdict = Literal["ERR", "WARN", "UNKNOWN", "OK"]
_MOST_BYTES = 8 << 20
_POINTS = 20
"""So many values of the last hour are enough for an agent."""
_INSTRUCTIONS = """koff watches consumer groups of Kafka. Verdicts: OK; WARN: late; ERR: it will not recover
by itself, or records are lost; UNKNOWN: koff cannot judge it. A number that is null is not known or not
current, and `reason` or `reasons` say why: never take it for 0. `sentence` says what is wrong with a group.
Nothing can be changed here: commands are for a person to run, and those that reset offsets are dry runs."""


class Monitor:
    """The JSON API of koff monitor. `authorization` is the header for all requests of this process."""

    def __init__(self, client: MonitorClient, authorization: str | None = None) -> None:
        self._client, self._authorization = client, authorization

    def get(self, path: str, ctx: Context, **parameters: Any) -> Json:
        """The response to GET `path`. Raises `ToolError` with what koff monitor says.

        An agent that came by HTTP is known by its own header, never by the token of this process.
        """
        query = urlencode({k: v for k, v in parameters.items() if v not in (None, [])}, doseq=True)
        given = self._authorization if ctx.headers is None else ctx.headers.get("authorization")
        try:
            found: Json = json.loads(
                self._client.get(
                    f"/api/v1/{path}?{query}",
                    accept="application/json",
                    authorization=given,
                    most_bytes=_MOST_BYTES,
                )
            )
        except KoffError as error:
            raise ToolError(str(error)) from error
        return found


def build_server(monitor: Monitor) -> MCPServer[Any]:
    """The server with all tools."""
    server: MCPServer[Any] = MCPServer(
        "koff", instructions=_INSTRUCTIONS, version=VERSION, log_level="WARNING"
    )
    read_only = ToolAnnotations(read_only_hint=True, open_world_hint=False)

    def list_clusters(ctx: Context) -> Json:
        """The clusters that koff watches: whether koff knows them now, and if not, since when and why."""
        return monitor.get("clusters", ctx)

    def list_groups(
        ctx: Context,
        cluster: str | None = None,
        status: list[Verdict] | None = None,
        name: str | None = None,
        limit: int = 20,
    ) -> Json:
        """Consumer groups, the worst first, with a sentence each, and `counts` of all by verdict.

        `status` chooses verdicts, `name` a part of the name. `withheld` counts groups whose lag is not known
        now.
        """
        given = {"cluster": cluster, "status": status, "name": name, "limit": limit}
        found = monitor.get("groups", ctx, **given)
        for group in found["groups"]:
            del group["trend"]
        return found

    def describe_group(ctx: Context, cluster: str, group: str) -> Json:
        """One group: why it is late with evidence and advice, its members, its partitions, its last hour, and
        commands for a person to run.
        """
        found = monitor.get("group", ctx, cluster=cluster, group=group)
        return {**found, "last_hour": _shorten_course(found["last_hour"])}

    def list_incidents(
        ctx: Context,
        cluster: str | None = None,
        group: str | None = None,
        is_open: bool | None = None,
        limit: int = 20,
    ) -> Json:
        """Incidents: those that last, then the newest, with how each began, changed and ended."""
        is_open_text = None if is_open is None else str(is_open).lower()
        return monitor.get("incidents", ctx, cluster=cluster, group=group, open=is_open_text, limit=limit)

    def list_events(ctx: Context, group: str | None = None, limit: int = 50) -> Json:
        """What happened lately, the newest last: rebalances, resets, lost records, deleted groups."""
        return monitor.get("events", ctx, group=group, limit=limit)

    def plan_reset(ctx: Context, cluster: str, group: str, to: Literal["earliest", "latest"]) -> Json:
        """What a reset of a group's offsets would do, by partition. Nothing is reset.

        `skipped` records would never be read, `read_again` a second time. Null: not known now.
        """
        found = monitor.get("group", ctx, cluster=cluster, group=group)
        edge = "start" if to == "earliest" else "end"
        rows = [_plan_row(row, row[edge]) for row in found["partitions"]]
        command = f"koff offsets plan {group!r} --to {to}"
        return {"members": found["group"]["members"], "partitions": rows, "command": command}

    for tool in (list_clusters, list_groups, describe_group, list_incidents, list_events, plan_reset):
        server.add_tool(tool, annotations=read_only)
    return server


def _shorten_course(course: Json | None) -> Json | None:
    if course is None:
        return None
    count = len(course["lag"])
    step = max(1, count // _POINTS)
    short = {name: value[step - 1 :: step] for name, value in course.items() if isinstance(value, list)}
    return {**course, **short, "step_s": course["step_s"] * step}


def _plan_row(row: Json, target: int | None) -> Json:
    place = {name: row[name] for name in ("topic", "partition", "committed")}
    if target is None or row["committed"] is None:
        return {**place, "target": target, "skipped": None, "read_again": None}
    moved = target - row["committed"]
    return {**place, "target": target, "skipped": max(moved, 0), "read_again": max(-moved, 0)}
