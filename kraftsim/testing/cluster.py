"""`kraftsim.Cluster`: a cluster for a test or a script, with the faults, the upgrades and the
checks of the command line.

    with kraftsim.Cluster(brokers=3, release="4.1") as cluster:
        client(cluster.bootstrap)
        cluster.kill("broker-1")

    async with kraftsim.Cluster() as cluster:
        await cluster.aio.restart("broker-1")

The nodes run inside this process (`mode="embedded"`, ready in a blink) or as processes of their own
(`mode="processes"`, which can be paused, and killed without mercy for the page cache of Python).
"""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Final, TypeVar

from kraftsim.cluster.administration import (
    create_topic,
    wait_until_in_sync,
    wait_until_served,
)
from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver, NoProxy
from kraftsim.cluster.cluster_operations import (
    ClusterOperations,
    NotInThisCluster,
    UnknownTarget,
)
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import (
    BrokerListener,
    NotReady,
    fetch_producer_ids,
    listeners_of,
    wait_for_coordinators,
)
from kraftsim.cluster.request_faults import RequestFaults
from kraftsim.cluster.spec import RELEASE_KEY, ClusterSpec, SpecError
from kraftsim.events.event import Event
from kraftsim.lab.faults.fault import members, names_leader, with_leader
from kraftsim.lab.faults.field import Condition
from kraftsim.lab.faults.rules_request_faults import RequestFault
from kraftsim.releases.release import Release
from kraftsim.testing.request_faults import (
    InjectedFault,
    RequestFaultVerbs,
    request_fault_of,
)
from kraftsim.testing.security import security_preset

if TYPE_CHECKING:  # the checks, which most tests do not ask for, import every invariant
    from kraftsim.control.client import ControlClient
    from kraftsim.control.service import ControlService
    from kraftsim.invariants.invariant import Envelope
    from kraftsim.invariants.verdict import Verdict

T = TypeVar("T")
E = TypeVar("E", bound=Event)
Action = Callable[[str], Coroutine[object, object, bool]]
"""Does something to a node; returns whether that changed anything."""
EMBEDDED, PROCESSES = "embedded", "processes"
QUICK: Final = {
    "broker.heartbeat.interval.ms": "250",
    "broker.session.timeout.ms": "1000",
    "controller.quorum.retry.backoff.ms": "5",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "replica.fetch.wait.max.ms": "50",
    "transaction.state.log.num.partitions": "5",
}
"""A new group does not wait 3 s for more members, as in Apache Kafka's container examples; the
partitions of a killed broker move after 1 s instead of 9; a broker that joins the quorum does not
pause between its first requests.
"""
RETRY_SECONDS: Final = 0.005
COORDINATOR_SECONDS: Final = 3.0
SECONDS: Final = 60.0
"""How long an operation may take before it raises TimeoutError."""


class FaultNotPossible(ValueError):
    """A fault that this cluster cannot have: one line that says how to start one that can."""


class InvariantsViolated(AssertionError):
    """What the cluster did violates invariants; the message has each with its first violation."""


