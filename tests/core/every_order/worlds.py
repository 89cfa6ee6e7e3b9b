"""What `make every-order` searches, within which bounds, and the bugs that it must find."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

from kraftsim.lab.bugs.bug import bug
from kraftsim.releases.release import release
from kraftsim.server.parts import Parts
from tests.core.every_order.allocation import Allocation
from tests.core.every_order.election import Election
from tests.core.every_order.one_producer import OneProducer
from tests.core.every_order.search import World
from tests.core.every_order.transactions import Endings
from tests.core.every_order.two_phase_commit import BOUNDS, TwoPhaseCommitWorld

LAST_GIVEN_EPOCH = 32766
Bounds = Mapping[str, int | str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A bug, what it violates, and bounds within which the search reaches it."""

    message: str
    bounds: Bounds = field(default_factory=dict)


FOUND: dict[str, Found] = {
    "KAFKA-10080": Found(message="CompleteCommit after CompleteCommit", bounds={"transactions": 1}),
    "KAFKA-16352": Found(message="nothing goes on", bounds={"transactions": 1, "failovers": 1}),
    "KAFKA-17754": Found(
        message="no one has fenced it|is committed in one partition|has the answer",
        bounds={"transactions": 2, "loses": "request", "aborts": 0},
    ),
    "KAFKA-19999": Found(message="nothing goes on", bounds={"transactions": 1, "loses": "markers"}),
    "KAFKA-20090": Found(
        message="can never be aborted",
        bounds={
            "transactions": 2,
            "loses": "request",
            "timeouts": 1,
            "first_epoch": LAST_GIVEN_EPOCH,
        },
    ),
}


def parts_of(name: str, *bugs: str) -> Parts:
    """Return the parts of a release, with bugs."""
    parts = Parts.for_release(release(name))
    for each in bugs:
        parts = bug(each).into(parts)
    return parts


def one_producer(parts: Parts, bounds: Bounds) -> Callable[[], World]:
    """Return what makes the world of one producer."""
    # arg-type: numbers and strings go to parameters of both types
    return lambda: OneProducer(parts, **bounds)  # type: ignore[arg-type]


def _transactions() -> dict[str, Callable[[], World]]:
    found = {}
    for version in (1, 2):
        name = f"a transaction of version {version}"
        for loses in ("request", "produce", "markers"):
            bounds: Bounds = {"version": version, "transactions": 1, "loses": loses}
            # With version 1 a late EndTxn ends the next transaction, whatever the coordinator does.
            found[f"{name}, a lost {loses} message and a failover"] = one_producer(
                parts_of("4.4"), {**bounds, "failovers": 1}
            )
    for loses in ("request", "markers"):
        found[f"two transactions of version 2, a lost {loses} message"] = one_producer(
            parts_of("4.4"), {"transactions": 2, "loses": loses}
        )
    found["two transactions of version 2, a failover"] = one_producer(
        parts_of("4.4"), {"transactions": 2, "failovers": 1, "aborts": 0}
    )
    found["the last epoch of version 2, a time-out and a lost request message"] = one_producer(
        parts_of("4.4"), FOUND["KAFKA-20090"].bounds
    )
    return found


WORLDS: dict[str, Callable[[], World]] = {
    **_transactions(),
    "markers of a transaction, with moved leaders": lambda: Endings(transactions=1, troubles=1),
    "markers of a transaction of version 2, with moved leaders": lambda: Endings(
        version=2, transactions=1, troubles=1
    ),
    **{
        # arg-type: mypy sees numbers for all parameters
        f"a two-phase commit, {name}": partial(TwoPhaseCommitWorld, **bounds)  # type: ignore[arg-type]
        for name, bounds in BOUNDS.items()
    },
    "producer ids of two brokers, two controllers": lambda: Allocation(spends=2, troubles=1),
    "producer ids of two brokers before 3.6, two controllers": lambda: Allocation(
        waits=True, spends=2, troubles=1
    ),
    "election of three voters, a lost message and a power loss": lambda: Election(
        losses=1, crashes=1, time_outs=1
    ),
    "election of three voters, two time-outs": lambda: Election(losses=0, crashes=0, time_outs=2),
    "election of three voters with pre-votes, a lost message": lambda: Election(
        has_pre_vote=True, losses=1, crashes=0, time_outs=1
    ),
}
