"""Draws faults at first contact for any scenario: a service is away as a process that has just
started needs it for the first time.

A broker that starts needs the metadata quorum to register, to fetch its first metadata, and for its
first block of producer ids; one in ZooKeeper mode, or a migrating controller, needs ZooKeeper; a
broker with tiered storage reads the remote log metadata, and a producer looks for its coordinator.
Code for these moments runs once for each process, so that faults at random times hardly ever meet
it. The draw has a random stream of its own, so that the other faults of a seed stay as they are.
A fault that waits for nodes to start brings a restart of one of them, mostly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final, TypeVar

from kraftsim.lab.faults.fault import (
    BOTH_WAYS,
    CONTACTED,
    CONTACTING,
    FAULTS,
    LEADER_TARGET,
    REMOTE_STORE,
    SIM,
    Aim,
    AtTime,
    DataLoss,
    Family,
    Fault,
    FaultKind,
    OnContact,
    Value,
)
from kraftsim.lab.faults.fault_space import BROKERS, CLIENTS, CONTROLLERS, ZOOKEEPER, FaultSpace
from kraftsim.lab.faults.kinds.request_faults import KIND
from kraftsim.lab.faults.kinds.zookeeper import AT_CONTACT, SESSION_LOSS
from kraftsim.lab.faults.random_faults import draw_value
from kraftsim.lab.faults.random_request_faults import apis_of, draw_request_fault, pattern_of
from protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)

T = TypeVar("T")
SHARE: Final = 0.35
"""The share of random schedules that have faults at first contact."""
COUNTS: Final = (1, 1, 2, 3)
STARTS: Final = ("restart", "stop")
"""Kinds after which a node starts again soon."""
START_SHARE: Final = 0.8
ANY_SHARE: Final = 0.35
"""The share of contacts that are about connecting, or about requests of any API."""
PROCESSES_MAX: Final = 3
READS_MAX: Final = 24
"""A broker in ZooKeeper mode sends about so many requests to ZooKeeper before it is ready."""
STORE_CALLS_MAX: Final = 4
AWAY: Final = (Family.NETWORK, Family.PROCESS)
"""Families of faults after which a service does not answer for a while."""
THERE: Final = ("preempted-thread", "torn-reads")
"""Kinds of these families during which it answers nearly as usual."""
REQUEST_SHARE: Final = 0.4
"""The share of faults at the first request of an API that are about this request alone."""
EARLY: Final = 2
"""Restarts are in the first half of the time, so that the next process does something."""


@dataclass(frozen=True, slots=True)
class FirstContact:
    """A service that processes of a role need: as they connect and in their first requests, or in
    the first request of an API. `servers` may be REMOTE_STORE.
    """

    clients: str
    servers: str
    api_key: int | None = None
    requests_max: int = 1

    @property
    def label(self) -> str:
        """Its name in the counts of a campaign: role, service, and API."""
        return contact_label(self.clients, self.servers, self.api_key)


def contact_label(clients: str, servers: str, api_key: int | None) -> str:
    """Return the name of a first contact: role, service, and API or `any`."""
    return f"{clients} {servers} {'any' if api_key is None else ApiKey(api_key).name}"


def contacts_of(space: FaultSpace) -> tuple[FirstContact, ...]:
    """Return the first contacts of a fault space: each link, and the first request of each API."""
    connects = [
        FirstContact(clients, servers, None, READS_MAX if servers == ZOOKEEPER else 1)
        for clients, servers in space.links
        if space.of(clients) and space.of(servers)
    ]
    stores = [
        FirstContact(BROKERS, REMOTE_STORE, None, STORE_CALLS_MAX),
        FirstContact(BROKERS, BROKERS, ApiKey.LIST_OFFSETS),  # of the remote log metadata
    ]
    asked = [FirstContact(api.clients, api.servers, api.key) for api in apis_of(space)]
    found = [*connects, *(stores if space.has_store else ()), *asked]
    return tuple(dict.fromkeys(found))


def draw_contact_faults(random: "Random", space: FaultSpace) -> tuple[Fault, ...]:
    """Draw the faults at first contact of one run, with the restarts that they wait for."""
    if random.random() >= SHARE:
        return ()
    draw = _Draw(random, space)
    return tuple(fault for _ in range(random.choice(COUNTS)) for fault in draw.faults())


def group_of(space: FaultSpace, role: str) -> str:
    """Return the hosts of a role as a group: a pattern, where no other role has such names."""
    if role == REMOTE_STORE:
        return REMOTE_STORE
    hosts = space.of(role)
    return pattern_of(role, hosts) or ",".join(hosts)


class _Draw:
    """The drawing of faults at first contact of one run."""

    def __init__(self, random: "Random", space: FaultSpace) -> None:
        self._random = random
        self._space = space

    def faults(self) -> tuple[Fault, ...]:
        """Draw one fault, and mostly the restart that it waits for; none if no kind is possible."""
        connects = tuple(each for each in self._contacts if each.api_key is None)
        is_any = connects and self._random.random() < ANY_SHARE
        contact = self._pick(connects if is_any else self._contacts)
        trigger = OnContact(
            service=group_of(self._space, contact.servers),
            client=group_of(self._space, contact.clients),
            api_key=contact.api_key,
            request=self._request(contact),
            nth=self._magnitude(PROCESSES_MAX),
        )
        fault = self._fault(contact, trigger)
        return () if fault is None else (fault, *self._start(contact))

    @cached_property
    def _contacts(self) -> tuple[FirstContact, ...]:
        """First contacts by kind of service, so that rare services are drawn as often as others."""
        contacts = contacts_of(self._space)
        services = list(dict.fromkeys(contact.servers for contact in contacts))
        service = self._pick(services)
        return tuple(contact for contact in contacts if contact.servers == service)

    def _request(self, contact: FirstContact) -> int:
        if contact.api_key is not None:
            return 1
        if contact.servers != REMOTE_STORE and self._random.random() < 0.3:
            return 0
        return self._magnitude(contact.requests_max)

    def _fault(self, contact: FirstContact, trigger: OnContact) -> Fault | None:
        api = next(
            (
                api
                for api in apis_of(self._space)
                if (api.clients, api.servers, api.key)
                == (contact.clients, contact.servers, contact.api_key)
            ),
            None,
        )
        is_about_it = KIND not in self._space.omits and self._random.random() < REQUEST_SHARE
        if api is not None and is_about_it:
            return draw_request_fault(self._random, self._space, api, trigger)
        kinds = [kind for kind in self._kinds if self._can_be_away(kind, contact)]
        if not kinds:
            return None
        kind = self._pick(kinds)
        params = {name: draw_value(self._random, draw) for name, draw in kind.draws.items()}
        if kind.data_loss_if is not None:
            params[kind.data_loss_if] = False
        if kind is SESSION_LOSS:
            params["whose"] = AT_CONTACT
        if kind.aim is Aim.ALL:
            return Fault(kind=kind.name, trigger=trigger, params=params)
        return Fault(
            kind=kind.name, target=self._target(kind, contact), trigger=trigger, params=params
        )

    @cached_property
    def _kinds(self) -> tuple[FaultKind, ...]:
        return tuple(kind for kind in FAULTS.all() if self._is_possible(kind))

    def _is_possible(self, kind: FaultKind) -> bool:
        return (
            SIM in kind.modes
            and not kind.is_drawn_apart
            and kind.name not in self._space.omits
            and "event" in kind.triggers_on
            and (kind.data_loss is DataLoss.NOTHING or kind.data_loss_if is not None)
            and not kind.needs_releases
            and (not kind.needs_quorum or bool(self._space.of(CONTROLLERS)))
        )

    def _can_be_away(self, kind: FaultKind, contact: FirstContact) -> bool:
        """Return whether a kind makes a service unavailable to a process that needs it."""
        if contact.servers == REMOTE_STORE:
            return kind.family is Family.STORE
        if kind.family is Family.ZOOKEEPER:
            return contact.servers == ZOOKEEPER
        if kind.family not in AWAY or kind.aim is Aim.ALL or kind.name in THERE:
            return False
        return kind.aim is Aim.LINK or contact.servers not in kind.spares

    def _target(self, kind: FaultKind, contact: FirstContact) -> str:
        """Return the server that is contacted, the leader, or links: those to the whole service or
        to one server of it.
        """
        service = group_of(self._space, contact.servers)
        if kind.aim is Aim.LINK:
            return BOTH_WAYS.join((CONTACTING, self._pick((service, service, CONTACTED))))
        if contact.servers == CONTROLLERS and LEADER_TARGET not in kind.spares:
            return self._pick((CONTACTED, LEADER_TARGET))
        return CONTACTED

    def _start(self, contact: FirstContact) -> tuple[Fault, ...]:
        """Return a restart of a node that contacts the service, mostly."""
        kinds = [kind for kind in self._kinds if kind.name in STARTS]
        if (
            contact.clients == CLIENTS
            or not kinds
            or self._random.random() >= START_SHARE
            or not self._space.of(contact.clients)
        ):
            return ()
        kind = self._pick(kinds)
        params: dict[str, Value] = {
            name: draw_value(self._random, draw)
            for name, draw in kind.draws.items()
            if name != kind.data_loss_if
        }
        at_ms = self._random.randint(1, max(1, self._space.fault_ms // EARLY))
        target = self._pick(self._space.of(contact.clients))
        return (Fault(kind=kind.name, target=target, trigger=AtTime(at_ms=at_ms), params=params),)

    def _magnitude(self, most: int) -> int:
        """Draw a number from 1 on by its magnitude."""
        return max(1, min(most, int((most + 1) ** self._random.random())))

    def _pick(self, values: Sequence[T]) -> T:
        return self._random.choice(values)
