"""Runs a scenario whose clients are kraftsim's own, and reads from their frames what they sent and
learned: both accounts of the same run, and what the invariants say of the second.
"""

from collections import Counter
from dataclasses import dataclass, field

from msgspec.structs import asdict, replace

from kraftsim.clients.events_transactions import CopiesCounted, CopyExpected, CopyRead
from kraftsim.events.event import Event
from kraftsim.invariants.invariant import Envelope, Oracle
from kraftsim.invariants.verdict import Verdict
from kraftsim.lab.application.observer import attach_observer
from kraftsim.lab.explore.request import RunRequest
from kraftsim.lab.explore.virtual import set_up
from kraftsim.world.simulated import Host, Simulation, collected_after

CLIENT_EVENTS = ("kraftsim.clients.events", "kraftsim.clients.events_transactions")
OF_THE_SCENARIO = (CopyExpected, CopyRead, CopiesCounted)
"""What only a scenario can know; no frame says it."""


@dataclass(kw_only=True)
class ObservedRun:
    """`own`: what the clients emitted, `read`: what their frames said, both (host, event)."""

    own: list[tuple[str, Event]] = field(default_factory=list)
    read: list[tuple[str, Event]] = field(default_factory=list)
    trouble: str | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    """The verdicts of the invariants if only what was read from frames counts."""
    unreadable: int = 0

    def counted(
        self, account: str, kind: type[Event], *without: str
    ) -> Counter[tuple[object, ...]]:
        """Count the events of a kind by their host and fields, without some fields."""
        return Counter(
            (host, *(v for name, v in asdict(event).items() if name not in without))
            for host, event in getattr(self, account)
            if isinstance(event, kind)
        )


def run_observed(request: RunRequest) -> ObservedRun:
    """Run a request in virtual time."""
    with collected_after(), request.simulation() as simulation:
        return _run(request, simulation)


def _run(request: RunRequest, simulation: Simulation) -> ObservedRun:
    found = ObservedRun()
    oracle = Oracle()
    nodes = {*request.spec(port=9092).node_names, "harness", "final"}
    observers = []
    counts: Counter[str] = Counter()

    def examine(node: str, incarnation: int, n: int, t_ns: int, event: Event) -> None:
        is_of_client = type(event).__module__ in CLIENT_EVENTS and node not in nodes
        if is_of_client and not isinstance(event, OF_THE_SCENARIO):
            found.own.append((node, event))
            return
        if isinstance(event, CopyRead):
            event = replace(event, client_id=f"{event.client_id}/{event.client_id}")
        envelope = Envelope(node=node, incarnation=incarnation, n=n, t_ns=t_ns)
        oracle.examine(envelope, event)

    add_host = simulation.add_host

    def add(name: str, *, tolerant: bool = False) -> Host:
        host = add_host(name, tolerant=tolerant)
        if name not in nodes:

            def emit(event: Event) -> None:
                found.read.append((name, event))
                counts[name] += 1
                envelope = Envelope(
                    node=f"{name}'", incarnation=1, n=counts[name], t_ns=simulation.now_ns
                )
                oracle.examine(envelope, event)

            observers.append(attach_observer(host, emit))
        return host

    simulation.observe(examine)
    simulation.add_host = add  # type: ignore[method-assign]  # hosts of clients are made inside
    run = set_up(request, simulation)
    found.trouble = run.run(request.scenario.limit_seconds)
    run.finish()
    for observer in observers:
        observer.ended()
        found.unreadable += observer.unreadable_count
    found.verdicts = {verdict.invariant: verdict for verdict in oracle.finish()}
    return found
