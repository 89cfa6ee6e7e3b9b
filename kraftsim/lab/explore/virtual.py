"""Runs a scenario in virtual time: invariants are checked during the run, and the same seed gives
the same event log, byte for byte.
"""

import hashlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass

from kraftsim.cluster.administration import TopicFailed
from kraftsim.cluster.directories import RunDirectory
from kraftsim.cluster.scenario import ScenarioEnvironment, ScenarioFailed
from kraftsim.cluster.simulation import SimulatedCluster, SimulatedEnvironment
from kraftsim.events.runs import ClientErrorsChecked, RunEnded, RunStarted
from kraftsim.invariants.invariant import Oracle
from kraftsim.invariants.verdict import Verdict, Violation, verdict_of
from kraftsim.lab.explore.conclude import Ending, conclude
from kraftsim.lab.explore.fork import Fork
from kraftsim.lab.explore.record import RunResult
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.faults.arm import FaultSchedule
from kraftsim.lab.faults.coverage import ROLES, role_of_sender
from kraftsim.lab.faults.fault_space import CLIENTS
from kraftsim.lab.faults.rules_request_faults import api_name
from kraftsim.metadata.rules_image import final_metadata_events
from kraftsim.partitions.rules_final_log import final_log_events
from kraftsim.server.events_connections import FrameSent
from kraftsim.tiered_storage.final_segments import final_remote_events
from kraftsim.world.simulated import Simulation, SimulationError, SimulationStopped, collected_after
from kraftsim.world.simulated.world import Observer

PORT = 9092
FINAL = "final"
BELIEF = "nodes-believe-the-truth"
"""The invariant that is violated when an assertion fails in a node, or in the reader of its
files.
"""
NANOSECONDS = 1e9
STARTED = "virtual time 0"
STOP_SECONDS = 60.0
STEPS_PER_SECOND = 5000
"""Callbacks for each second of a scenario's limit of virtual time; a run that needs more does not
end. Scenarios have about 30,000 callbacks in all, with a limit of 600 s or more.
"""


@dataclass(kw_only=True, slots=True)
class VirtualRun:
    """A run in progress in a simulation of its own."""

    request: RunRequest
    simulation: Simulation
    cluster: SimulatedCluster
    schedule: FaultSchedule
    stage: SimulatedEnvironment

    def run(self, limit_seconds: float) -> str | None:
        """Start the nodes and run the scenario; return what aborted the run, or None."""
        self.simulation.log("harness", 1).emit(
            RunStarted(
                scenario=self.request.scenario.name,
                mode=self.request.mode.value,
                seed=self.request.seed,
            )
        )
        if not self.request.scenario.reference:
            self.simulation.log("harness", 1).emit(
                ClientErrorsChecked(
                    scenario=self.request.scenario.name,
                    provoked_errors=",".join(
                        str(code) for code in self.request.scenario.provoked_errors
                    ),
                )
            )
            steps_max = int(self.request.scenario.limit_seconds * STEPS_PER_SECOND)
            self.simulation.loop.steps_max = steps_max
        self.cluster.start()
        return _run(self.request, self.simulation, self.stage, limit_seconds)

    def finish(self) -> None:
        """Stop the running nodes cleanly, and emit the content of the disks then."""
        with suppress(SimulationError, TimeoutError):
            self.simulation.run_until(self.cluster.stop(), limit_s=STOP_SECONDS)
        self.emit_disks()

    def emit_disks(self) -> None:
        """Emit the content of the disks now.

        Content that cannot be replayed is a bug in the nodes that wrote it.
        """
        segments, stores = self.cluster.segment_files(), self.simulation.stores.values()
        try:
            final = [
                *final_log_events(segments),
                *final_metadata_events(self.cluster.metadata_files()),
            ]
            if stores:
                final += final_remote_events(
                    segments, [key for store in stores for key in store.contents]
                )
        except AssertionError as error:
            self.simulation.violation(
                BELIEF, f"the content of the disks cannot be replayed: {error}"
            )
            return
        with suppress(SimulationStopped):
            for event in final:
                self.simulation.log(FINAL, 1).emit(event)


def set_up(request: RunRequest, simulation: Simulation) -> VirtualRun:
    """Create a run's cluster and faults in a simulation; nothing happens before `run`."""
    cluster = SimulatedCluster(request.spec(port=PORT), simulation)
    schedule = FaultSchedule(simulation, request.schedule())
    stage = SimulatedEnvironment(cluster, schedule, request.work())
    return VirtualRun(
        request=request, simulation=simulation, cluster=cluster, schedule=schedule, stage=stage
    )


