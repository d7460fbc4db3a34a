"""Bodies that are too large are rejected, however they come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI, Request

from penstock.console.uploads import LimitedBodies


@pytest.mark.promise(
    "console", "A file that is too large to import is rejected, also without a declared size"
)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_rejected(chunked: bool) -> None:
    app = FastAPI()
    app.add_middleware(LimitedBodies, most=1000)
    seen: list[int] = []

    @app.post("/upload")
    async def upload(request: Request) -> dict[str, int]:
        size = len(await request.body())
        seen.append(size)
        return {"size": size}

    async def pieces(size: int) -> AsyncIterator[bytes]:
        for _ in range(size // 100):
            yield b"x" * 100

    async def send() -> list[int]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
            answers = [
                await client.post("/upload", content=pieces(size) if chunked else b"x" * size)
                for size in (1000, 1100)
            ]
        return [answer.status_code for answer in answers]

    assert asyncio.run(send()) == [200, 413]
    assert seen == [1000]
