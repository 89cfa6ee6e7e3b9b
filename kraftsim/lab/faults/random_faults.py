"""The random fault generator: draws a fault schedule for any scenario from a seed.

Each run omits some kinds, triggers and hosts.

Kinds that always occur together hide bugs that one of them alone would show; so runs differ in what
they omit as much as in what they do. The schedule is data: the run itself draws nothing more.
Source: Groce et al., Swarm Testing (2012); FoundationDB's and TigerBeetle's simulators.
"""

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from kraftsim.extensions import Extension, extensions
from kraftsim.lab.faults.fault import (
    AT_THE_TRIGGER,
    BOTH_WAYS,
    FAULTS,
    LEADER_TARGET,
    ONE_WAY,
    SIM,
    Aim,
    AtTime,
    Between,
    DataLoss,
    Family,
    Fault,
    FaultKind,
    OnDisk,
    OneOf,
    OnEvent,
    OnFrame,
    OnState,
    Trigger,
    Value,
    fault_kind,
)
from kraftsim.lab.faults.fault_space import (
    CONTROLLERS,
    Api,
    FaultMoment,
    FaultSpace,
    Files,
    LastingState,
)

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the seed)


# --------------------------------------------------------------------------------------------------
# The data-loss budget: which faults may be combined in a run
#
# With more losses, missing data would be legitimate, and a violation meaningless.
#
# A run has one data-loss class only. After a failed flush the losses of the next power loss are
# unpredictable, so the two are never combined; and flushed data is lost at one host of a run at
# most, for no quorum survives more.
# Source: TigerBeetle's "fault atlas", PostgreSQL's fsyncgate.


class DataLossBudget:
    """The data-loss class of one run, and the hosts that may lose data.

    `way` is drawn once per run.
    """

    def __init__(self, data_loss: DataLoss, hosts: tuple[str, ...]) -> None:
        self.way = data_loss
        self._hosts = hosts

    def allows(self, kind: FaultKind) -> bool:
        """Return whether this run can have a kind: it loses no data, or only with some parameters,
        or its data-loss class is that of this run.
        """
        return kind.data_loss in (DataLoss.NOTHING, self.way) or kind.data_loss_if is not None

    def hosts(self, kind: FaultKind, all_hosts: tuple[str, ...]) -> tuple[str, ...]:
        """Return the hosts at which a kind may lose data."""
        return (
            all_hosts
            if kind.data_loss is DataLoss.NOTHING
            else self._hosts
            if kind.data_loss is self.way
            else ()
        )


def draw_data_loss_budget(random: "Random", fault_space: FaultSpace) -> DataLossBudget:
    """Draw the data-loss budget of a run."""
    data_loss = random.choice(
        (
            DataLoss.NOTHING,
            DataLoss.UNFLUSHED,
            DataLoss.UNFLUSHED,
            DataLoss.UNFLUSHED,
            DataLoss.TRUST,
            DataLoss.FLUSHED,
            *((DataLoss.FLUSHED,) * 2 if fault_space.may_lose.get(DataLoss.FLUSHED) else ()),
        )
    )
    hosts = fault_space.may_lose.get(data_loss, ())
    if not hosts:
        return DataLossBudget(DataLoss.NOTHING, ())
    return DataLossBudget(
        data_loss, (random.choice(hosts),) if data_loss is DataLoss.FLUSHED else hosts
    )


def data_loss(fault: Fault) -> DataLoss:
    """Return the data-loss class of a fault with its parameters."""
    kind = fault_kind(fault.kind)
    if kind.data_loss_if is not None and not fault.params.get(
        kind.data_loss_if, kind.params[kind.data_loss_if]
    ):
        return DataLoss.NOTHING
    return kind.data_loss


def clashes(faults: Sequence[Fault], fault_space: FaultSpace) -> list[str]:
    """Return how a schedule exceeds the data-loss budget of a fault space, one line each; empty for
    a random schedule.
    """
    found = []
    spoiling = [
        (fault, data_loss(fault)) for fault in faults if data_loss(fault) is not DataLoss.NOTHING
    ]
    losses = sorted({loss for _, loss in spoiling})
    if len(losses) > 1:
        found.append(f"a run has one data-loss class, not {len(losses)}: {', '.join(losses)}")
    for fault, loss in spoiling:
        allowed = fault_space.may_lose.get(loss, ())
        if any(host not in allowed for host in _targets(fault, fault_space)):
            found.append(f"{fault} may lose data that a host must keep ({loss})")
    if (
        len(
            {
                host
                for fault, loss in spoiling
                if loss is DataLoss.FLUSHED
                for host in _targets(fault, fault_space)
            }
        )
        > 1
    ):
        found.append("flushed data may be lost at one host of a run, not at several")
    return found


