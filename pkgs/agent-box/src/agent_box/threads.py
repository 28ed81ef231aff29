"""Work in a thread that is waited for, whatever happens to who asked for it.

A thread cannot be cancelled. Who gives up waiting for one that writes would close the file under
it, whose number soon is that of another file, or do its work a second time beside it.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


async def to_the_end(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `work` in a thread and return its result; when cancelled, still only once it is done."""
    # A future and no task: those are cancelled one by one when a loop is about to end.
    running = asyncio.get_running_loop().run_in_executor(None, lambda: work(*args, **kwargs))
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait([running])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        running.exception()  # nobody is left to hear of it
        raise cancelled
    return running.result()
