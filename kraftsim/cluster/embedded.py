"""A cluster inside the calling process, on a thread and an event loop of its own, so that blocking
clients cannot deadlock it.

A kill aborts a node: its connections are reset, nothing is flushed, no clean-shutdown marker is
written. The page cache survives (it is the same process), so this mode has no power loss;
simulation has.
"""

import asyncio
import tempfile
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.launch import (
    Node,
    build_node,
    parse_node,
    real_world_of,
    require_valid,
    require_valid_node,
)
from kraftsim.cluster.ports import require_free_ports
from kraftsim.cluster.proxy.process import ProxyProcess, proxy_plan
from kraftsim.cluster.readiness import (
    ClusterFailed,
    NotReady,
    Readiness,
    fetch_producer_ids,
    listeners_of,
)
from kraftsim.cluster.request_tap import RequestTaps, node_client_ids
from kraftsim.cluster.spec import ClusterSpec, Role, override
from kraftsim.lab.faults.rules_request_faults import (
    RequestFault,
    RequestFaultStatus,
    RequestHit,
)
from kraftsim.server.tasks import report_unhandled_errors
from kraftsim.world.real.runner import new_event_loop
from kraftsim.world.real.world import RealClock, RealWorld

T = TypeVar("T")
READY_SECONDS = 30.0
STOP_SECONDS = 20.0
"""Time limit for the nodes of one role to stop; then they are aborted."""
MARGIN_SECONDS = 5.0


@dataclass(slots=True)
class RunningNode:
    """A node and its world; `starting` is done when it has started, `failing` when it has failed on
    its own.
    """

    node: Node
    world: RealWorld
    starting: "asyncio.Future[None]"
    failing: "asyncio.Task[BaseException] | None" = None
    becoming_ready: "asyncio.Task[None] | None" = None
    is_ready: bool = False