def _targets(fault: Fault, fault_space: FaultSpace) -> tuple[str, ...]:
    """Return the hosts that a fault can be injected at."""
    if fault.target == LEADER_TARGET:
        return fault_space.leaders_at_any_time
    if fault.target != AT_THE_TRIGGER:
        return (fault.target,)
    roles: list[str | None] = [None]
    match fault.trigger:
        case OnFrame(is_response=is_response, client=client, server=server):
            host = server if is_response else client
        case OnDisk(host=host):
            pass
        case OnEvent(host=host, kind=kind):
            roles = [
                moment.role if moment.is_only else None
                for moment in fault_space.moments
                if moment.kind == kind
            ]
        case OnState(host=host, states=states):
            roles = [
                lasting_state.role if lasting_state.is_only else None
                for lasting_state in fault_space.lasting_states
                if lasting_state.states == states
            ]
        case _:
            host = None
    if host is not None:
        return (host,)
    if not roles or None in roles:
        return fault_space.nodes
    return tuple(
        host for role in dict.fromkeys(roles) if role is not None for host in fault_space.of(role)
    )


T = TypeVar("T")
FILE_CLASS = "file_class"
"""The parameter of disk faults that affect a class of files."""
ALL_FILES_SHARE = 0.4
"""How many of them affect all files: some classes are hardly ever written."""
COUNTS = ((1, 3), (1, 3), (3, 8), (3, 8), (3, 8), (8, 20), (8, 20), (20, 40), (40, 60))
"""How many faults a run has: one of these ranges is drawn first, so that few faults and very many
are both frequent.
"""
KINDS_KEPT = (0.15, 0.3, 0.5, 0.75)
SCARCE_KEPT = 0.6
SCARCE_WEIGHT = 4
"""Kinds that few scenarios can have are hardly ever omitted there, and drawn so much more often:
those of a remote store, of releases, and those that lose flushed data in a run that may.
"""
TRIGGER_TYPES = ("time", "disk", "frame", "event", "state")
WIDE = 10
"""A range with this ratio of its ends is drawn by magnitude: 5 to 3000 gives as many values below
120 as above.
"""
LEADER_SHARE = 0.15
"""The share of faults with a time trigger whose target is the present leader."""
GROUPS = (
    f"{LEADER_TARGET}{BOTH_WAYS}controller-*",
    f"{LEADER_TARGET}{ONE_WAY}controller-*",
    f"controller-*{ONE_WAY}{LEADER_TARGET}",
    "controller-*<>broker-*",
)


def draw_faults(
    random: "Random", fault_space: FaultSpace, kinds: Sequence[FaultKind] | None = None
) -> tuple[Fault, ...]:
    """Draw the faults of one run in simulation, of all kinds or of those given."""
    draw = _Draw(random, fault_space, kinds if kinds is not None else _all_kinds())
    count = random.randint(*random.choice(COUNTS))
    return tuple(draw.fault() for _ in range(count if draw.kinds else 0))


def draw_value(random: "Random", draw: Between | OneOf) -> Value:
    """Draw a parameter: one of a few values, or a number, by magnitude if the range is wide,
    sometimes an end of the range.
    """
    if isinstance(draw, OneOf):
        return random.choice(draw.values)
    if random.random() < 0.1:
        return max(draw.floor, random.choice((draw.low, draw.high)))
    if draw.low > 0 and draw.high >= draw.low * WIDE:
        return max(
            draw.floor, min(draw.high, int(draw.low * (draw.high / draw.low) ** random.random()))
        )
    return max(draw.floor, random.randint(draw.low, draw.high))


def draw_settings(random: "Random", fault_space: FaultSpace) -> dict[str, str]:
    """Draw about half of the settings that a fault space declares; the others keep the scenario's
    values.
    """
    return {
        key: str(draw_value(random, draw))
        for key, draw in fault_space.settings.items()
        if random.random() < 0.5
    }


def _all_kinds() -> tuple[FaultKind, ...]:
    return _kinds_with(extensions())


@cache
def _kinds_with(loaded: tuple[Extension, ...]) -> tuple[FaultKind, ...]:
    """Return every kind but those drawn apart; again, when other extensions are loaded."""
    return tuple(kind for kind in FAULTS.all() if not kind.is_drawn_apart)


