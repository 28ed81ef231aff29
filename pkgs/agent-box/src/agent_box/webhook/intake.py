"""Brings deliveries to the disk before they are acknowledged, many at a time when many come.

A thread of its own does the waiting for the disk. Whatever arrives meanwhile is the next batch.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from typing import TYPE_CHECKING

from agent_box.webhook.room import FullError
from agent_box.webhook.spool import Spool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agent_box.webhook.spool import Arrival

MAX_BATCH = 200


class Intake:
    """The way into the spool. `arrived` is called, in the event loop, whenever something came."""

    def __init__(self, directory: Path, arrived: Callable[[], None]) -> None:
        self._directory = directory
        self._arrived = arrived
        self._thread = concurrent.futures.ThreadPoolExecutor(1, thread_name_prefix="spool")
        self._spool: Spool | None = None
        self._waiting: list[tuple[Arrival, asyncio.Future[int | None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the spool."""
        await self._run(self._open)

    def _open(self) -> None:
        self._spool = Spool(self._directory)

    async def close(self) -> None:
        """Wait for what is on its way and close the spool."""
        if self._task is not None:
            await asyncio.wait({self._task})
        if self._spool is not None:
            await self._run(self._spool.close)
        self._thread.shutdown()

    async def store(self, arrival: Arrival) -> int | None:
        """Store a delivery durably; return its number, None when it was there already.

        FullError when there is no room for it.
        """
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, future))
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._commit())
        return await future

    async def again(self, number: int) -> int | None:
        """Store a delivery once more; return the new number, None when there is no such one."""
        assert self._spool is not None  # noqa: S101 - opened first
        spool = self._spool
        found: int | None = await asyncio.get_running_loop().run_in_executor(
            self._thread, spool.again, number
        )
        self._arrived()
        return found

    async def _commit(self) -> None:
        assert self._spool is not None  # noqa: S101 - opened first
        while self._waiting:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            spool, arrivals = self._spool, [arrival for arrival, _ in batch]
            try:
                numbers = await asyncio.get_running_loop().run_in_executor(
                    self._thread, spool.accept, arrivals
                )
            except Exception as error:  # noqa: BLE001 - each sender hears of it
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), number in zip(batch, numbers, strict=True):
                if future.done():
                    continue
                if isinstance(number, FullError):
                    future.set_exception(number)
                else:
                    future.set_result(number)
            self._arrived()

    async def _run(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, work)
