"""Mutual exclusion for changes of existing log data: truncation, moves and deletion, and the
cleaner, which is cancelled for any of them.

Appends and reads are not affected.

Source: kafka.log.LogCleanerManager.{abortAndPauseCleaning, resumeCleaning, doneCleaning}.
"""

import asyncio
from types import TracebackType


class LogGate:
    """`async with gate` waits until the cleaner has released the log, and excludes it meanwhile.
    Without a running cleaner it does not wait.
    """

    __slots__ = ("_claims", "_is_cleaned", "_released")

    def __init__(self) -> None:
        self._claims = 0
        self._is_cleaned = False
        self._released: asyncio.Future[None] | None = None

    @property
    def is_free(self) -> bool:
        """Whether the log is neither claimed nor being cleaned."""
        return not self._claims and not self._is_cleaned

    @property
    def is_wanted(self) -> bool:
        """Whether the cleaner must release the log as soon as possible."""
        return self._claims > 0

    def begin_cleaning(self) -> None:
        """The cleaner acquires the log."""
        assert self.is_free, "one at a time"
        self._is_cleaned = True

    def end_cleaning(self) -> None:
        """The cleaner releases the log."""
        self._is_cleaned = False
        released, self._released = self._released, None
        if released is not None and not released.done():
            released.set_result(None)

    async def __aenter__(self) -> None:
        await self.claim()

    async def claim(self) -> None:
        """Wait until the cleaner has released the log, and exclude it from now on."""
        self._claims += 1
        try:
            while self._is_cleaned:
                if self._released is None:
                    self._released = asyncio.get_running_loop().create_future()
                await asyncio.shield(self._released)
        except BaseException:
            self._claims -= 1
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._claims -= 1
