"""A cluster of separate operating-system processes on this machine: started, watched, killed,
restarted, stopped.

A kill is SIGKILL: the process cannot flush or close connections, but the operating system keeps its
page cache.
"""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

from kraftsim.cluster.directories import RunDirectory, write_private
from kraftsim.cluster.fork_server import ForkServer, RunningProcess, can_fork
from kraftsim.cluster.launch import require_valid, require_valid_node
from kraftsim.cluster.ports import require_free_ports
from kraftsim.cluster.proxy.control_messages import ProxyPlan
from kraftsim.cluster.proxy.process import PROXY, ProxyFailed, ProxyProcess, proxy_plan
from kraftsim.cluster.readiness import (
    REAL_RETRY_SECONDS,
    ClusterFailed,
    NotReady,
    Readiness,
    listeners_of,
)
from kraftsim.cluster.spec import ClusterSpec, NodeSpec, override, properties_text
from kraftsim.events.event import event_file_name
from kraftsim.extensions import EXPORTS_FOR_NODES, for_child
from kraftsim.server.events import NodeReady
from kraftsim.world.real.event_file import next_incarnation
from kraftsim.world.real.world import RealClock

STOP_SECONDS = 10.0
"""How long a node may take to stop cleanly before it is killed."""
POLL_SECONDS = 0.02
_READY = f'"kind":"{NodeReady.__name__}"'.encode()


@dataclass(slots=True)
class NodeProcess:
    """A node's process and its start parameters."""

    spec: NodeSpec
    process: RunningProcess
    events: Path
    """The event log of this incarnation."""
    _read_bytes: int = 0
    _is_ready: bool = False

    @property
    def is_ready(self) -> bool:
        """Return whether this incarnation has reported that it is ready: a restarted node answers
        Metadata long before the controller unfences it.
        """
        if not self._is_ready and self.events.exists():
            with self.events.open("rb") as log:
                log.seek(self._read_bytes)
                whole, newline, _ = log.read().rpartition(b"\n")
            self._is_ready = _READY in whole
            self._read_bytes += len(whole) + len(newline)
        return self._is_ready

    @property
    def is_running(self) -> bool:
        """Return whether the process runs."""
        return self.process.poll() is None


