"""Single requests get an error, are lost, late, repeated, reordered, cut or throttled, or a client
is in a black hole: as a text says, such as `EndTxn error=CONCURRENT_TRANSACTIONS times=3`.

The nodes carry it out. The kinds of `kraftsim.lab.faults.kinds.requests` act on frames in the
network, between any two hosts; this one acts on requests as a server sees them, chosen by API,
topic, transactional id, client and so on, and can answer with any error. Random schedules draw it
apart from the other kinds (`kraftsim.lab.faults.random_request_faults`), with errors that a server
of Apache Kafka can answer there; a user names it with `--inject`.

After a trigger that is no time, a fault of replies is also about requests that are served at that
moment: so the reply is lost of the very EndTxn that has prepared a transaction.
"""

import asyncio
from collections.abc import Callable
from fnmatch import fnmatchcase
from math import ceil
from typing import Protocol

from msgspec import structs

from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    EVERYWHERE,
    Aim,
    AtTime,
    Family,
    Fault,
    FaultKind,
)
from kraftsim.lab.faults.field import SocketInjection
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.request_fault_text import parse_request_fault, request_fault_text
from kraftsim.lab.faults.rules_request_faults import RequestFault, RequestHit
from kraftsim.world.simulated import Simulation

KIND = "request-fault"
TEXT = "fault"
"""The parameter that has the fault as `request_fault_text` writes it."""
HERE = "here"
"""The parameter that limits it to the node at which the trigger fired, if its text allows that."""
ATTACHMENT = "request faults"
"""An attachment of the simulation, set by the code that starts its nodes."""


class RequestFaultCarrier(Protocol):
    """Carries faults of requests out in all nodes of a simulation."""

    def expect(self, fault: RequestFault) -> None:
        """A fault of replies may come that is about requests in progress, too."""
        ...

    def add(
        self,
        fault: RequestFault,
        on_hit: Callable[[RequestHit], None],
        *,
        key: str | None = None,
        in_progress: bool = False,
    ) -> int:
        """Add a fault; return its number. `key` names its random numbers; with `in_progress` it is
        also about requests that are served now.
        """
        ...

    def remove(self, number: int) -> None:
        """End a fault; nothing, if it is over."""
        ...


def make_carrier_known(simulation: Simulation, carrier: RequestFaultCarrier) -> None:
    """Register what carries faults of requests out in a simulation."""
    simulation.attachments[ATTACHMENT] = carrier


def of_requests(text: str, *, at_ms: int = 0) -> Fault:
    """Return the fault of a run that a text says, such as `EndTxn error=NOT_COORDINATOR`; it begins
    so long after the faults of the run are armed. Raises BadRequestFault.
    """
    written = request_fault_text(parse_request_fault(text))
    return Fault(kind=KIND, trigger=AtTime(at_ms=at_ms), params={TEXT: written})


def prepare(injection: Injection) -> None:
    """Read the text, and watch the requests in progress if it may be about them. Raises
    BadRequestFault.
    """
    fault = parse_request_fault(injection.text(TEXT) or "")
    carrier = injection.simulation.attachments.get(ATTACHMENT)
    if carrier is not None and fault.is_of_replies and _is_at_an_event(injection):
        _carrier(carrier).expect(fault)


def request_fault(injection: Injection) -> None:
    """Let the nodes do with requests what the parameter `fault` says.

    A target limits it to a node, unless the text names one. Without `duration_ms` in the text it
    lasts until it is used up or all faults are healed.

    It is effective with the first request that it takes effect on.
    """
    carrier = injection.simulation.attachments.get(ATTACHMENT)
    if carrier is None:
        return  # a simulation without nodes of Kafka
    fault = _fault_at(injection.text(TEXT) or "", injection.target)
    host = injection.trigger_context.host
    if host is not None and injection.flag(HERE) and fnmatchcase(host, fault.node or "*"):
        fault = structs.replace(fault, node=host)
    number = _carrier(carrier).add(
        fault,
        lambda hit: injection.record_effect(f"{fault}: {hit}"),
        key=injection.key,
        in_progress=_is_at_an_event(injection),
    )
    injection.lasting(
        lambda: _carrier(carrier).remove(number), ceil(fault.duration_ms or UNTIL_HEALED)
    )


async def request_fault_over_sockets(injection: SocketInjection) -> None:
    """Let the proxy carry it out, or the nodes of an embedded cluster."""
    fault = _fault_at(injection.text(TEXT) or "", injection.target)
    loop = asyncio.get_running_loop()

    def on_hit(hit: RequestHit) -> None:
        if not loop.is_closed():  # embedded nodes have another thread
            loop.call_soon_threadsafe(injection.record_effect, f"{fault}: {hit}")

    number = await injection.field.begin_request_fault(fault, on_hit)
    try:
        await injection.lasts(ceil(fault.duration_ms or UNTIL_HEALED))
    finally:
        await injection.field.end_request_fault(number)


UNTIL_HEALED = 0


def _is_at_an_event(injection: Injection) -> bool:
    return not isinstance(injection.fault.trigger, AtTime)


def _carrier(found: object) -> RequestFaultCarrier:
    assert hasattr(found, "expect") and hasattr(found, "add") and hasattr(found, "remove"), (
        "the name is used here only"
    )
    carrier: RequestFaultCarrier = found
    return carrier


def _fault_at(text: str, target: str) -> RequestFault:
    fault = parse_request_fault(text)
    if target == AT_THE_TRIGGER or fault.node is not None:
        return fault
    return structs.replace(fault, node=target)


FAULT = FaultKind(
    name=KIND,
    title="a fault of requests",
    family=Family.REQUEST,
    inject=request_fault,
    prepare=prepare,
    over_sockets=request_fault_over_sockets,
    judges_requests=True,
    is_drawn_apart=True,
    modes=EVERYWHERE,
    aim=Aim.ALL,
    params={TEXT: None, HERE: False},
)
