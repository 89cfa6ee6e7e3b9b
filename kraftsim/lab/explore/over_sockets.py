"""Runs a scenario over sockets and real time, with the nodes as processes or embedded, and checks
it from its event files.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from kraftsim.cluster.apache_kafka.cluster import ApacheCluster
from kraftsim.cluster.apache_kafka.target import ApacheTarget
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
    wants_proxy,
)
from kraftsim.cluster.spec import ClusterSpec
from kraftsim.events.catalogue import event_class
from kraftsim.events.event import ENVELOPE_FIELDS, Event
from kraftsim.events.runs import FaultInjected, FaultTookEffect, RunEnded, RunStarted
from kraftsim.invariants.invariant import Envelope, Oracle
from kraftsim.invariants.verdict import Verdict
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


def check_run(entries: Sequence[Noted], must_exercise: Sequence[str]) -> tuple[Verdict, ...]:
    """Return the result of every invariant over a finished run."""
    oracle = Oracle(must_exercise=must_exercise)
    for envelope, event in entries:
        oracle.examine(envelope, event)
    return oracle.finish()


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
    on: ApacheTarget | None = None,
) -> RunResult:
    """Run the scenario on free ports of this machine, with own programs beside it; `on` a release
    of Apache Kafka instead of kraftsim's own nodes.
    """
    schedule = request.schedule()
    injected = [fault for fault in schedule if can_inject(fault, request.mode)]
    wanted = request.spec(port=ANY_PORT)
    spec = request.spec(port=free_port_range(wanted.brokers, controllers=wanted.controllers))
    spec = replace(spec, behind_proxy=wants_proxy(injected, request.mode))
    directory.create()
    cluster = _cluster(request, spec, directory, injected, on)
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
    except (ScenarioFailed, ClusterFailed, TimeoutError) as failure:
        trouble = f"{type(failure).__name__}: {failure}"
    seconds = stage.now_seconds()
    stage.emit(RunEnded(outcome="ok" if trouble is None else "failed"))
    stage.close()
    emit_final_logs(spec, directory, cluster.started_ns)
    entries = read_events(directory.events)
    ending = Ending(
        verdicts=check_run(entries, request.scenario.must_exercise),
        trouble=trouble,
        faults=_counts(schedule, entries),
        finished=[str(fault) for fault in injected],
        left_out=[str(fault) for fault in schedule if fault not in injected],
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
    on: ApacheTarget | None,
) -> ProcessCluster | EmbeddedCluster:
    watches = follows_frames(injected)
    if on is not None:
        return ApacheCluster(spec, directory, on, follows_frames=watches)
    kind = EmbeddedCluster if request.mode is Mode.EMBEDDED else ProcessCluster
    return kind(spec, directory, follows_frames=watches)


async def _run(
    request: RunRequest,
    cluster: ProcessCluster | EmbeddedCluster,
    stage: SocketEnvironment,
    programs: ClientPrograms,
) -> None:
    async with asyncio.timeout(request.scenario.limit_seconds), cluster:
        try:
            async with programs:
                await request.scenario.run(stage)
        finally:
            await stage.leave()


def emit_final_logs(spec: ClusterSpec, directory: RunDirectory, started_ns: int) -> None:
    """Write the content of the segments on the disks as events of a separate log."""
    world = real_world(
        run=spec.run,
        node=FINAL,
        incarnation=1,
        data_dir=directory.data(FINAL),
        events_dir=directory.events,
        seed=spec.seed,
        started_ns=started_ns,
    )
    for event in [
        *final_events(directory, spec.broker_names),
        *final_metadata(directory, spec.controller_names),
    ]:
        world.emit(event)
    world.close()


def final_events(directory: RunDirectory, brokers: Sequence[str]) -> list[Event]:
    """Return the content of the brokers' segments."""
    files = {
        f"{broker}/{path.relative_to(directory.data(broker))}": path.read_bytes()
        for broker in brokers
        for path in sorted(directory.data(broker).glob("*/*.log"))
    }
    return list(final_log_events(files))


def final_metadata(directory: RunDirectory, controllers: Sequence[str]) -> list[Event]:
    """Return the content of the controllers' metadata logs and snapshots."""
    files = {
        f"{controller}/{path.relative_to(directory.data(controller))}": path.read_bytes()
        for controller in controllers
        for path in sorted(directory.data(controller).glob("__cluster_metadata-0/*"))
    }
    return list(final_metadata_events(files))


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