class Cluster(RequestFaultVerbs[InjectedFault]):
    """A cluster; it runs between `start` and `stop`, or inside a `with` or `async with` block.

    `options` are the fields of `kraftsim.cluster.spec.ClusterSpec`: brokers (1), controllers (1),
    combined (0: how many of them are both), release, port (free ones), settings, node_settings,
    zookeeper, first_voters, ... `settings` are Kafka's properties for all nodes.

    `network_faults` puts a proxy in front of the nodes: `cut`, `slow` and `reset` need it, and it
    takes 0.3 s to start. `http` serves HTTP control and the live page, as `serve_http` does.
    `security` is PLAINTEXT, SASL_PLAINTEXT, SSL or SASL_SSL:
    `client_settings` has what a client needs then. `directory` gets disks, event logs and logs;
    without it they are deleted after `stop`.

    Every method blocks; `aio` has the same ones as coroutines.
    """

    def __init__(
        self,
        *,
        mode: str = EMBEDDED,
        network_faults: bool = False,
        http: bool = False,
        security: str = "PLAINTEXT",
        directory: Path | str | None = None,
        **options: object,
    ) -> None:
        if mode not in (EMBEDDED, PROCESSES):
            raise ValueError(f"mode is {EMBEDDED!r} or {PROCESSES!r}, not {mode!r}")
        self.mode = mode
        self._is_temporary = directory is None
        self.directory = (
            Path(tempfile.mkdtemp(prefix="kraftsim-")) if directory is None else Path(directory)
        ).absolute()
        """Where disks (`data`), event logs (`events`) and logs of the nodes (`logs`) are."""
        preset = security_preset(security, self.directory / "security")
        self._login = dict(preset.clients)
        self.spec = specification(options, preset.brokers, network_faults=network_faults)
        run = RunDirectory(self.directory)
        self._cluster: EmbeddedCluster | ProcessCluster = (
            EmbeddedCluster(self.spec, run, is_durable=False)
            if mode == EMBEDDED
            else ProcessCluster(self.spec, run, judges_requests=network_faults)
        )
        self._driver = ClusterFaultDriver(self._cluster)
        self._request_faults = RequestFaults(self._cluster, self._driver, run)
        self._operations = ClusterOperations(
            self._cluster,
            self._driver,
            self._request_faults,
            can_pause=mode == PROCESSES,
            on_change=_nothing,
        )
        self._serves_http = http
        self._http: ControlService | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="kraftsim-cluster", daemon=True
        )
        self._topics = 0
        self._has_ended = False
        self.aio = AsyncOperations(self)
        """The methods as coroutines."""

    def __enter__(self) -> "Cluster":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> "Cluster":
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.stop)

    # What it is
    # ----------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers."""
        return self.spec.bootstrap

    @property
    def node_names(self) -> tuple[str, ...]:
        """All nodes: controllers, then brokers."""
        return self.spec.node_names

    @property
    def broker_names(self) -> tuple[str, ...]:
        """The brokers."""
        return self.spec.broker_names

    @property
    def controller_names(self) -> tuple[str, ...]:
        """The controllers."""
        return self.spec.controller_names

    def client_settings(self) -> dict[str, str]:
        """Return the settings of a client in the names of librdkafka: bootstrap.servers, and what
        the security of the cluster needs.
        """
        return {"bootstrap.servers": self.bootstrap, **self._login}

    def is_down(self, node: str) -> bool:
        """Return whether a node was taken down and not restarted."""
        return self._driver.is_down(node)

    # Its life
    # ----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every node; return when every broker answers and has producer ids.

        Raises SpecError, ConfigError or KeyError for options that are not valid, and NotReady (a
        TimeoutError) that says why.
        """
        self._thread.start()
        try:
            self._wait(self._start())
            if self._serves_http:
                self.serve_http()
        except BaseException:
            self._end()
            raise

    def stop(self) -> None:
        """Stop all nodes cleanly. Without a `directory` everything it wrote is deleted.

        Raises the unhandled exception of a node, if there was one: always a bug of kraftsim.
        """
        if self._has_ended:
            return
        try:
            if self._thread.is_alive():  # else it was never started
                self._wait(self._stop())
        finally:
            self._end()

    async def _start(self) -> None:
        if isinstance(self._cluster, EmbeddedCluster):
            await asyncio.to_thread(self._cluster.start)
        else:
            await self._cluster.start()
        running = self._up()
        try:
            async with asyncio.timeout(SECONDS / 2):
                await asyncio.gather(fetch_producer_ids(running), _find_coordinators(running[0]))
        except TimeoutError as late:
            raise NotReady(
                f"a broker did not get producer ids from the controller within {SECONDS / 2:g} s"
            ) from late

    def serve_http(self, port: int = 0) -> "ControlClient":
        """Serve HTTP control, a live page and metrics on a port of 127.0.0.1, by default a free
        one, unless that is done already; return a client of it (`kraftsim.control.client`), which
        has `url` and `token`. Needs the extra `http`.
        """
        from kraftsim.control.client import ControlClient
        from kraftsim.control.service import ControlService, HttpPlan

        if self._http is None:
            service = ControlService(HttpPlan.of("127.0.0.1", port, None), mode=self.mode)
            service.bind()
            self._http = service
            self._wait(service.open(self._operations))
        return ControlClient(self._http.address.url, self._http.token)

    async def _stop(self) -> None:
        if self._http is not None:
            await self._http.close()
        self._operations.close()
        for node in self._driver.paused:
            await self._driver.resume(node)
        await self._request_faults.heal()
        self._request_faults.close()
        await self._driver.close()
        if isinstance(self._cluster, EmbeddedCluster):
            await asyncio.to_thread(self._cluster.stop)
        else:
            await self._cluster.stop()

    def _end(self) -> None:
        self._has_ended = True
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(SECONDS)
        self._loop.close()
        if self._is_temporary:
            shutil.rmtree(self.directory, ignore_errors=True)

    # Topics
    # ----------------------------------------------------------------------------------------------

    def create_topic(
        self, name: str | None = None, *, partitions: int = 1, replicas: int | None = None
    ) -> str:
        """Create a topic and return its name, a new one by default; return when all replicas are in
        sync and the leaders serve it. `replicas`: 3, or as many as there are brokers. An existing
        topic is used as it is.

        Raises TopicFailed.
        """
        return self._wait(self._create_topic(name, partitions, replicas))

    async def _create_topic(self, name: str | None, partitions: int, replicas: int | None) -> str:
        if name is None:
            self._topics += 1
            name = f"topic-{self._topics}"
        running = self._up()
        addresses = [(each.host, each.port) for each in running]
        count = min(3, self.spec.brokers) if replicas is None else replicas
        security, retry_seconds = running[0].security, RETRY_SECONDS
        async with asyncio.timeout(SECONDS):
            await create_topic(
                addresses, name, partitions, count, security=security, retry_seconds=retry_seconds
            )
            await wait_until_served(
                *addresses[0], name, security=security, retry_seconds=retry_seconds
            )
        return name

    def _up(self) -> "Sequence[BrokerListener]":
        """Return the listeners of the brokers that run."""
        names = [name for name in self.spec.broker_names if not self.is_down(name)]
        return listeners_of([self.spec.node(name) for name in names], {})

    # Faults. A target is the name of a node, a pattern (`broker-*`), several (`a,b`), or `leader`,
    # the active controller.
    # ----------------------------------------------------------------------------------------------

    def leader(self) -> str:
        """Return the active controller, as soon as there is one."""
        return self._wait(self._driver.leader())

    def kill(self, target: str) -> None:
        """End nodes as SIGKILL would; those that are down stay so."""
        self._wait(self._for_each(target, self._driver.kill))

    def shut_down(self, target: str) -> None:
        """Stop nodes cleanly."""
        self._wait(self._for_each(target, self._driver.stop))

    def restart(
        self,
        target: str,
        *,
        release: str | Release | None = None,
        settings: Mapping[str, str | None] | None = None,
    ) -> None:
        """Stop nodes if they run and start them again on their disks, one after the other. Return
        when the cluster answers as a whole and every replica is in sync; if another node is down,
        when they have started.

        From then on they run `release`, and have `settings` on top of their own (None: the original
        value).
        """
        self._wait(self._restart(target, release, settings or {}))

    def upgrade(self, release: str | Release) -> None:
        """Restart every node with another release, one at a time: brokers, then controllers, the
        active one last. Feature levels stay; `kafka-features` raises them, as after a real upgrade.
        """
        self._wait(self._upgrade(release))

    def pause(self, target: str) -> None:
        """Pause processes (SIGSTOP). Raises FaultNotPossible for an embedded cluster."""
        self._require_processes()
        self._wait(self._for_each(target, self._driver.pause))

    def resume(self, target: str = "*") -> None:
        """Resume paused processes, all by default."""
        self._require_processes()
        self._wait(self._for_each(target, self._driver.resume))

    def cut(self, target: str) -> None:
        """Interrupt links until `heal`: bytes wait, connections stay open.

        A node alone means all its links; `a<>b` both directions between two, `a>b` one; `clients`
        are all that are not nodes. Raises FaultNotPossible without `network_faults`.
        """
        self._wait(self._impose(target, Condition(holds=True)))

    def slow(
        self,
        target: str,
        *,
        latency_ms: float = 0,
        jitter_ms: float = 0,
        bytes_per_second: int = 0,
    ) -> None:
        """Delay or limit the bytes of links until `heal`: targets as for `cut`."""
        condition = Condition(
            latency_ms=latency_ms, jitter_ms=jitter_ms, bytes_per_second=bytes_per_second
        )
        self._wait(self._impose(target, condition))

    def reset(self, target: str) -> int:
        """Reset the connections of links once; return how many. Targets as for `cut`."""
        return self._wait(self._reset(target))

    def heal(self) -> None:
        """End what `cut` and `slow` began and all faults of requests, resume what is paused, and
        start what is down; return when the cluster answers as a whole.
        """
        self._wait(self._heal())

    def inject(self, fault: RequestFault | str) -> InjectedFault:
        """Add a fault of requests that is made by hand, or that a text says, such as "EndTxn
        error=CONCURRENT_TRANSACTIONS times=3". Raises FaultNotPossible, and ValueError for a text
        that says none.
        """
        fault = request_fault_of(fault)
        if self.mode == PROCESSES and "ssl.ca.location" in self._login:
            raise FaultNotPossible(
                'the proxy cannot read requests inside TLS: mode="embedded" has faults of requests'
            )
        injected = InjectedFault(fault)
        number = self._wait(self._inject(fault, injected))
        injected.begun(
            end=lambda: self._unless_ended(self._request_faults.end(number)),
            settle=lambda: self._unless_ended(self._request_faults.settle()),
            look=lambda: (
                None if self._has_ended else self._wait(self._request_faults.status_of(number))
            ),
        )
        return injected

    def wait_until_ready(self) -> None:
        """Return when every broker is ready and sees every other one as alive. Raises NotReady."""
        self._wait(self._cluster.answering(timeout_seconds=SECONDS / 2))

    def wait_until_replaced(self, target: str) -> None:
        """Return when the cluster has noticed that nodes are gone: no other broker reports them as
        alive, and another controller is active.
        """
        self._wait(self._until_replaced(target))

    async def _until_replaced(self, target: str) -> None:
        async with asyncio.timeout(SECONDS):
            for node in await self._members(target):
                await self._driver.until_replaced(node)

    async def _for_each(self, target: str, action: "Action") -> None:
        for node in await self._members(target):
            await action(node)

    async def _restart(
        self, target: str, release: str | Release | None, settings: Mapping[str, str | None]
    ) -> None:
        changed = {**settings, **({} if release is None else {RELEASE_KEY: _name(release)})}
        for node in await self._members(target):
            await self._driver.stop(node)
            self._driver.tell(node, changed)
            await self._driver.restart(node)
            if not any(map(self._driver.is_down, self.spec.node_names)):
                await self._cluster.answering(timeout_seconds=SECONDS / 2)
                await self._in_sync()

    async def _in_sync(self) -> None:
        broker = self._up()[0]
        async with asyncio.timeout(SECONDS / 2):
            await wait_until_in_sync(broker.host, broker.port, security=broker.security)

    async def _upgrade(self, release: str | Release) -> None:
        active = await self._driver.leader() if self.spec.controllers else ""
        for node in self.spec.restart_order(active):
            await self._restart(node, release, {})

    async def _impose(self, target: str, condition: Condition) -> None:
        with _as_of_a_test():
            await self._operations.impose((target,), condition)

    async def _inject(self, fault: RequestFault, injected: InjectedFault) -> int:
        try:
            return await self._request_faults.inject(fault, injected.report)
        except NoProxy as missing:
            raise _without_proxy() from missing

    def _unless_ended(self, work: Coroutine[object, object, object]) -> None:
        if self._has_ended:
            work.close()
        else:
            self._wait(work)

    async def _reset(self, target: str) -> int:
        with _as_of_a_test():
            return (await self._operations.reset((target,))).closed

    async def _heal(self) -> None:
        await self._request_faults.heal()
        if self._operations.imposed:
            await self._operations.heal()
        await self._driver.heal()
        await self._cluster.answering(timeout_seconds=SECONDS / 2)

    async def _members(self, target: str) -> list[str]:
        return members(await self._named(target), self.spec.node_names)

    async def _named(self, target: str) -> str:
        if not names_leader(target):
            return target
        async with asyncio.timeout(SECONDS / 2):
            return with_leader(target, await self._driver.leader())

    def _require_processes(self) -> None:
        if self.mode != PROCESSES:
            raise FaultNotPossible('nodes of an embedded cluster share a thread: mode="processes"')

    # What happened
    # ----------------------------------------------------------------------------------------------

    def events(self, kind: type[E]) -> "list[tuple[Envelope, E]]":
        """Return what the nodes did so far, in order of time: the events of one kind, or with
        `Event` all (`kraftsim list events`).
        """
        from kraftsim.lab.explore.over_sockets import read_events

        found = read_events(self.directory / "events")
        return [(envelope, event) for envelope, event in found if isinstance(event, kind)]

    def verdicts(self) -> "tuple[Verdict, ...]":
        """Return the result of every invariant (`kraftsim list invariants`) over what happened so
        far; after `check`, over the disks, too.
        """
        from kraftsim.lab.explore.over_sockets import check_run, read_events

        return check_run(read_events(self.directory / "events"), ())

    def check(self) -> None:
        """Stop the cluster and check all invariants over what it did and left on its disks.

        Raises InvariantsViolated.
        """
        from kraftsim.invariants.verdict import Outcome
        from kraftsim.lab.explore.over_sockets import emit_final_logs

        was_temporary, self._is_temporary = self._is_temporary, False
        try:
            self.stop()
            emit_final_logs(self.spec, RunDirectory(self.directory), self._cluster.started_ns)
            violated = [each for each in self.verdicts() if each.outcome is Outcome.VIOLATED]
        finally:
            if was_temporary:
                shutil.rmtree(self.directory, ignore_errors=True)
        if violated:
            raise InvariantsViolated(
                "\n".join(f"{each.invariant}: {each.violations[0].message}" for each in violated)
            )

    # Former names
    # ----------------------------------------------------------------------------------------------

    async def kill_node(self, name: str) -> None:
        """`aio.kill`."""
        await self.aio.kill(name)

    async def restart_node(self, name: str) -> None:
        """`aio.restart`."""
        await self.aio.restart(name)

    async def answering(self) -> None:
        """`aio.wait_until_ready`."""
        await self.aio.wait_until_ready()

    # Carrying out
    # ----------------------------------------------------------------------------------------------

    def _submit(self, work: Coroutine[object, object, T]) -> "Future[T]":
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _wait(self, work: Coroutine[object, object, T]) -> T:
        future = self._submit(work)
        try:
            return future.result(SECONDS * max(1, len(self.spec.node_names)))
        finally:
            future.cancel()  # a call without a waiting caller must not continue


class AsyncOperations(RequestFaultVerbs[Coroutine[object, object, InjectedFault]]):
    """The methods of a Cluster as coroutines, for tests that run on an event loop of their own."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create_topic(
        self, name: str | None = None, *, partitions: int = 1, replicas: int | None = None
    ) -> str:
        """See `Cluster.create_topic`."""
        return await asyncio.to_thread(
            self._cluster.create_topic, name, partitions=partitions, replicas=replicas
        )

    async def leader(self) -> str:
        """See `Cluster.leader`."""
        return await asyncio.to_thread(self._cluster.leader)

    async def kill(self, target: str) -> None:
        """See `Cluster.kill`."""
        await asyncio.to_thread(self._cluster.kill, target)

    async def shut_down(self, target: str) -> None:
        """See `Cluster.shut_down`."""
        await asyncio.to_thread(self._cluster.shut_down, target)

    async def restart(
        self,
        target: str,
        *,
        release: str | Release | None = None,
        settings: Mapping[str, str | None] | None = None,
    ) -> None:
        """See `Cluster.restart`."""
        await asyncio.to_thread(self._cluster.restart, target, release=release, settings=settings)

    async def upgrade(self, release: str | Release) -> None:
        """See `Cluster.upgrade`."""
        await asyncio.to_thread(self._cluster.upgrade, release)

    async def pause(self, target: str) -> None:
        """See `Cluster.pause`."""
        await asyncio.to_thread(self._cluster.pause, target)

    async def resume(self, target: str = "*") -> None:
        """See `Cluster.resume`."""
        await asyncio.to_thread(self._cluster.resume, target)

    async def cut(self, target: str) -> None:
        """See `Cluster.cut`."""
        await asyncio.to_thread(self._cluster.cut, target)

    async def slow(
        self,
        target: str,
        *,
        latency_ms: float = 0,
        jitter_ms: float = 0,
        bytes_per_second: int = 0,
    ) -> None:
        """See `Cluster.slow`."""
        await asyncio.to_thread(
            self._cluster.slow,
            target,
            latency_ms=latency_ms,
            jitter_ms=jitter_ms,
            bytes_per_second=bytes_per_second,
        )

    async def reset(self, target: str) -> int:
        """See `Cluster.reset`."""
        return await asyncio.to_thread(self._cluster.reset, target)

    async def heal(self) -> None:
        """See `Cluster.heal`."""
        await asyncio.to_thread(self._cluster.heal)

    async def inject(self, fault: RequestFault | str) -> InjectedFault:
        """See `Cluster.inject`."""
        return await asyncio.to_thread(self._cluster.inject, fault)

    async def wait_until_ready(self) -> None:
        """See `Cluster.wait_until_ready`."""
        await asyncio.to_thread(self._cluster.wait_until_ready)

    async def wait_until_replaced(self, target: str) -> None:
        """See `Cluster.wait_until_replaced`."""
        await asyncio.to_thread(self._cluster.wait_until_replaced, target)

    async def check(self) -> None:
        """See `Cluster.check`."""
        await asyncio.to_thread(self._cluster.check)


