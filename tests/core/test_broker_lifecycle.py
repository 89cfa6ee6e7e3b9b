"""Scripts of broker registration, fencing, unfencing and shutdown (tests/core/scripts), with tables
for the other cases.

Source: KIP-631, ClusterControlManager, BrokerHeartbeatManager.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest

from kraftsim.core.decision import Decision, Refusal
from kraftsim.events.event import Event
from kraftsim.metadata.events import PartitionChanged
from kraftsim.metadata.rules_brokers import (
    BrokerControlState,
    HeartbeatTransition,
    check_at_ms,
    check_period_ms,
    next_state,
)
from kraftsim.metadata.rules_controller_state import ControllerState
from kraftsim.metadata.rules_features import bootstrap_at, bootstrap_records
from kraftsim.metadata.rules_partitions import TopicDefaults
from kraftsim.releases.release import release
from kraftsim.releases.traits import CHECKS_SESSIONS_PERIODICALLY
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopic, CreateTopicsRequest
from protocol.messages.k62_broker_registration import BrokerRegistrationRequest, Feature, Listener
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest
from protocol.metadata.registry import build_record, parse_record
from protocol.metadata.topics import PartitionRecord, TopicRecord
from protocol.schema import Message
from tests.core.fixed_random import Drawn

T = TypeVar("T")

LEVEL = 21


def new_state(level: int = LEVEL) -> ControllerState:
    """Return a controller with an empty log, one second before the first event."""
    return ControllerState(
        cluster_id="cluster",
        session_timeout_ms=9000,
        metadata_version=level,
        topic_defaults=TopicDefaults(),
    )


def registration(
    broker_id: int = 1, incarnation: str = "a", **changes: object
) -> BrokerRegistrationRequest:
    """Return the registration request of a 3.9 broker; directory ids are its own."""
    fields: dict[str, object] = {
        "broker_id": broker_id,
        "cluster_id": "cluster",
        "incarnation_id": incarnation.encode().rjust(16),
        "listeners": [Listener(name="PLAINTEXT", host="localhost", port=9092)],
        "features": [
            Feature(name="metadata.version", min_supported_version=1, max_supported_version=LEVEL)
        ],
        "log_dirs": [bytes([broker_id % 256]) * 16],
    }
    # arg-type: a dict of values of several types
    return BrokerRegistrationRequest(**(fields | changes))  # type: ignore[arg-type]


class Controller:
    """A controller that commits immediately, driven by lines such as "heartbeat 1 epoch=4
    offset=4".
    """

    def __init__(self) -> None:
        self.state = new_state()
        self.next_offset = 0
        self.now_ms = 0
        self.write(bootstrap_records(bootstrap_at(LEVEL)))

    def write(self, records: Sequence[Message]) -> list[str]:
        """Append and replay records, and return their text."""
        lines = []
        for record in records:
            lines.append(f"{self.next_offset}: {_record_line(record)}")
            self.state.replay(record, self.next_offset)
            self.next_offset += 1
        self.state.commit_through(self.next_offset - 1)
        return lines

    def answer(self, line: str) -> str:
        verb, *words = line.split()
        flags = {word.split("=")[0]: word.partition("=")[2] for word in words[1:]}
        return "\n".join(getattr(self, f"do_{verb}")(words[0] if words else "", flags))

    def do_at(self, now_ms: str, flags: dict[str, str]) -> list[str]:
        self.now_ms = int(now_ms)
        return []

    def do_register(self, broker_id: str, flags: dict[str, str]) -> list[str]:
        request = registration(int(broker_id), flags["incarnation"])
        return self._carry_out(self.state.decide_register(request, self.next_offset, self.now_ms))

    def do_heartbeat(self, broker_id: str, flags: dict[str, str]) -> list[str]:
        request = BrokerHeartbeatRequest(
            broker_id=int(broker_id),
            broker_epoch=int(flags["epoch"]),
            current_metadata_offset=int(flags.get("offset", self.next_offset - 1)),
            want_fence="fence" in flags,
            want_shut_down="shutdown" in flags,
        )
        return self._carry_out(self.state.decide_heartbeat(request, self.next_offset, self.now_ms))

    def do_tick(self, _: str, flags: dict[str, str]) -> list[str]:
        lines = []
        while (decision := self.state.decide_fence_stale(self.now_ms)) is not None:
            lines += [f"fences {decision.result}", *self.write(decision.records)]
        return [*lines, f"next session over at {self.state.cluster.next_stale_at_ms()}"]

    def do_activate(self, _: str, flags: dict[str, str]) -> list[str]:
        self.state.activate(self.now_ms)
        return []

    def do_topic(self, name: str, flags: dict[str, str]) -> list[str]:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=name, num_partitions=int(flags["partitions"]), replication_factor=1
                )
            ]
        )
        decision = self.state.replication.decide_create_topics(
            request, Drawn(name.encode().rjust(16))
        )
        assert isinstance(decision, Decision)
        self.write(decision.records)
        return self.do_partitions("", {})

    def do_partitions(self, _: str, flags: dict[str, str]) -> list[str]:
        return [
            (
                f"{topic_id.decode().strip()}-{partition}: leader {held.leader} epoch "
                f"{held.leader_epoch} isr {list(held.isr)}"
            )
            for (topic_id, partition), held in self.state.replication.partitions()
        ]

    def _carry_out(self, decision: Decision[T] | Refusal) -> list[str]:
        if isinstance(decision, Refusal):
            return [f"refused {decision.error.name}"]
        lines = [f"answer {_reply(decision.result)}", *self.write(decision.records)]
        return [*lines, *(f"fact {type(fact).__name__} {_about(fact)}" for fact in decision.facts)]


def _about(fact: Event) -> str:
    if isinstance(fact, PartitionChanged):
        return (
            f"{fact.topic}-{fact.partition} leader={fact.leader} "
            f"leader_epoch={fact.leader_epoch} isr={fact.isr}"
        )
    return str(getattr(fact, "broker_id", ""))


def _reply(result: object) -> str:
    if isinstance(result, int):
        return f"epoch {result}"
    names = ("is_caught_up", "is_fenced", "should_shut_down")
    return " ".join(name for name in names if getattr(result, name)) or "serve"


def _record_line(record: Message) -> str:
    shown = (
        "broker_id",
        "broker_epoch",
        "fenced",
        "in_controlled_shutdown",
        "partition_id",
        "isr",
        "leader",
    )
    fields = [
        f"{name}={getattr(record, name)}"
        for name in shown
        if getattr(record, name, None) is not None
    ]
    return " ".join([type(record).__name__, *fields])


@pytest.mark.parametrize(
    "script", ["broker_registration", "broker_session_expiry", "broker_restart"]
)
def test_broker_lifecycle_scripts(
    script: str, run_script: Callable[[str, Callable[[str], str]], None]
) -> None:
    """The comments of each script name the rule that it covers."""
    run_script(script, Controller().answer)


F, U, C, S = (
    BrokerControlState.FENCED,
    BrokerControlState.UNFENCED,
    BrokerControlState.CONTROLLED_SHUTDOWN,
    BrokerControlState.SHUTDOWN_NOW,
)


@pytest.mark.parametrize(
    ("current", "wishes", "following"),
    [
        (F, "shutdown", S),
        (F, "fence shutdown caught-up", S),
        (F, "caught-up", U),
        (F, "", F),
        (F, "fence caught-up", F),
        (U, "fence shutdown", S),
        (U, "fence", F),
        (U, "shutdown leads", C),
        (U, "shutdown", S),
        (U, "", U),  # behind again: unchanged
        (C, "shutdown leads others", C),
        (C, "shutdown others", S),
        (C, "shutdown", C),
        (C, "leads", C),  # without a shutdown request nothing changes
    ],
)
def test_heartbeat_state_transitions(
    current: BrokerControlState, wishes: str, following: BrokerControlState
) -> None:
    """Every pair of a broker's state and the state requested in its heartbeat
    (BrokerHeartbeatManager.calculateNextBrokerState).
    """
    wish = HeartbeatTransition(
        wants_fence="fence" in wishes,
        wants_shut_down="shutdown" in wishes,
        is_caught_up="caught-up" in wishes,
        leads_partitions="leads" in wishes,
        others_are_caught_up="others" in wishes,
    )
    assert next_state(current, wish) is following


OTHER_LEVELS = [Feature(name="metadata.version", min_supported_version=1, max_supported_version=20)]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (registration(1, "a"), None),
        (registration(1, "b"), ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        (registration(2, cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(1, "b", cluster_id="another"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (registration(2, is_migrating_zk_broker=True), ErrorCode.BROKER_ID_NOT_REGISTERED),
        (registration(2, log_dirs=[]), ErrorCode.INVALID_REGISTRATION),
        (
            registration(2, log_dirs=[bytes(15) + b"\x63"]),
            ErrorCode.INVALID_REGISTRATION,
        ),  # reserved: 99
        (registration(2, log_dirs=[bytes(15) + b"\x64"]), None),
        (registration(2, log_dirs=[b"x" * 16, b"x" * 16]), ErrorCode.INVALID_REGISTRATION),
        (
            registration(2, log_dirs=[bytes([1]) * 16]),
            ErrorCode.INVALID_REGISTRATION,
        ),  # of broker 1
        (registration(2, features=OTHER_LEVELS), ErrorCode.UNSUPPORTED_VERSION),
        (registration(2, features=[]), ErrorCode.UNSUPPORTED_VERSION),  # treated as 1 to 1
        (registration(-1), None),  # Kafka does not check the sign
    ],
)
def test_registration_is_accepted_or_rejected(
    request_: BrokerRegistrationRequest, error: ErrorCode | None
) -> None:
    """Broker 1, incarnation a, is registered and has just sent a heartbeat."""
    controller = Controller()
    for line in ("register 1 incarnation=a", "heartbeat 1 epoch=4 offset=4"):
        controller.answer(line)
    decision = controller.state.decide_register(request_, controller.next_offset, controller.now_ms)
    assert decision == Refusal(error) if error is not None else isinstance(decision, Decision)


def test_directories_are_neither_required_nor_stored_below_level_17() -> None:
    """A 3.5 controller does not support them.   Source: KIP-858."""
    decision = new_state(11).decide_register(
        registration(
            features=[
                Feature(name="metadata.version", min_supported_version=1, max_supported_version=11)
            ]
        ),
        0,
        0,
    )
    assert isinstance(decision, Decision) and decision.records[0].log_dirs == []


@pytest.mark.parametrize(("partitions", "is_refused"), [(9_999, False), (10_000, True)])
def test_broker_with_too_many_partitions_is_not_unregistered(
    partitions: int, is_refused: bool
) -> None:
    """QuorumController.MAX_RECORDS_PER_USER_OP, including the broker's own record."""
    controller = Controller()
    for line in ("register 1 incarnation=a", "heartbeat 1 epoch=4 offset=4"):
        controller.answer(line)
    topic_id = b"topic".rjust(16)
    controller.write([TopicRecord(name="large", topic_id=topic_id)])
    for number in range(partitions):
        record = PartitionRecord(
            topic_id=topic_id,
            partition_id=number,
            replicas=[1, 2],
            isr=[1, 2],
            leader=1,
            directories=[bytes(16)] * 2,
        )
        controller.state.replay(record, controller.next_offset + number)
    decision = controller.state.decide_unregister(1)
    refusal = Refusal(
        ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
    )
    assert (
        decision == refusal
        if is_refused
        else isinstance(decision, Decision) and len(decision.records) == partitions + 1
    )


