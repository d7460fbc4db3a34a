"""`penstock mcp` as a program starts it, asked with the client of the protocol's official SDK."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from mcp import Client, StdioServerParameters

TIMEOUT = 120.0


class Asked:
    """A running server. Each answer is what the tool returned; a failure is a Refused with its words."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def tools(self) -> dict[str, bool]:
        """The names of the tools, and whether each only reads."""
        listed = (await self._client.list_tools()).tools
        return {one.name: bool(one.annotations and one.annotations.read_only_hint) for one in listed}

    async def __call__(self, tool: str, **arguments: Any) -> Any:
        answer = await self._client.call_tool(tool, arguments, read_timeout_seconds=TIMEOUT)
        text = "".join(getattr(part, "text", "") for part in answer.content)
        if answer.is_error:
            raise Refused(text)
        return json.loads(text)


class Refused(Exception):
    """The tool failed."""


def ask(work: Callable[[Asked], Awaitable[None]], *options: str) -> None:
    """Runs `work` with a server of its own."""

    async def main() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "penstock", "mcp", *options], env=dict(os.environ)
        )
        async with Client(server, read_timeout_seconds=TIMEOUT) as client:
            await work(Asked(client))

    asyncio.run(main())
