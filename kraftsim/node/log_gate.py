"""Lets one at a time change what stands in a log already: whoever cuts, moves or deletes it, or the cleaner, which is called off for any of them.

Appending and reading go on whatever happens here.

Source: kafka.log.LogCleanerManager.{abortAndPauseCleaning, resumeCleaning, doneCleaning}.
"""

import asyncio
from types import TracebackType


class LogGate:
    """`async with gate` waits until the cleaner has let go of the log, and keeps it away meanwhile. A log that nobody cleans is not waited for."""

    __slots__ = ("_claims", "_is_cleaned", "_released")

    def __init__(self) -> None:
        self._claims = 0
        self._is_cleaned = False
        self._released: asyncio.Future[None] | None = None

    @property
    def is_free(self) -> bool:
        """Whether nobody has the log for himself."""
        return not self._claims and not self._is_cleaned

    @property
    def is_wanted(self) -> bool:
        """Whether the cleaner is to let go of the log as soon as it can."""
        return self._claims > 0

    def begin_cleaning(self) -> None:
        """The cleaner takes the log."""
        assert self.is_free, "one at a time"
        self._is_cleaned = True

    def end_cleaning(self) -> None:
        """The cleaner lets go of it."""
        self._is_cleaned = False
        released, self._released = self._released, None
        if released is not None and not released.done():
            released.set_result(None)

    async def __aenter__(self) -> None:
        await self.claim()

    async def claim(self) -> None:
        """Wait until the cleaner has let go, and keep it away from now on."""
        self._claims += 1
        try:
            while self._is_cleaned:
                if self._released is None:
                    self._released = asyncio.get_running_loop().create_future()
                await asyncio.shield(self._released)
        except BaseException:
            self._claims -= 1
            raise

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        self._claims -= 1
