"""Removing a fault shifts no draw elsewhere: until it would have fired, every node does the same to
the nanosecond.

Shrinking depends on it. Random numbers are keyed by host, incarnation and purpose, and those of a
fault by its definition.
"""

from dataclasses import replace

import pytest

from kraftsim.cluster.scenario import Mode, scenario
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.virtual import set_up
from kraftsim.lab.faults.fault import Fault
from kraftsim.world.interface import stream

NEVER = 1 << 62
Logs = dict[tuple[str, int], list[tuple[int, str]]]


def schedule(name: str, seed: int, count: int) -> tuple[Fault, ...]:
    """Draw more faults than a run usually has, from several draws of the scenario's faults and of
    the random faults.
    """
    drawn: list[Fault] = []
    for number in range(100):
        drawn += RunRequest(
            scenario=scenario(name), mode=Mode.SIM, seed=seed * 1000 + number
        ).schedule()
        if len(drawn) >= count:
            break
    stream(seed, "test", 1, "order").shuffle(drawn)
    return tuple(drawn[:count])


def history(request: RunRequest) -> tuple[Logs, list[int | None]]:
    """Return all events of nodes and clients, and the time at which each fault fired."""
    with request.simulation() as simulation:
        run = set_up(request, simulation)
        run.run(30.0)
        logs = {
            (log.node, log.incarnation): [(t_ns, str(event)) for t_ns, _, event in log.entries]
            for log in simulation.book.logs()
        }
        return {key: entries for key, entries in logs.items() if key[0] != "harness"}, [
            each.fired_at_ns for each in run.schedule.injections
        ]


def parting_ns(a: Logs, b: Logs) -> int:
    """Return the time of the first event that is in only one of them."""
    earliest = NEVER
    for key in a.keys() | b.keys():
        one, other = a.get(key, []), b.get(key, [])
        place = next(
            (n for n, (x, y) in enumerate(zip(one, other, strict=False)) if x != y),
            min(len(one), len(other)),
        )
        earliest = min(
            [earliest, *(entries[place][0] for entries in (one, other) if place < len(entries))]
        )
    return earliest


@pytest.mark.parametrize(
    "name, seed",
    [
        pytest.param("quorum_under_faults", 1, marks=pytest.mark.interop),  # long
        ("quorum_under_faults", 2),
    ],
)
def test_removed_fault_changes_nothing_before_it_would_have_fired(name: str, seed: int) -> None:
    """One that never fired changes nothing at all."""
    faults = schedule(name, seed, 30)
    request = RunRequest(
        scenario=scenario(name),
        mode=Mode.SIM,
        seed=seed,
        faults=faults,
        workload={"ids_per_requester": 200, "work_ms": 5000},
    )
    with_all, cluster = history(request)
    idle = next(place for place, at_ns in enumerate(cluster) if at_ns is None)
    late = max(range(len(faults)), key=lambda place: cluster[place] or 0)
    early = min(range(len(faults)), key=lambda place: cluster[place] or NEVER)
    for place in {idle, late, early}:
        without, _ = history(replace(request, faults=faults[:place] + faults[place + 1 :]))
        assert parting_ns(with_all, without) >= (cluster[place] or NEVER), faults[place]
