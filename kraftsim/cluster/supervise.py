"""`kraftsim up` and `down`: a cluster in the foreground until it is interrupted, or in the
background until `down`.

What else serves the cluster in the same process (HTTP) is a `Service`, which the caller brings:
this package knows none.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from kraftsim.cluster.cluster_fault_driver import ClusterFaultDriver
from kraftsim.cluster.cluster_operations import ClusterOperations
from kraftsim.cluster.directories import (
    ClusterState,
    RunDirectory,
    is_locked,
    locked,
    new_secret,
    read_state,
    write_private,
    write_state,
)
from kraftsim.cluster.fault_control_server import FaultControlServer
from kraftsim.cluster.processes import STOP_SECONDS, ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed
from kraftsim.cluster.request_faults import RequestFaults
from kraftsim.cluster.spec import ClusterSpec, Role
from kraftsim.extensions import EXPORTS_FOR_NODES, for_child

WATCH_SECONDS = 0.25
Announce = Callable[[str], None]


class Service(Protocol):
    """What serves a cluster beside its nodes, in the process of the supervisor."""

    def bind(self) -> None:
        """Take the address, before any node starts. Raises ClusterFailed."""
        ...

    def described(self, state: ClusterState) -> ClusterState:
        """Return `cluster.json` with what clients of the service need."""
        ...

    def lines(self, state: ClusterState) -> Sequence[str]:
        """Return what is printed when the cluster is ready."""
        ...

    async def open(self, operations: ClusterOperations) -> None:
        """Serve the cluster, which is ready."""
        ...

    async def close(self) -> None:
        """Serve no more."""
        ...

    def supervisor(self, plan: Path, root: Path) -> list[str]:
        """Return the command of a supervisor in the background that has this service, too."""
        ...


def up(
    spec: ClusterSpec,
    data: Path,
    detach: bool,
    announce: Announce,
    service: Service | None = None,
) -> int:
    """Run a cluster; return 0 after a clean stop.

    In the foreground until SIGTERM or Ctrl-C. With `detach` a supervisor process does that in the
    background, and this returns once every broker answers. Raises ConfigError, KeyError, SpecError
    or ClusterFailed with one clear line.
    """
    directory = RunDirectory(data.absolute())
    if is_locked(directory.root) or any(
        is_locked(directory.data(name)) for name in spec.node_names
    ):
        state = read_state(directory)
        place = f" (bootstrap {state.bootstrap})" if state is not None else ""
        raise ClusterFailed(
            f"a cluster already runs on {data}{place}; stop it by: kraftsim down --data {data}"
        )
    if detach:
        return _detach(spec, directory, announce, service)
    with locked(directory.root):
        return asyncio.run(_foreground(spec, directory, announce, service))


def down(data: Path) -> int:
    """Stop the cluster that runs on a data directory and return how many nodes it had; 0 if none
    runs.

    Nodes whose supervisor was killed are stopped, too.
    """
    directory = RunDirectory(data.absolute())
    state = read_state(directory)
    if state is None:
        return 0
    running = [path.name for path in directory.data("").glob("*") if is_locked(path)]
    if is_locked(directory.root):
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(state.supervisor, signal.SIGTERM)
        asyncio.run(_wait_until_free([directory.root], 2 * STOP_SECONDS + 1))
    for role in (
        Role.BROKER,
        Role.CONTROLLER,
        Role.ZOOKEEPER,
    ):  # a broker that stops sends requests to its controller
        orphans = [
            name
            for name in state.nodes
            if name.startswith(role) and is_locked(directory.data(name))
        ]
        for name in orphans:
            with suppress(ProcessLookupError):
                os.kill(state.nodes[name], signal.SIGTERM)
                os.kill(
                    state.nodes[name], signal.SIGCONT
                )  # a paused process would not handle SIGTERM
        asyncio.run(_wait_until_free([directory.data(name) for name in orphans], STOP_SECONDS))
    directory.state_file.unlink(missing_ok=True)
    return len(running)


async def _foreground(
    spec: ClusterSpec, directory: RunDirectory, announce: Announce, service: Service | None
) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if service is not None:
        service.bind()
    cluster = ProcessCluster(spec, directory, judges_requests=spec.behind_proxy)
    secret = new_secret()
    driver = ClusterFaultDriver(cluster)
    request_faults = RequestFaults(cluster, driver, directory, trigger="the operator")
    operations = ClusterOperations(
        cluster, driver, request_faults, can_pause=True, on_change=lambda: write()
    )
    door = FaultControlServer(operations, secret)
    starting = asyncio.ensure_future(cluster.start())
    stopping = asyncio.ensure_future(stop.wait())
    port = 0

    def describe() -> ClusterState:
        nodes = {name: cluster.pid(name) for name in spec.node_names if not cluster.is_down(name)}
        state = ClusterState(
            supervisor=os.getpid(),
            bootstrap=spec.bootstrap,
            nodes=nodes,
            door=port,
            secret=secret,
        )
        return state if service is None else service.described(state)

    def write() -> None:
        write_state(directory, describe())

    # replaces the file of a killed supervisor: its process ids may belong to other processes now
    write()
    try:
        if not await _first_of(starting, stopping):
            starting.cancel()
            return 0
        port = await door.open()
        if service is not None:
            await service.open(operations)
        write()
        _announce_state(describe(), announce, service)
        while not stop.is_set():
            cluster.require_running()
            await asyncio.sleep(WATCH_SECONDS)
        return 0
    finally:
        stopping.cancel()
        if service is not None:
            await service.close()
        await door.close()
        request_faults.close()
        operations.close()
        await driver.close()
        await cluster.stop()
        directory.state_file.unlink(missing_ok=True)


def _announce_state(state: ClusterState, announce: Announce, service: Service | None) -> None:
    announce(f"bootstrap.servers={state.bootstrap}")
    for line in service.lines(state) if service is not None else ():
        announce(line)


async def _first_of(
    starting: "asyncio.Future[None]", stopping: "asyncio.Future[Literal[True]]"
) -> bool:
    """Return True once the cluster is up, False if it is interrupted before.

    Raises what went wrong while starting.
    """
    while not starting.done():
        if stopping.done():
            return False
        await asyncio.sleep(0.01)
    starting.result()
    return True


def _detach(
    spec: ClusterSpec, directory: RunDirectory, announce: Announce, service: Service | None
) -> int:
    directory.create()
    plan = directory.root / "config" / "cluster.json"
    write_private(plan, msgspec.json.encode(spec))  # its settings may hold passwords
    log = directory.human_log("supervisor")
    command = [sys.executable, "-m", "kraftsim.cluster.supervise", str(plan), str(directory.root)]
    with open(log, "wb") as output:
        supervisor = subprocess.Popen(
            service.supervisor(plan, directory.root) if service is not None else command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=for_child(*EXPORTS_FOR_NODES),
            start_new_session=True,
        )
    try:
        state = asyncio.run(_wait_for_state(directory, supervisor))
    except BaseException:  # Ctrl-C: the child has a session of its own, and would keep running
        supervisor.terminate()
        supervisor.wait()
        raise
    if state is None:
        if supervisor.wait() == 0:
            raise ClusterFailed("the cluster was stopped before it was ready")
        log_lines = log.read_text(errors="replace").strip().splitlines()
        raise ClusterFailed(
            log_lines[-1].removeprefix("Error: ")
            if log_lines
            else f"the supervisor ended with status {supervisor.returncode}"
        )
    _announce_state(state, announce, service)
    return 0


async def _wait_for_state(
    directory: RunDirectory, supervisor: subprocess.Popen[bytes]
) -> ClusterState | None:
    while supervisor.poll() is None:
        state = read_state(directory)
        if state is not None and state.supervisor == supervisor.pid and state.door:
            return state
        await asyncio.sleep(0.02)
    return None


async def _wait_until_free(directories: Sequence[Path], seconds: float) -> None:
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + seconds
    while any(is_locked(directory) for directory in directories):
        if loop.time() > give_up_at:
            raise ClusterFailed(
                f"the cluster on {directories[0]} did not stop within {seconds:g} s"
            )
        await asyncio.sleep(0.02)


def supervise(plan: Path, root: Path, service: Service | None = None) -> int:
    """Run a cluster in the background process that `up` with `detach` started; return the exit
    code.
    """
    spec = msgspec.json.decode(plan.read_bytes(), type=ClusterSpec)
    try:
        return up(spec, root, False, print, service)
    except (ValueError, RuntimeError, KeyError, OSError) as error:
        print(error, file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(supervise(Path(sys.argv[1]), Path(sys.argv[2])))
