"""A kraftsim ZooKeeper server in its own thread, so that blocking clients can use it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kraftsim.world.real.world import real_world
from kraftsim.zookeeper.server import ZookeeperServer
from kraftsim.zookeeper.settings import ZookeeperSettings


class RunningZookeeper:
    """`port` is where it listens; `kill` ends it immediately."""

    def __init__(
        self, directory: Path, *, incarnation: int = 1, port: int = 0, **settings: int
    ) -> None:
        self._directory = directory
        self._incarnation = incarnation
        # arg-type: keyword arguments of several types
        self._settings = replace(ZookeeperSettings(port=port), **settings)  # type: ignore[arg-type]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self.server: ZookeeperServer

    @property
    def port(self) -> int:
        """Its port."""
        return self.server.port

    def start(self) -> None:
        """Start."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)

    def stop(self) -> None:
        """Stop cleanly."""
        asyncio.run_coroutine_threadsafe(self.server.stop(), self._loop).result(10)
        self._end()

    def kill(self) -> None:
        """Stop immediately."""
        self._loop.call_soon_threadsafe(self.server.abort)
        self._end()

    async def _start(self) -> None:
        world = real_world(
            run="test",
            node="zookeeper-1",
            incarnation=self._incarnation,
            data_dir=self._directory / "data",
            events_dir=self._directory / "events",
            seed=1,
            started_ns=0,
        )
        self.server = ZookeeperServer(world, self._settings)
        await self.server.start()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()


@contextmanager
def running_zookeeper(directory: Path, **options: int) -> Iterator[RunningZookeeper]:
    """Run one in a directory, and stop it in the end."""
    running = RunningZookeeper(directory, **options)
    running.start()
    try:
        yield running
    finally:
        running.stop()
