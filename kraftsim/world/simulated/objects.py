"""An object store in virtual time: one for all nodes of a simulation, with the latency of a service
in another building.

Faults are set from outside: slow or failing calls, stale listings, lost or changed objects.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from kraftsim.world.interface import Chunk, FileSlice, bytes_of

SHORTEST_SECONDS, LONGEST_SECONDS = 0.005, 0.05
BYTES_PER_SECOND = 200_000_000


class StoreFault:
    """A temporary fault of a store. `record_effect` is called when it changed an outcome.

    `delay_seconds` are added to every call; of a thousand calls `failing_permille` fail, half of
    them after they took effect; writes of objects whose keys end with `fails_at` fail; listings are
    those from before the fault.
    """

    def __init__(
        self,
        *,
        record_effect: Callable[[], None],
        delay_seconds: float = 0.0,
        failing_permille: int = 0,
        fails_at: str | None = None,
        stale_keys: Sequence[str] | None = None,
    ) -> None:
        self.record_effect = record_effect
        self.delay_seconds = delay_seconds
        self.failing_permille = failing_permille
        self.fails_at = fails_at
        self.stale_keys = stale_keys


class SharedObjects:
    """The content of a store, and its faults."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.ailments: list[StoreFault] = []
        self.put_count = 0
        self.got_bytes = 0

    def impair(self, ailment: StoreFault) -> Callable[[], None]:
        """Add a fault until the returned function is called."""
        self.ailments.append(ailment)
        return lambda: self.ailments.remove(ailment)


class SimulatedObjects:
    """Implements `kraftsim.world.interface.ObjectStore` for one process."""

    def __init__(
        self,
        shared: SharedObjects,
        rng: Random,
        on_call: Callable[[], object] = lambda: None,
    ) -> None:
        self._shared = shared
        self._rng = rng
        self._on_call = on_call
        """Called before each call of the store."""

    async def put(self, key: str, pieces: Sequence[Chunk | FileSlice]) -> None:
        """Write an object atomically."""
        data = b"".join(bytes_of(piece) for piece in pieces)
        await self._travel(len(data))
        for ailment in self._shared.ailments:
            if ailment.fails_at is not None and key.endswith(ailment.fails_at):
                ailment.record_effect()
                raise OSError(f"{key} could not be written")
        self._shared.put_count += 1
        await self._carry_out(lambda: self._shared.contents.__setitem__(key, data))

    async def get(self, key: str, first: int = 0, size_bytes: int | None = None) -> bytes:
        """Return a part of an object."""
        await self._travel(0)
        await self._carry_out(lambda: None)
        if key not in self._shared.contents:
            raise FileNotFoundError(f"{key} does not exist")
        found = self._shared.contents[key][
            first : None if size_bytes is None else first + size_bytes
        ]
        self._shared.got_bytes += len(found)
        await asyncio.sleep(len(found) / BYTES_PER_SECOND)
        return found

    async def delete(self, key: str) -> None:
        """Delete an object."""
        await self._travel(0)
        await self._carry_out(lambda: self._shared.contents.pop(key, None))

    async def list(self, prefix: str) -> list[str]:
        """Return the keys with a prefix."""
        await self._travel(0)
        await self._carry_out(lambda: None)
        keys: Sequence[str] = list(self._shared.contents)
        for ailment in self._shared.ailments:
            if ailment.stale_keys is not None:
                if set(ailment.stale_keys) != set(keys):
                    ailment.record_effect()
                keys = ailment.stale_keys
        return sorted(key for key in keys if key.startswith(prefix))

    async def _travel(self, size_bytes: int) -> None:
        self._on_call()
        seconds = (
            self._rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS) + size_bytes / BYTES_PER_SECOND
        )
        for ailment in self._shared.ailments:
            if ailment.delay_seconds:
                ailment.record_effect()
                seconds += ailment.delay_seconds
        await asyncio.sleep(seconds)

    async def _carry_out(self, work: Callable[[], object]) -> None:
        for ailment in self._shared.ailments:
            if ailment.failing_permille and self._rng.randrange(1000) < ailment.failing_permille:
                ailment.record_effect()
                if self._rng.random() < 0.5:
                    work()
                raise OSError("the store does not answer")
        work()