class EmbeddedCluster:
    """A running cluster for a test: `with EmbeddedCluster(spec) as cluster:
    client(cluster.bootstrap)`.

    The methods block; `kill_node`, `restart_node` and `answering`
    are the same without blocking the caller's event loop. Without `is_durable` no node waits for
    the disk, which it need not for any fault that this mode has.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        directory: RunDirectory | None = None,
        *,
        follows_frames: bool = False,
        is_durable: bool = True,
    ) -> None:
        self.spec = spec
        self._temporary = (
            tempfile.TemporaryDirectory(prefix="kraftsim-") if directory is None else None
        )
        self.directory = (
            RunDirectory(Path(self._temporary.name))
            if self._temporary is not None
            else directory or RunDirectory(Path())
        )
        self._is_durable = is_durable
        self._nodes: dict[str, RunningNode] = {}
        self._overrides: dict[str, dict[str, str]] = {}
        self.proxy = (
            ProxyProcess(proxy_plan(spec, follows_frames=follows_frames), self.directory)
            if spec.behind_proxy
            else None
        )
        self.started_ns = RealClock(0).monotonic_ns()
        self._mistakes: list[Exception] = []
        self._loop = new_event_loop()
        self._request_taps = RequestTaps(
            node_client_ids(spec),
            seed=spec.seed or 0,
            now_ms=lambda: self._loop.time() * 1000,
            later=lambda delay_ms, work: self._loop.call_later(delay_ms / 1000, work),
        )
        report_unhandled_errors(self._loop, self._mistakes.append)
        self._thread = threading.Thread(
            target=self._run_loop, name="kraftsim-embedded", daemon=True
        )

    def __enter__(self) -> "EmbeddedCluster":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> "EmbeddedCluster":
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for Kafka clients."""
        return self.spec.bootstrap

    def start(self) -> None:
        """Start every node and return when every broker answers.

        Raises SpecError if a port is taken, ConfigError or KeyError for an invalid configuration,
        NotReady (a TimeoutError) that says why.
        """
        try:
            require_valid(self.spec)
            require_free_ports(self.spec)
            self.directory.create()
        except BaseException:
            self._release()
            raise
        self._thread.start()
        try:
            self._wait(self._start_all(), READY_SECONDS + STOP_SECONDS)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop all nodes cleanly and end the thread.

        Raises the unhandled exception of a node, if there was one: always a bug of kraftsim.
        """
        if not self._thread.is_alive():
            return
        try:
            self._wait(self._stop_all(), len(Role) * STOP_SECONDS + MARGIN_SECONDS)
        finally:
            try:
                self._wait(_cancel_the_rest(), STOP_SECONDS)
            finally:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join(STOP_SECONDS)
                self._release()
        if self._mistakes:
            raise self._mistakes[0]

    def _release(self) -> None:
        """Release the resources of the constructor: the loop, the proxy and the temporary
        directory.
        """
        self._loop.close()
        if self.proxy is not None:
            self.proxy.stop()
        if self._temporary is not None:
            self._temporary.cleanup()

    def kill(self, name: str) -> None:
        """Abort a node as SIGKILL would end its process."""
        self._wait(self._kill(name), STOP_SECONDS)

    def restart(self, name: str) -> None:
        """Start a killed node again on its disk and return when it listens."""
        self._wait(self._launch(name), READY_SECONDS)

    def wait_until_ready(self) -> None:
        """Return when every broker is ready and sees every other one as alive.

        Raises NotReady, a TimeoutError.
        """
        self._wait(self._answering(READY_SECONDS), READY_SECONDS + STOP_SECONDS)

    def fetch_producer_ids(self) -> None:
        """Return when every broker has a block of producer ids, so that no client of a test waits
        for one; it takes an id of each.

        Raises NotReady, a TimeoutError.
        """
        self._wait(self._fetch_producer_ids(), READY_SECONDS + STOP_SECONDS)

    async def kill_node(self, name: str) -> None:
        """`kill` without blocking the caller's loop."""
        await asyncio.wrap_future(self._submit(self._kill(name)))

    async def restart_node(self, name: str) -> None:
        """`restart` without blocking the caller's loop."""
        await asyncio.wrap_future(self._submit(self._launch(name)))

    async def stop_node(self, name: str, kill_after_seconds: float = STOP_SECONDS) -> None:
        """Stop a node cleanly, without blocking the caller's loop, and abort it if that takes too
        long; it is down then.
        """
        await asyncio.wrap_future(self._submit(self._stop(name, kill_after_seconds)))

    async def answering(self, *, timeout_seconds: float = READY_SECONDS) -> None:
        """`wait_until_ready` without blocking the caller's loop.

        Raises NotReady, a TimeoutError.
        """
        await asyncio.wrap_future(self._submit(self._answering(timeout_seconds)))

    def tell(self, name: str, settings: Mapping[str, str | None]) -> dict[str, str | None]:
        """Override settings of a node from its next start on, None for the original value; return
        the former overrides.
        """
        return override(self._overrides.setdefault(name, {}), settings)

    def setting(self, name: str, key: str) -> str:
        """Return a property that a node has from its next start on; empty if it has none."""
        own = self.spec.node(name).properties
        return self._overrides.get(name, {}).get(key, own.get(key, ""))

    def require_valid(self, name: str, settings: Mapping[str, str]) -> None:
        """Raise ConfigError or KeyError if a node could not start with these settings."""
        own = {**self.spec.node(name).properties, **self._overrides.get(name, {}), **settings}
        require_valid_node({"log.dirs": str(self.directory.data(name)), **own})

    def is_ready(self, name: str) -> bool:
        """Return whether a node is ready: a broker when it is unfenced."""
        return name in self._nodes and self._nodes[name].is_ready

    def pid_of(self, name: str) -> int | None:
        """Return None: all nodes share the caller's process."""
        return None

    async def add_request_fault(
        self, fault: RequestFault, on_hit: Callable[[RequestHit], None]
    ) -> int:
        """Add a fault of requests, which the nodes carry out; return its number. `on_hit` is called
        on the thread of the nodes for each request that it takes effect on.
        """

        async def add() -> int:
            return self._request_taps.add(fault, on_hit)

        return await asyncio.wrap_future(self._submit(add()))

    async def end_request_fault(self, number: int) -> None:
        """End a fault of requests."""

        async def end() -> None:
            self._request_taps.remove(number)

        await asyncio.wrap_future(self._submit(end()))

    async def request_faults(self) -> tuple[RequestFaultStatus, ...]:
        """Return the faults of requests, and what became of them."""

        async def look() -> tuple[RequestFaultStatus, ...]:
            return self._request_taps.status()

        return await asyncio.wrap_future(self._submit(look()))

    def is_down(self, name: str) -> bool:
        """Return whether a node was killed and not restarted."""
        return name not in self._nodes

    def has_ended(self, name: str) -> bool:
        """Return whether a node that was not killed has failed on its own."""
        running = self._nodes.get(name)
        return running is not None and running.failing is not None and running.failing.done()

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _submit(self, work: Coroutine[object, object, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[object, object, T], seconds: float) -> T:
        future = self._submit(work)
        try:
            return future.result(seconds)
        finally:
            future.cancel()  # a call without a waiting caller must not continue

    async def _start_all(self) -> None:
        name = "the proxy"
        try:
            async with asyncio.timeout(READY_SECONDS):
                if self.proxy is not None:
                    await self.proxy.start()
                for name in self.spec.node_names:
                    await self._launch(name)
        except TimeoutError as late:
            raise NotReady(f"{name} did not start within {READY_SECONDS:g} s") from late
        await self._answering(READY_SECONDS)

    async def _answering(self, seconds: float) -> None:
        brokers = [self.spec.node(name) for name in self.spec.broker_names]
        readiness = Readiness(listeners_of(brokers, self._overrides), brokers=len(brokers))
        name = ""
        try:
            async with asyncio.timeout(seconds):
                for name in self.spec.broker_names:
                    if name in self._nodes:
                        await _ready(self._nodes[name])
                name = ""
                await readiness.wait(self._nodes.__contains__)
        except TimeoutError as late:
            reason = f"{name} is not unfenced by the controller" if name else readiness.trouble
            raise NotReady(f"the brokers did not answer within {seconds:g} s: {reason}") from late

    async def _fetch_producer_ids(self) -> None:
        brokers = [self.spec.node(name) for name in self.spec.broker_names]
        try:
            async with asyncio.timeout(READY_SECONDS):
                await fetch_producer_ids(listeners_of(brokers, self._overrides))
        except TimeoutError as late:
            raise NotReady(
                f"a broker did not get producer ids from the controller within {READY_SECONDS:g} s"
            ) from late

    async def _launch(self, name: str) -> None:
        assert name not in self._nodes, f"{name} is running"
        properties = {
            "log.dirs": str(self.directory.data(name)),
            **self.spec.node(name).properties,
            **self._overrides.get(name, {}),
        }
        config = parse_node({**properties, "kraftsim.events.dir": str(self.directory.events)})
        world = real_world_of(config, self.started_ns, is_durable=self._is_durable)
        node = build_node(config, world)
        self._request_taps.follow(name, node, self._loop.call_soon)
        running = self._nodes[name] = RunningNode(node, world, asyncio.ensure_future(node.start()))
        try:
            await running.starting
        except BaseException:
            if self._nodes.get(name) is running:
                raise
            return  # it was killed meanwhile: its resources are gone
        running.failing = asyncio.ensure_future(node.failed())
        running.becoming_ready = asyncio.ensure_future(_mark_ready(running))

    async def _kill(self, name: str) -> None:
        running = self._forget(name)
        running.starting.cancel()
        await asyncio.gather(running.starting, return_exceptions=True)
        running.node.abort()
        running.world.close()

    async def _stop_all(self) -> None:
        """Stop brokers, then controllers, then ZooKeeper.

        Raises the first error once all of them were stopped.
        """
        ended: list[BaseException | None] = []
        for names in (
            self.spec.broker_names,
            self.spec.controller_names,
            self.spec.zookeeper_names,
        ):
            ended += await asyncio.gather(
                *(self._stop(name, STOP_SECONDS) for name in names if name in self._nodes),
                return_exceptions=True,
            )
        for error in ended:
            if error is not None:
                raise error

    async def _stop(self, name: str, kill_after_seconds: float = STOP_SECONDS) -> None:
        running = self._forget(name)
        try:
            async with asyncio.timeout(kill_after_seconds):
                await asyncio.gather(running.starting, return_exceptions=True)
                await running.node.stop()
        except TimeoutError:
            running.node.abort()
        finally:
            running.world.close()

    def _forget(self, name: str) -> RunningNode:
        self._request_taps.forget(name)
        running = self._nodes.pop(name)
        for task in (running.failing, running.becoming_ready):
            if task is not None:
                task.cancel()
        return running


async def _ready(running: RunningNode) -> None:
    """Return when a node is ready. Raises ClusterFailed at once if it ends on its own."""
    ready, failing = asyncio.ensure_future(running.node.ready()), running.failing

    def on_failed(failed: "asyncio.Task[BaseException]") -> None:
        if not failed.cancelled():  # else it was killed or stopped
            ready.cancel()

    if failing is not None:
        failing.add_done_callback(on_failed)
    try:
        await ready
    except asyncio.CancelledError:
        if failing is None or not failing.done() or failing.cancelled():
            raise
        raise ClusterFailed(
            f"{running.world.node} failed: {failing.result()}"
        ) from failing.result()


async def _mark_ready(running: RunningNode) -> None:
    try:
        await running.node.ready()
    except Exception:
        return  # the node has failed: `failing` has the reason
    running.is_ready = True


async def _cancel_the_rest() -> None:
    """Cancel all tasks of this loop: Python complains about a task that is pending when its loop is
    closed.
    """
    rest = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