@pytest.mark.parametrize(
    ("level", "let_in", "leaving", "gone"),
    [
        (4, "UnfenceBrokerRecord", [], "FenceBrokerRecord"),
        (5, "UnfenceBrokerRecord", [], "FenceBrokerRecord"),
        (6, "BrokerRegistrationChangeRecord", [], "BrokerRegistrationChangeRecord"),
        (
            7,
            "BrokerRegistrationChangeRecord",
            ["BrokerRegistrationChangeRecord"],
            "BrokerRegistrationChangeRecord",
        ),
    ],
)
def test_metadata_version_decides_the_records_of_broker_state_changes(
    level: int, let_in: str, leaving: list[str], gone: str
) -> None:
    """Below 3.3-IV2 the records can only fence and unfence, below 3.3-IV3 they have no controlled
    shutdown (verified with Apache Kafka 3.5.2 at these levels).
    """
    state, log = new_state(level), list[Message]()

    def take(decision: Decision[T] | Refusal) -> list[str]:
        assert isinstance(decision, Decision)
        for record in decision.records:
            assert parse_record(build_record(record, state.record_version(record))) == record, (
                "the level supports it"
            )
            state.replay(record, len(log))
            log.append(record)
        return [type(record).__name__ for record in decision.records]

    for record in bootstrap_records(bootstrap_at(level)):
        state.replay(record, len(log))
        log.append(record)
    take(state.decide_register(registration(log_dirs=[]), len(log), 0))
    epoch = len(log) - 1

    def heartbeat(**wish: bool) -> list[str]:
        request = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=epoch,
            current_metadata_offset=len(log) - 1,
            **wish,  # type: ignore[arg-type]  # keyword arguments of several types
        )
        return take(state.decide_heartbeat(request, len(log), 0))

    assert heartbeat() == [let_in]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    take(
        state.replication.decide_create_topics(
            CreateTopicsRequest(topics=[topic]), Drawn(b"t".rjust(16))
        )
    )
    assert heartbeat(want_shut_down=True) == [*leaving, "PartitionChangeRecord"]
    assert heartbeat(want_shut_down=True) == [gone]


def test_expired_sessions_are_found_at_the_next_check_since_4_0() -> None:
    """Eight checks per session; before 4.0 each session expires at its own time."""
    period_ms = check_period_ms(9000, is_periodic=True)
    assert [check_at_ms(due_ms, 100, period_ms) for due_ms in (1224, 1225, 1226, 9101)] == [
        1225,
        1225,
        2350,
        10225,
    ]
    assert check_at_ms(9101, 100, check_period_ms(9000, is_periodic=False)) == 9101
    assert check_period_ms(4, is_periodic=True) == 1
    assert [release(name).has(CHECKS_SESSIONS_PERIODICALLY) for name in ("3.9", "4.0", "4.4")] == [
        False,
        True,
        True,
    ]