class ProcessCluster:
    """All nodes of a spec as processes.

    Use as an async context manager, or call `start` and `stop`.

    With `spec.behind_proxy` there is a proxy in front of them; `follows_frames` lets faults wait
    for frames there, `judges_requests` lets it carry out faults of requests.
    """

    start_seconds = 30.0
    """How long the nodes may take to be ready."""
    stop_seconds = STOP_SECONDS
    forks_nodes = True
    """Whether its nodes are forked from one process, where the system can do that."""
    patience = 1.0
    """See `ScenarioEnvironment`."""

    def __init__(
        self,
        spec: ClusterSpec,
        directory: RunDirectory,
        *,
        follows_frames: bool = False,
        judges_requests: bool = False,
    ) -> None:
        self.spec = spec
        self.directory = directory
        self.nodes: dict[str, NodeProcess] = {}
        self._overrides: dict[str, dict[str, str]] = {}
        self.proxy = (
            ProxyProcess(
                self._proxy_plan(follows_frames=follows_frames, judges_requests=judges_requests),
                directory,
            )
            if spec.behind_proxy
            else None
        )
        self.started_ns = RealClock(0).monotonic_ns()
        self._fork_server: ForkServer | None = None

    async def __aenter__(self) -> "ProcessCluster":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers for clients."""
        return self.spec.bootstrap

    def pid(self, name: str) -> int:
        """Return the process id of a node."""
        return self.nodes[name].process.pid

    @property
    def fork_server_pid(self) -> int | None:
        """The process id of the parent of the nodes; None if there is none."""
        return self._fork_server.pid if self._fork_server is not None else None

    async def start(self, *, timeout_seconds: float | None = None) -> None:
        """Start every node and return when every broker answers, within `start_seconds` unless
        another time is given.

        Raises ConfigError, KeyError or SpecError for an invalid spec, ClusterFailed if a node
        exits, NotReady (a TimeoutError) if one is late.
        """
        require_valid(self.spec)
        require_free_ports(self.spec)
        self.directory.create()
        try:
            if self.forks_nodes and can_fork():
                self._fork_server = self._new_fork_server()
            if self.proxy is not None:
                await self.proxy.start()
            for role, nodes in groupby(self.spec.nodes(), key=lambda node: node.role):
                if self._fork_server is not None:
                    await self._fork_server.prepare(self.spec, role)
                for node in nodes:
                    self._launch(node)
            await self.wait_until_ready(timeout_seconds=timeout_seconds or self.start_seconds)
        except ProxyFailed as failure:
            raise ClusterFailed(str(failure)) from failure
        except BaseException:
            await self.stop()
            raise

    async def wait_until_ready(self, *, timeout_seconds: float = 30.0) -> None:
        """Return when every broker is ready and sees every other one as alive.

        Raises NotReady, or ClusterFailed if a node exited on its own.
        """
        brokers = [self.spec.node(name) for name in self.spec.broker_names]
        readiness = Readiness(listeners_of(brokers, self._overrides), brokers=len(brokers))
        probe = asyncio.ensure_future(self._serving(readiness))
        done = asyncio.Event()
        probe.add_done_callback(lambda _: done.set())
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_seconds
        try:
            while not probe.done():
                self.require_running()
                if loop.time() > give_up_at:
                    raise NotReady(
                        f"the brokers did not answer within {timeout_seconds:g} s: "
                        f"{self._in_the_way(readiness)}"
                    )
                with suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await done.wait()
            probe.result()
        finally:
            probe.cancel()

    async def _serving(self, readiness: Readiness) -> None:
        while True:
            await readiness.wait(self.is_ready)
            if all(self.is_ready(name) for name in self.spec.broker_names):
                return
            await asyncio.sleep(REAL_RETRY_SECONDS)

    def _in_the_way(self, readiness: Readiness) -> str:
        """Describe why the cluster is not ready, with the last lines of that node's log."""
        late = [name for name in self.spec.broker_names if not self.is_ready(name)]
        reason = readiness.trouble or f"{', '.join(late)} is not unfenced by the controller"
        name = readiness.node if readiness.trouble or not late else late[0]
        return (
            f"{reason}; the log of {name} ({self.directory.human_log(name)}) ends with: "
            f"{self._last_log_line(name)}"
        )

    def require_running(self) -> None:
        """Raise ClusterFailed with the last output of the first node that is down without having
        been killed, or if the proxy has exited.
        """
        for name, node in self.nodes.items():
            if not node.is_running:
                raise ClusterFailed(
                    f"{name} went down with status {node.process.returncode}: "
                    f"{self._last_log_line(name)}"
                )
        if self.proxy is not None and not self.proxy.is_running:
            raise ClusterFailed(f"the proxy went down: {self._last_log_line(PROXY)}")

    def kill(self, name: str) -> None:
        """End a node by SIGKILL and reap it."""
        node = self.nodes.pop(name)
        node.process.kill()
        node.process.wait()

    def restart(self, name: str) -> None:
        """Start a node that is down again, with the same properties on the same disk; it is the
        next incarnation.
        """
        assert name not in self.nodes or not self.nodes[name].is_running, f"{name} is still running"
        self._launch(self.spec.node(name))

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a node that runs."""
        self.nodes[name].process.send_signal(number)

    async def kill_node(self, name: str) -> None:
        """`kill`, for callers that do not know how nodes run."""
        self.kill(name)

    async def restart_node(self, name: str) -> None:
        """`restart`, for callers that do not know how nodes run."""
        self.restart(name)

    async def stop_node(self, name: str, kill_after_seconds: float = STOP_SECONDS) -> None:
        """Stop a node cleanly, and kill it if that takes too long; it is down then."""
        await self._stop_all([self.nodes.pop(name)], kill_after_seconds)

    async def pause_node(self, name: str) -> None:
        """Pause a node."""
        self.signal(name, signal.SIGSTOP)

    async def resume_node(self, name: str) -> None:
        """Resume a node."""
        self.signal(name, signal.SIGCONT)

    async def answering(self, *, timeout_seconds: float = 30.0) -> None:
        """Return when every broker is ready and sees every other one as alive.

        Raises NotReady, or ClusterFailed if a node exited on its own.
        """
        await self.wait_until_ready(timeout_seconds=timeout_seconds)

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
        """Return whether a node has reported that it is ready: a broker when it is unfenced."""
        return name in self.nodes and self.nodes[name].is_ready

    def pid_of(self, name: str) -> int | None:
        """Return the process id of a node; None if it is down."""
        return self.pid(name) if name in self.nodes else None

    def is_down(self, name: str) -> bool:
        """Return whether a node was killed and not restarted."""
        return name not in self.nodes

    def has_ended(self, name: str) -> bool:
        """Return whether a node that was not killed has exited on its own."""
        return name in self.nodes and not self.nodes[name].is_running

    async def stop(self) -> None:
        """Stop brokers, then controllers, cleanly; a node that does not stop in time is killed."""
        for role_names in (
            self.spec.broker_names,
            self.spec.controller_names,
            self.spec.zookeeper_names,
        ):
            await self._stop_all(
                [self.nodes[name] for name in role_names if name in self.nodes], self.stop_seconds
            )
        self.nodes.clear()
        if self._fork_server is not None:
            self._fork_server.close()
        if self.proxy is not None:
            self.proxy.stop()

    async def _stop_all(self, nodes: list[NodeProcess], kill_after_seconds: float) -> None:
        for node in nodes:
            if node.is_running:
                node.process.send_signal(signal.SIGTERM)
                node.process.send_signal(
                    signal.SIGCONT
                )  # a paused process would not handle SIGTERM
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + kill_after_seconds
        while any(node.is_running for node in nodes) and loop.time() < give_up_at:
            await asyncio.sleep(POLL_SECONDS)
        for node in nodes:
            if node.is_running:
                node.process.kill()
            node.process.wait()

    def _launch(self, node: NodeSpec) -> None:
        path = self.directory.properties(node.name)
        write_private(
            path, properties_text(self._properties(node)).encode()
        )  # they may hold passwords
        events = self.directory.events / event_file_name(
            node.name, next_incarnation(self.directory.events, node.name)
        )
        with open(self.directory.human_log(node.name), "ab") as log:
            process = self._start_process(node, path, log)
        self.nodes[node.name] = NodeProcess(node, process, events)

    def _start_process(self, node: NodeSpec, path: Path, log: BinaryIO) -> RunningProcess:
        """Start the process of a node with a property file."""
        if self._fork_server is not None and not self._fork_server.is_running:
            self._fork_server.close()
            self._fork_server = self._new_fork_server()
        if self._fork_server is not None:
            try:
                return self._fork_server.fork(["node", str(path)], log.fileno())
            except OSError:  # whatever is wrong, the node itself will say it
                self._fork_server.close()
                self._fork_server = None
        return subprocess.Popen(
            self._command(node, path),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=_environment_of_nodes(),
            start_new_session=True,
        )

    def _new_fork_server(self) -> ForkServer:
        return ForkServer(
            _environment_of_nodes(),
            title=str(self.directory.properties("NODE")),
        )

    def _proxy_plan(self, *, follows_frames: bool, judges_requests: bool) -> ProxyPlan:
        """Return the configuration of the proxy in front of the nodes."""
        return proxy_plan(self.spec, follows_frames=follows_frames, judges_requests=judges_requests)

    def _properties(self, node: NodeSpec) -> dict[str, str]:
        """Return the properties that a node starts with now."""
        return {
            "log.dirs": str(self.directory.data(node.name)),
            **node.properties,
            **self._overrides.get(node.name, {}),
            "kraftsim.events.dir": str(self.directory.events),
            "kraftsim.run.started.ns": str(self.started_ns),
        }

    def _command(self, node: NodeSpec, path: Path) -> list[str]:
        """Return the command that runs a node with a property file."""
        return [sys.executable, "-m", "kraftsim", "node", str(path)]

    def _last_log_line(self, name: str) -> str:
        log = self.directory.human_log(name)
        lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
        return (
            lines[-1].removeprefix("Error: ")
            if lines
            else f"it wrote nothing to {self.directory.human_log(name)}"
        )


def _environment_of_nodes() -> dict[str, str]:
    return {
        key: value
        for key, value in for_child(*EXPORTS_FOR_NODES).items()
        if key != "PYTHONDONTWRITEBYTECODE"
    }
