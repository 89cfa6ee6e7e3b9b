"""Runs a scenario over sockets and real time, with the nodes as processes or embedded, and checks
it from its event files.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from kraftsim.cluster.apache_kafka.cluster import ApacheCluster
from kraftsim.cluster.apache_kafka.disk_events import disk_events
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.embedded import EmbeddedCluster
from kraftsim.cluster.ports import free_port_range
from kraftsim.cluster.processes import ProcessCluster
from kraftsim.cluster.readiness import ClusterFailed
from kraftsim.cluster.scenario import Mode, ScenarioFailed
from kraftsim.cluster.socket_environment import (
    SocketEnvironment,
    can_inject,
    follows_frames,
    judges_requests,
    obstacle,
    wants_proxy,
)
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.catalogue import event_class
from kraftsim.events.event import ENVELOPE_FIELDS, Event
from kraftsim.events.runs import FaultInjected, FaultTookEffect, RunEnded, RunStarted
from kraftsim.invariants.invariant import INVARIANTS, Envelope, Oracle
from kraftsim.invariants.verdict import Verdict
from kraftsim.invariants.without_nodes import not_evaluated, verdict_not_evaluated
from kraftsim.lab.explore.client_programs import ClientPrograms
from kraftsim.lab.explore.conclude import Ending, FaultCounts, conclude
from kraftsim.lab.explore.record import RunResult, wall_text
from kraftsim.lab.explore.request import ANY_PORT, RunRequest
from kraftsim.lab.faults.fault import Fault
from kraftsim.metadata.rules_image import final_metadata_events
from kraftsim.partitions.rules_final_log import final_log_events
from kraftsim.world.real.world import RealClock, real_world

# --------------------------------------------------------------------------------------------------
# Feeds a run's events to the invariants, while it happens (simulation) or afterwards from the files
# (the other modes).

Noted = tuple[Envelope, Event]


def read_events(events_dir: Path) -> list[Noted]:
    """Return every event of a run in order of time; a torn last line and lines of unknown kinds are
    skipped.
    """
    entries: list[Noted] = []
    for path in sorted(events_dir.glob("*.jsonl")):
        entries += _events_of(path)
    entries.sort(key=lambda each: (each[0].t_ns, each[0].node, each[0].incarnation, each[0].n))
    return entries


def check_run(
    entries: Sequence[Noted],
    must_exercise: Sequence[str],
    left_undecided: Mapping[str, str] | None = None,
) -> tuple[Verdict, ...]:
    """Return the result of every invariant over a finished run; those of `left_undecided`, with
    the reasons, are not evaluated.
    """
    undecided = left_undecided or {}
    evaluated = [each for each in INVARIANTS.all() if each.name not in undecided]
    oracle = Oracle(
        must_exercise=[name for name in must_exercise if name not in undecided],
        invariants=evaluated,
    )
    for envelope, event in entries:
        oracle.examine(envelope, event)
    others = [
        verdict_not_evaluated(INVARIANTS.named(name), reason) for name, reason in undecided.items()
    ]
    return tuple(sorted((*oracle.finish(), *others), key=lambda verdict: verdict.invariant))


def undecided(unread: str) -> dict[str, str]:
    """Return the invariants that a run without events of nodes does not decide, with the reasons;
    `unread` is why the disks could not be read, if so.
    """
    invariants = INVARIANTS.all()
    return {
        **{each.name: unread for each in invariants if unread and each.decides_without_nodes},
        **not_evaluated(invariants),
    }


def _events_of(path: Path) -> Iterator[Noted]:
    for line in path.read_bytes().split(b"\n"):
        try:
            fields: dict[str, Any] = msgspec.json.decode(line) if line else {}
        except msgspec.DecodeError:
            continue
        kind = event_class(fields.get("kind", ""))
        if kind is not None:
            envelope = Envelope(
                node=fields["node"],
                incarnation=fields["incarnation"],
                n=fields["n"],
                t_ns=fields["t_ns"],
            )
            own = {name: value for name, value in fields.items() if name not in ENVELOPE_FIELDS}
            yield envelope, msgspec.convert(own, kind, str_keys=True)


FINAL = "final"
"""The log, beside those of the nodes, with the final content of the disks."""


def run_over_sockets(
    request: RunRequest,
    directory: RunDirectory,
    *,
    clients: Sequence[str] = (),
    restarts_clients: bool = False,
) -> RunResult:
    """Run the scenario on free ports of this machine, with own programs beside it.

    Raises ApacheKafkaMissing if Apache Kafka is to run, and cannot.
    """
    if request.on is not None:
        request.on.jars()
    schedule = request.schedule()
    injected = [fault for fault in schedule if can_inject(fault, request.mode)]
    wanted = request.spec(port=ANY_PORT)
    spec = request.spec(port=free_port_range(wanted.brokers, controllers=wanted.controllers))
    spec = replace(spec, behind_proxy=wants_proxy(injected, request.mode))
    directory.create()
    cluster = _cluster(request, spec, directory, injected)
    stage = SocketEnvironment(cluster, request.mode, directory, injected, request.work())
    programs = ClientPrograms(
        clients, bootstrap=spec.bootstrap, root=directory.root, restarts=restarts_clients
    )
    started = wall_text(RealClock(0))
    trouble: str | None = None
    try:
        stage.emit(
            RunStarted(scenario=request.scenario.name, mode=request.mode.value, seed=request.seed)
        )
        asyncio.run(_run(request, cluster, stage, programs))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None  # by SIGTERM: the nodes were stopped
    except (ScenarioFailed, ClusterFailed, TimeoutError) as failure:
        trouble = f"{type(failure).__name__}: {failure}"
    seconds = stage.now_seconds()
    stage.emit(RunEnded(outcome="ok" if trouble is None else "failed"))
    stage.close()
    unread = emit_final_logs(spec, directory, cluster.started_ns, of_nodes=request.on is None)
    entries = read_events(directory.events)
    left_undecided = {} if request.on is None else undecided(unread)
    ending = Ending(
        verdicts=check_run(entries, request.scenario.must_exercise, left_undecided),
        trouble=trouble,
        faults=_counts(schedule, entries),
        finished=[str(fault) for fault in injected],
        left_out=[str(fault) for fault in schedule if fault not in injected],
        obstacles=[
            f"{fault}: {why}" for fault in schedule if (why := obstacle(fault, request.mode))
        ],
        not_evaluated=left_undecided,
        settings_left_out=dict(cluster.left_out) if isinstance(cluster, ApacheCluster) else {},
        event_count=len(entries),
        seconds=seconds,
        started=started,
    )
    return structs.replace(conclude(request, spec, ending, directory), clients=programs.ends)


def _cluster(
    request: RunRequest,
    spec: ClusterSpec,
    directory: RunDirectory,
    injected: Sequence[Fault],
) -> ProcessCluster | EmbeddedCluster:
    watches = follows_frames(injected)
    if request.mode is Mode.EMBEDDED:
        return EmbeddedCluster(spec, directory, follows_frames=watches)
    judges = judges_requests(injected, request.mode)
    if request.on is not None:
        return ApacheCluster(
            spec, directory, request.on, follows_frames=watches, judges_requests=judges
        )
    return ProcessCluster(spec, directory, follows_frames=watches, judges_requests=judges)


async def _run(
    request: RunRequest,
    cluster: ProcessCluster | EmbeddedCluster,
    stage: SocketEnvironment,
    programs: ClientPrograms,
) -> None:
    _end_with_nodes()
    async with asyncio.timeout(request.scenario.limit_seconds), cluster:
        try:
            async with programs:
                await _while_nodes_run(request.scenario.run(stage), cluster)
        finally:
            await stage.leave()


def _end_with_nodes() -> None:
    """Let SIGTERM end the run as Ctrl-C does: a process that dies at once would leave its nodes
    behind.
    """
    task = asyncio.current_task()
    assert task is not None, "the run is a task"
    if sys.platform != "win32" and threading.current_thread() is threading.main_thread():
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


async def _while_nodes_run(
    work: Awaitable[None], cluster: ProcessCluster | EmbeddedCluster
) -> None:
    """Await the scenario.

    Raises ClusterFailed if a node of Apache Kafka ends on its own and is not restarted: clients
    would retry until the scenario's time is over.
    """
    if not isinstance(cluster, ApacheCluster):
        await work
        return
    scenario = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(cluster.until_node_fails())
    watch.add_done_callback(lambda _: scenario.cancel())
    try:
        await scenario
    except asyncio.CancelledError:
        if watch.done() and not watch.cancelled():
            watch.result()
        raise
    finally:
        watch.cancel()


def emit_final_logs(
    spec: ClusterSpec, directory: RunDirectory, started_ns: int, *, of_nodes: bool = True
) -> str:
    """Write the content of the segments on the disks as events of a separate log; if no node has
    emitted events (`of_nodes`), also what else the disks say of the run.

    Return why that could not be read; empty if it was, or was not wanted.
    """
    world = real_world(
        run=spec.run,
        node=FINAL,
        incarnation=1,
        data_dir=directory.data(FINAL),
        events_dir=directory.events,
        seed=spec.seed,
        started_ns=started_ns,
    )
    unread = ""
    logs = final_events(directory, spec.broker_names)
    try:
        said = [] if of_nodes else events_of_disks(spec, directory, logs)
    except ValueError as malformed:
        said, unread = [], f"the disks cannot be read: {malformed}"
    for event in [*said, *logs, *final_metadata(directory, spec.controller_names, of_nodes)]:
        world.emit(event)
    world.close()
    return unread


def events_of_disks(
    spec: ClusterSpec, directory: RunDirectory, logs: Sequence[Event]
) -> list[Event]:
    """Return what the disks say of the run beside the content of the logs."""
    return list(
        disk_events(
            {name: directory.data(name) for name in spec.broker_names},
            _metadata_files(directory, spec.controller_names),
            logs,
        )
    )


def final_events(directory: RunDirectory, brokers: Sequence[str]) -> list[Event]:
    """Return the content of the brokers' segments."""
    files = {
        f"{broker}/{path.relative_to(directory.data(broker))}": path.read_bytes()
        for broker in brokers
        for path in sorted(directory.data(broker).glob("*/*.log"))
    }
    return list(final_log_events(files))


def final_metadata(
    directory: RunDirectory, controllers: Sequence[str], with_timestamps: bool = True
) -> list[Event]:
    """Return the content of the controllers' metadata logs and snapshots."""
    files = _metadata_files(directory, controllers)
    return list(final_metadata_events(files, with_timestamps=with_timestamps))


def _metadata_files(directory: RunDirectory, controllers: Sequence[str]) -> dict[str, bytes]:
    return {
        f"{controller}/{path.relative_to(directory.data(controller))}": path.read_bytes()
        for controller in controllers
        for path in sorted(directory.data(controller).glob("__cluster_metadata-0/*"))
    }


def _counts(schedule: Sequence[Fault], entries: Sequence[Noted]) -> FaultCounts:
    """Return armed, fired and effective counts by kind.

    Faults of the schedule that this mode does not support are armed and never fire.
    """
    fired = [event.fault for _, event in entries if isinstance(event, FaultInjected)]
    effective = [event.fault for _, event in entries if isinstance(event, FaultTookEffect)]
    kinds = sorted({fault.kind for fault in schedule})
    return {
        kind: (
            sum(fault.kind == kind for fault in schedule),
            fired.count(kind),
            effective.count(kind),
        )
        for kind in kinds
    }