def specification(
    options: Mapping[str, object],
    secured: Mapping[str, str] = MappingProxyType({}),
    *,
    network_faults: bool = False,
) -> ClusterSpec:
    """Return the specification with these fields: one broker by default, on free ports, with
    settings that are quick for tests. Raises SpecError.
    """
    unknown = sorted(options.keys() - {each.name for each in fields(ClusterSpec)})
    if unknown:
        raise SpecError(f"a cluster has no option {unknown[0]}: see kraftsim.Cluster")
    combined = options.get("combined", 0)
    chosen: dict[str, object] = {
        "brokers": combined or 1,
        "controllers": combined or 1,
        "behind_proxy": network_faults,
        **options,
    }
    brokers, controllers = chosen["brokers"], chosen["controllers"]
    if not isinstance(brokers, int) or not isinstance(controllers, int):
        raise SpecError("brokers and controllers are numbers")
    if "port" not in chosen:
        chosen["port"] = free_port_range(brokers, controllers=controllers)
    settings = chosen.get("settings", {})
    if not isinstance(settings, Mapping):
        raise SpecError("settings map Kafka's properties to their values")
    if isinstance(release := chosen.get("release"), Release):
        chosen["release"] = release.name
    chosen["settings"] = {**QUICK, **secured, **settings}
    # arg-type: a dict of values of several types
    return ClusterSpec(**chosen)  # type: ignore[arg-type]


async def _find_coordinators(broker: BrokerListener) -> None:
    """Wait for the coordinators a while: with settings of a test's own there may never be any."""
    with suppress(TimeoutError):
        async with asyncio.timeout(COORDINATOR_SECONDS):
            await wait_for_coordinators(broker)


def _name(release: str | Release) -> str:
    return release.name if isinstance(release, Release) else release


@contextmanager
def _as_of_a_test() -> Iterator[None]:
    """Raise what a test gets for a fault that cannot be, or for a target that is none."""
    try:
        yield
    except NotInThisCluster as missing:
        raise _without_proxy() from missing
    except UnknownTarget as unknown:
        raise KeyError(str(unknown)) from unknown


def _nothing() -> None:
    """No file has the processes of an embedded cluster."""


def _without_proxy() -> FaultNotPossible:
    return FaultNotPossible(
        "network faults need a proxy in front of the nodes: Cluster(network_faults=True)"
    )