class _Draw:
    """The subset of kinds, triggers and hosts that one run uses, and the drawing of a fault from
    it.
    """

    def __init__(
        self, random: "Random", fault_space: FaultSpace, kinds: Sequence[FaultKind]
    ) -> None:
        self._random = random
        self._fault_space = fault_space
        self._budget: DataLossBudget = draw_data_loss_budget(random, fault_space)
        self._trigger_types = [
            trigger_type for trigger_type in TRIGGER_TYPES if random.random() < 0.7
        ] or [random.choice(TRIGGER_TYPES[:4])]
        self._hosts = self._some_hosts()
        share = random.choice(KINDS_KEPT)
        possible = [kind for kind in kinds if SIM in kind.modes and self._can_inject(kind)]
        kept = [
            kind
            for kind in possible
            if random.random() < (max(share, SCARCE_KEPT) if self._is_scarce(kind) else share)
        ]
        if len(kept) == len(possible) > 1:
            kept.pop(random.randrange(len(kept)))
        self.kinds = kept or ([random.choice(possible)] if possible else [])
        self._weights = [
            random.choice((1, 1, 2, 4)) * (SCARCE_WEIGHT if self._is_scarce(kind) else 1)
            for kind in self.kinds
        ]

    def fault(self) -> Fault:
        """Draw one fault."""
        (kind,) = self._random.choices(self.kinds, self._weights)
        params = {name: draw_value(self._random, draw) for name, draw in kind.draws.items()}
        trigger_type = self._pick(self._triggers_of(kind))
        match kind.aim:
            case Aim.ALL:
                return Fault(
                    kind=kind.name, trigger=self._trigger(trigger_type, None), params=params
                )
            case Aim.LINK:
                return self._at_link(kind, trigger_type, params)
        if kind.family is Family.PROTOCOL and trigger_type == "frame":
            api = self._pick(self._fault_space.apis)
            server = self._pick(self._fault_space.of(api.servers))
            trigger = OnFrame(
                api_key=api.key,
                is_response=self._pick((True, False)),
                server=server,
                nth=self._nth(api.frames_max),
            )
            return Fault(kind=kind.name, target=server, trigger=trigger, params=params)
        return self._at_host(kind, trigger_type, params)

    # ---- omissions

    def _some_hosts(self) -> tuple[str, ...]:
        """Keep all nodes, those of one role, or any of them."""
        nodes = self._fault_space.nodes
        match self._random.randrange(4):
            case 0:
                return self._fault_space.of(self._fault_space.role_of(self._random.choice(nodes)))
            case 1:
                return tuple(host for host in nodes if self._random.random() < 0.5) or (
                    self._random.choice(nodes),
                )
            case _:
                return nodes

    def _is_scarce(self, kind: FaultKind) -> bool:
        return (
            kind.family is Family.STORE
            or kind.needs_releases
            or kind.data_loss is self._budget.way is DataLoss.FLUSHED
        )

    def _can_inject(self, kind: FaultKind) -> bool:
        if (
            not self._budget.allows(kind)
            or kind.name in self._fault_space.omits
            or not self._triggers_of(kind)
            or (kind.needs_releases and not self._fault_space.may_change_release)
        ):
            return False
        if kind.needs_quorum and not self._fault_space.of(CONTROLLERS):
            return False
        if (kind.family is Family.STORE and not self._fault_space.has_store) or (
            kind.family is Family.ZOOKEEPER and not self._fault_space.has_zookeeper
        ):
            return False
        return (
            kind.aim is not Aim.HOST or bool(self._victims(kind)) or kind.data_loss_if is not None
        )

    def _triggers_of(self, kind: FaultKind) -> list[str]:
        """Return the triggers that a kind can have here: those that this run keeps, or, if there is
        none, those that the kind needs.
        """
        possible = [
            trigger_type
            for trigger_type in TRIGGER_TYPES
            if trigger_type in kind.triggers_on and self._offers(trigger_type)
        ]
        return [
            trigger_type for trigger_type in possible if trigger_type in self._trigger_types
        ] or possible

    def _offers(self, trigger_type: str) -> bool:
        fault_space = self._fault_space
        return trigger_type == "time" or bool(
            {
                "disk": fault_space.files,
                "frame": fault_space.apis,
                "event": fault_space.moments,
                "state": fault_space.lasting_states,
            }[trigger_type]
        )

    # ---- hosts

    def _victims(self, kind: FaultKind) -> tuple[str, ...]:
        allowed = tuple(
            host
            for host in self._budget.hosts(kind, self._fault_space.nodes)
            if self._fault_space.role_of(host) not in kind.spares
        )
        return tuple(host for host in allowed if host in self._hosts) or allowed

    def _at_host(self, kind: FaultKind, trigger_type: str, params: dict[str, Value]) -> Fault:
        victims = self._victims(kind)
        if (
            kind.data_loss is not DataLoss.NOTHING
            and kind.data_loss_if is not None
            and (not victims or not params.get(kind.data_loss_if))
        ):
            params[kind.data_loss_if] = False
            victims = self._hosts
        leaders = self._fault_space.leaders
        if (
            trigger_type == "time"
            and leaders
            and set(leaders) <= set(victims)
            and self._random.random() < LEADER_SHARE
            and (
                kind.data_loss is DataLoss.NOTHING
                or set(self._fault_space.leaders_at_any_time) <= set(victims)
            )
        ):
            return Fault(kind=kind.name, target=LEADER_TARGET, trigger=self._time(), params=params)
        victim = self._pick(victims)
        roles = self._fault_space.roles_of(victim)
        role = self._pick(roles) if len(roles) > 1 else roles[0]
        if FILE_CLASS in kind.draws:
            params[FILE_CLASS] = self._file_class(kind, roles)
        has_whole_role = set(self._fault_space.of(role)) <= set(victims)
        any_victim = trigger_type != "time" and has_whole_role and self._random.random() < 0.5
        trigger = self._trigger(trigger_type, None if any_victim else victim, role)
        if any_victim and kind.data_loss is not DataLoss.NOTHING and not self._is_only(trigger):
            any_victim, trigger = False, self._trigger(trigger_type, victim, role)
        if isinstance(trigger, AtTime) or (not any_victim and self._random.random() < 0.2):
            return Fault(
                kind=kind.name, target=victim, trigger=self._of_another(trigger), params=params
            )
        return Fault(
            kind=kind.name,
            target=AT_THE_TRIGGER if _happens_at(trigger, victim, any_victim) else victim,
            trigger=trigger,
            params=params,
        )

    def _file_class(self, kind: FaultKind, roles: tuple[str, ...]) -> Value:
        """Draw the class of files that a fault affects: one that nodes of these roles write, or
        all.
        """
        if self._random.random() < ALL_FILES_SHARE:
            return None
        written = {each.file_class for each in self._fault_space.files if each.role in roles}
        draw = kind.draws[FILE_CLASS]
        assert isinstance(draw, OneOf), "a class has a name"
        classes = [value for value in draw.values if value in written]
        return self._pick(classes) if classes else None

    def _at_link(self, kind: FaultKind, trigger_type: str, params: dict[str, Value]) -> Fault:
        """Draw a network fault: of the connection of a frame, of the host at which the trigger
        fires, or of a named link.
        """
        if trigger_type == "frame" and self._random.random() < 0.7:
            trigger = self._frame(
                self._pick(self._fault_space.apis),
                self._pick((True, False)),
                None,
                moments=("before",),
            )
            return Fault(kind=kind.name, trigger=trigger, params=params)
        if trigger_type in ("disk", "event", "state") and self._random.random() < 0.4:
            return Fault(kind=kind.name, trigger=self._trigger(trigger_type, None), params=params)
        return Fault(
            kind=kind.name,
            target=self._link(),
            trigger=self._trigger(trigger_type, None),
            params=params,
        )

    def _is_only(self, trigger: Trigger) -> bool:
        """Return whether a trigger without a host fires at hosts of one role only."""
        match trigger:
            case OnEvent(kind=kind):
                return all(
                    moment.is_only for moment in self._fault_space.moments if moment.kind == kind
                )
            case OnState(states=states):
                return all(
                    lasting_state.is_only
                    for lasting_state in self._fault_space.lasting_states
                    if lasting_state.states == states
                )
        return False

    def _of_another(self, trigger: Trigger) -> Trigger:
        """Return a trigger that may fire elsewhere: an event at one host triggers a fault at
        another one.
        """
        return (
            trigger
            if isinstance(trigger, AtTime)
            else self._trigger(self._pick(self._any_triggers()), None)
        )

    def _any_triggers(self) -> list[str]:
        return [
            trigger_type for trigger_type in self._trigger_types if self._offers(trigger_type)
        ] or ["time"]

    def _link(self) -> str:
        """Draw the target of a network fault: all links of a host or of the leader, or one link, in
        one direction or both.
        """
        place = self._random.random()
        if place < 0.3:
            return self._pick(self._hosts)
        if place < 0.45 and self._fault_space.of(CONTROLLERS):
            return (
                self._pick((LEADER_TARGET, LEADER_TARGET, *GROUPS))
                if len(self._fault_space.of(CONTROLLERS)) > 1
                else LEADER_TARGET
            )
        for _ in range(8):
            sources, targets = self._pick(self._fault_space.links)
            one, other = (
                self._pick(self._fault_space.of(sources)),
                self._pick(self._fault_space.of(targets)),
            )
            if one != other:
                ends = [one, other]
                self._random.shuffle(ends)
                return self._pick((ONE_WAY, BOTH_WAYS)).join(ends)
        return self._pick(self._hosts)

    # ---- triggers

    def _trigger(self, trigger_type: str, host: str | None, role: str | None = None) -> Trigger:
        """Draw a trigger: at a host, at any host of a role, or anywhere.

        A trigger type that a role does not have becomes a time.
        """
        fault_space = self._fault_space
        role = fault_space.role_of(host) if host is not None and role is None else role
        match trigger_type:
            case "disk":
                files = [each for each in fault_space.files if role in (None, each.role)]
                return self._disk(self._pick(files), host) if files else self._time()
            case "event":
                moments = [each for each in fault_space.moments if role in (None, each.role)]
                return self._event(self._pick(moments), host) if moments else self._time()
            case "state":
                lasting_states = [
                    each for each in fault_space.lasting_states if role in (None, each.role)
                ]
                return (
                    self._state(self._pick(lasting_states), host)
                    if lasting_states
                    else self._time()
                )
            case "frame":
                messages = [
                    (api, is_response) for api in fault_space.apis for is_response in (False, True)
                ]
                messages = [
                    message
                    for message in messages
                    if role is None or role == _sender_role(*message)
                ]
                return self._frame(*self._pick(messages), host) if messages else self._time()
            case _:
                return self._time()

    def _time(self) -> AtTime:
        return AtTime(at_ms=self._random.randint(1, self._fault_space.fault_ms))

    def _disk(self, files: Files, host: str | None) -> OnDisk:
        return OnDisk(
            operation=self._pick(files.operations),
            file_class=files.file_class,
            host=host
            or (
                self._pick(self._fault_space.of(files.role))
                if self._random.random() < 0.5
                else None
            ),
            nth=self._nth(files.times_max),
            moment=self._pick(("before", "after")),
        )

    def _event(self, moment: FaultMoment, host: str | None) -> OnEvent:
        return OnEvent(
            kind=moment.kind, host=host, nth=self._nth(moment.times_max), fields=dict(moment.fields)
        )

    def _state(self, lasting_state: LastingState, host: str | None) -> OnState:
        return OnState(
            states=lasting_state.states, host=host, nth=self._nth(lasting_state.times_max)
        )

    def _frame(
        self,
        api: Api,
        is_response: bool,
        host: str | None,
        moments: tuple[str, ...] = ("before", "after"),
    ) -> OnFrame:
        """Draw a frame of an API.

        The sender is the given host; without one, a node of the sender's role, so that it is not a
        client.
        """
        senders = self._fault_space.of(_sender_role(api, is_response))
        sender = host or (
            self._pick(senders)
            if self._random.random() < 0.5 or api.clients != api.servers
            else None
        )
        return OnFrame(
            api_key=api.key,
            is_response=is_response,
            client=None if is_response else sender,
            server=sender if is_response else None,
            nth=self._nth(api.frames_max),
            moment=self._pick(moments),
        )

    def _nth(self, times_max: int) -> int:
        """Draw a number from 1 on by its magnitude: the first occurrences matter more than the
        thousandth.
        """
        return min(times_max, int((times_max + 1) ** self._random.random()))

    def _pick(self, values: Sequence[T]) -> T:
        return self._random.choice(values)


def _sender_role(api: Api, is_response: bool) -> str:
    return api.servers if is_response else api.clients


def _happens_at(trigger: Trigger, victim: str, any_victim: bool) -> bool:
    """Return whether a trigger fires at the victim, or, if any node may be the victim, only at
    allowed nodes.
    """
    match trigger:
        case OnFrame(is_response=is_response, client=client, server=server):
            return victim == (server if is_response else client)
        case OnDisk(host=host) | OnEvent(host=host) | OnState(host=host):
            return host == victim or (host is None and any_victim)
    return False
