"""Readers of a server's events, all in this process: `python -m ... URL NAME...`.

Each reads the events of one name; an empty name is everything. It prints a line when all of them
read, and for each line that is sent to it how many events each has got.
"""

from __future__ import annotations

import asyncio
import json
import sys

import forebay


async def read(client: forebay.AsyncClient, names: str | None, counts: list[int]) -> None:
    """Count events until cancelled."""
    index = len(counts)
    counts.append(0)
    async for _ in client.follow(names=names, cursor=0):
        counts[index] += 1


async def main(url: str, names: list[str]) -> None:
    """Read until the parent asks for no more counts."""
    loop = asyncio.get_running_loop()
    counts: list[int] = []
    async with forebay.AsyncClient(url, start=False) as client:
        await client.info()
        tasks = [loop.create_task(read(client, name or None, counts)) for name in names]
        await asyncio.sleep(0)
        await client.info()  # behind the beginnings of all streams
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(counts), flush=True)
        for task in tasks:
            task.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2:]))
