"""Runs the scenario with both variants once, and counts from its event log what each of them
opened, sent and left behind.

Source: KIP-447, "the number of producers grows linearly with the number of tasks".
"""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kraftsim.clients.events_transactions import CopiesCounted
from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.events.event import Event
from kraftsim.lab.explore.over_sockets import read_events
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.run import run_request
from kraftsim.partitions.events import BatchAppended
from kraftsim.transactions.events import TransactionStateChanged

SCENARIO = "producer_per_task_vs_per_thread"
RECORDS_PER_PARTITION = 2
PHASE_MS = 100
"""No fault is injected, so nothing has to be waited for."""
APPLICATIONS = {"task": "a producer per task", "thread": "a producer per thread"}
"""The prefixes of the topics and transactional ids of the two variants in the scenario."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One line of the table.

    `states`: the number of producers in the producer state of all partitions; `ids`: at
    coordinators.

    Times are virtual, of the simulated network and disks; `cpu_seconds` are of the run with both.
    """

    variant: str
    input_partitions: int
    replicas: int
    threads: int
    producers: int
    connections: int
    transactions: int
    records: int
    markers: int
    states: int
    ids: int
    virtual_ms: int
    cpu_seconds: float

    def as_row(self) -> dict[str, int | float | str]:
        """Return it as plain data."""
        return asdict(self)


def count(partitions: int, replicas: int = 3, seed: int = 1) -> list[Counted]:
    """Run once on the default network and disks, and return a line for each variant.

    Raises AssertionError if the scenario failed.
    """
    request = RunRequest(
        scenario=replace(scenario(SCENARIO), fault_space=None),
        mode=Mode.SIM,
        seed=seed,
        workload={
            "partitions": partitions,
            "replicas": replicas,
            "records_per_writer": RECORDS_PER_PARTITION * partitions,
            "work_ms": PHASE_MS,
        },
    )
    began = time.process_time()
    with tempfile.TemporaryDirectory() as directory:
        result = run_request(request, Path(directory) / "run")
        assert result.outcome == "ok", "\n".join(result.lines())
        events = [event for _, event in read_events(Path(directory) / "run" / "events")]
    cpu_seconds = round(time.process_time() - began, 1)
    owners = {
        event.producer_id: _application(event.transactional_id)
        for event in events
        if isinstance(event, TransactionStateChanged)
    }
    states, ids, markers = _left_behind(owners, events)
    return [
        Counted(
            variant=event.variant,
            input_partitions=event.input_partitions,
            replicas=replicas,
            threads=event.threads,
            producers=event.producers,
            connections=event.connections,
            transactions=event.transactions,
            records=event.records,
            markers=markers[event.variant],
            states=len(states[event.variant]),
            ids=len(ids[event.variant]),
            virtual_ms=event.virtual_ms,
            cpu_seconds=cpu_seconds,
        )
        for event in events
        if isinstance(event, CopiesCounted)
    ]


def _left_behind(
    owners: dict[int, str], events: Sequence[Event]
) -> tuple[dict[str, set[tuple[str, int, int]]], dict[str, set[str]], dict[str, int]]:
    """Return for each variant its entries in producer states, its transactional ids, and the
    markers of its transactions.
    """
    states: dict[str, set[tuple[str, int, int]]] = {
        variant: set() for variant in APPLICATIONS.values()
    }
    ids: dict[str, set[str]] = {variant: set() for variant in APPLICATIONS.values()}
    markers = dict.fromkeys(APPLICATIONS.values(), 0)
    for event in events:
        if isinstance(event, BatchAppended) and event.producer_id in owners:
            states[owners[event.producer_id]].add((event.topic, event.partition, event.producer_id))
        elif isinstance(event, TransactionStateChanged):
            variant = _application(event.transactional_id)
            ids[variant].add(event.transactional_id)
            if event.state.startswith("Prepare"):
                markers[variant] += event.partitions.count(",") + 1
    return states, ids, markers


def _application(transactional_id: str) -> str:
    return APPLICATIONS[transactional_id.partition("-")[0]]