def run_in_virtual_time(
    request: RunRequest,
    directory: RunDirectory | None,
    observer: Observer | None = None,
    fork: Fork | None = None,
) -> RunResult:
    """Run the scenario in a simulation of its own; `observer` gets every event.

    With a `fork`, the run goes on with another schedule in each of its child processes, and returns
    there; in this process it raises BranchesRun.
    """
    with collected_after():
        return _played(request, directory, observer, fork)


def _played(
    request: RunRequest,
    directory: RunDirectory | None,
    observer: Observer | None,
    fork: Fork | None,
) -> RunResult:
    spec = request.spec(port=PORT)
    oracle = Oracle(must_exercise=request.scenario.must_exercise)
    with request.simulation() as simulation:
        _watch(simulation, oracle)
        if observer is not None:
            simulation.observe(observer)
        run = set_up(request, simulation)
        schedule, cluster = run.schedule, run.cluster
        if fork is not None:
            fork.prepare(simulation, schedule)
        trouble = run.run(request.scenario.limit_seconds)
        if fork is not None:
            request = fork.chosen()
        if trouble is None or not simulation.violations:
            run.finish()
        else:
            run.emit_disks()
        simulation.log("harness", 1).emit(RunEnded(outcome=_result_name(simulation, trouble)))
        content = simulation.event_bytes()
        ending = Ending(
            verdicts=_verdicts(simulation, oracle),
            trouble=trouble,
            faults=schedule.counts(),
            exercised=schedule.exercised(),
            exchanged=_exchanged(simulation),
            finished=[str(fault) for fault in schedule.faults],
            left_out=(),
            event_count=content.count(b"\n"),
            seconds=simulation.now_ns / NANOSECONDS,
            started=STARTED,
            events_sha256=hashlib.sha256(content).hexdigest(),
        )
        if directory is not None:
            directory.create()
            simulation.write_events(directory.events)
            cluster.write_disks(directory)
        simulation.book.forget()
        return conclude(request, spec, ending, directory)


def _watch(simulation: Simulation, oracle: Oracle) -> None:
    def report(violation: Violation) -> None:
        simulation.violation(violation.invariant, violation.message, violation.witnesses)

    for kind in oracle.kinds:
        simulation.observe(oracle.examiner(kind, report), (kind,))


def _verdicts(simulation: Simulation, oracle: Oracle) -> tuple[Verdict, ...]:
    """Return the results of the invariants, and failed assertions of nodes: those are violations
    like any other.
    """
    verdicts = oracle.finish()
    known = [verdict.invariant for verdict in verdicts]
    own: dict[str, list[Violation]] = {}
    for each in simulation.violations:
        if each.invariant not in known:
            own.setdefault(each.invariant, []).append(each)
    return (
        *verdicts,
        *(
            verdict_of(
                name, examined=len(found), violation_count=len(found), violations=tuple(found)
            )
            for name, found in own.items()
        ),
    )


def _run(
    request: RunRequest, simulation: Simulation, stage: ScenarioEnvironment, limit_seconds: float
) -> str | None:
    """Return what aborted the run, or None."""
    try:
        simulation.run_until(_run_scenario(request, stage), limit_s=limit_seconds)
    except SimulationStopped as stopped:
        return None if simulation.violations else str(stopped)
    except (SimulationError, ScenarioFailed, TopicFailed, TimeoutError) as failure:
        return f"{type(failure).__name__}: {failure}"
    return None


def _result_name(simulation: Simulation, trouble: str | None) -> str:
    if simulation.violations:
        return "violated"
    return "ok" if trouble is None else "failed"


def _exchanged(simulation: Simulation) -> dict[str, int]:
    """Count the requests that were sent, by API and role of the client, sorted."""
    counts: Counter[tuple[int, str]] = Counter()
    for log in simulation.book.logs():
        role = role_of_sender(log.node)
        sender = role if role in ROLES else CLIENTS
        counts.update(
            [
                (event.api_key, sender)
                for _, _, event in log.entries
                if type(event) is FrameSent and not event.is_response
            ]
        )
    return {f"{api_name(key)} {role}": count for (key, role), count in sorted(counts.items())}


async def _run_scenario(request: RunRequest, stage: ScenarioEnvironment) -> None:
    await request.scenario.run(stage)
