"""ACLs within fetch sessions (1): every partition of a session is authorized on each Fetch, for the
client that sends it.

Source: KIP-227, kafka.server.KafkaApis.handleFetchRequest,
kafka.server.FetchContext.foreachPartition; verified against Apache Kafka 3.9.1 and 4.4.0.
"""

from functools import partial

from kraftsim.conformance.expect import expect_equal, settled
from kraftsim.conformance.peer import Peer
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_login import log_in, sasl_peer
from kraftsim.conformance.security_rights import (
    ALICE,
    TOPIC_FAILED,
    create,
    delete,
    described_acls,
    produced,
    require_authorizer,
    rule,
    ruled,
)
from kraftsim.conformance.target import Target, TargetTopic
from protocol.acls import AclOperation
from protocol.errors import ErrorCode
from protocol.messages.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)

REQUIREMENTS = Requirements("security", 5, "ACLs in fetch sessions")
READ = AclOperation.READ
CONSUMER, DEBUGGING_CONSUMER, SOME_BROKER = -1, -2, 1
VERSIONS = (11, 13, 15)
"""With topic names; with topic ids; with ReplicaState."""
VERSION = 13
FIRST_VERSION_WITH_REPLICA_STATE = 15
WAIT_MS = 15_000
NO_TOPICS: tuple[TargetTopic, ...] = ()
REFUSED = TOPIC_FAILED, 0


class SecuritySession:
    """One fetch session of the leader of some topics, usable over any connection."""

    def __init__(self, version: int, topics: tuple[TargetTopic, ...]) -> None:
        self.version = version
        self._topics = {name: topic for topic in topics for name in (topic.name, topic.topic_id)}
        self.session_id, self._epoch = 0, 0

    def ask(
        self,
        peer: Peer,
        topics: tuple[TargetTopic, ...] = NO_TOPICS,
        *,
        replica_id: int = CONSUMER,
        skip: int = 0,
    ) -> FetchResponse:
        """Send the next Fetch of the session; `skip` makes its epoch wrong by so much."""
        row = FetchPartition(partition=0, partition_max_bytes=1000)
        asked = FetchRequest(
            session_id=self.session_id,
            session_epoch=self._epoch + skip,
            max_bytes=10000,
            topics=[
                FetchTopic(topic=each.name, topic_id=each.topic_id, partitions=[row])
                for each in topics
            ],
        )
        if self.version >= FIRST_VERSION_WITH_REPLICA_STATE:
            asked.replica_state = ReplicaState(replica_id=replica_id)
        else:
            asked.replica_id = replica_id
        answer = peer.ask(asked, self.version, FetchResponse)
        if not skip:
            self._epoch += 1
        self.session_id = self.session_id or answer.session_id
        return answer

    def found(
        self, peer: Peer, topics: tuple[TargetTopic, ...] = NO_TOPICS, *, replica_id: int = CONSUMER
    ) -> list[tuple[str, int, int]]:
        """Send the next Fetch; return topic name, error and whether there are records (1) for each
        topic of the response, in its order.
        """
        answer = self.ask(peer, topics, replica_id=replica_id)
        expect_equal(answer.error_code, 0, "the error of the Fetch as a whole")
        rows = []
        for topic in answer.responses:
            name = self._topics[topic.topic_id if self.version >= VERSION else topic.topic].name
            rows += [(name, each.error_code, int(bool(each.records))) for each in topic.partitions]
        return rows


def filled_topics(target: Target, count: int) -> tuple[TargetTopic, ...]:
    """Create topics with one record each. Raises Inapplicable without an authorizer."""
    require_authorizer(target)
    topics = tuple(target.topic() for _ in range(count))
    with target.peer() as peer:
        for topic in topics:
            expect_equal(
                settled(partial(produced, peer, topic), lambda error: not error, "a leader"),
                0,
                "Produce",
            )
    return topics


def bob(target: Target) -> Peer:
    """Return a connection of a principal without ACLs."""
    peer = sasl_peer(target)
    log_in(peer, "bob", "bob-secret")
    return peer


@REQUIREMENTS.that(
    1,
    "a session continued by another principal returns only what that principal may read: else "
    "TOPIC_AUTHORIZATION_FAILED",
    source="KafkaApis",
)
def continued_by_another(target: Target) -> None:
    (topic,) = filled_topics(target, 1)
    for version in VERSIONS:
        session = SecuritySession(version, (topic,))
        with ruled(target, rule(topic.name, READ)) as alice, bob(target) as other:
            expect_equal(
                session.found(alice, (topic,)), [(topic.name, 0, 1)], f"Fetch v{version} of alice"
            )
            expect_equal(
                session.found(other), [(topic.name, *REFUSED)], f"the next Fetch v{version} of bob"
            )
            expect_equal(
                session.found(other, replica_id=DEBUGGING_CONSUMER),
                [(topic.name, *REFUSED)],
                f"Fetch v{version} with replica_id -2",
            )
            expect_equal(
                session.found(alice),
                [(topic.name, 0, 1)],
                f"the Fetch v{version} of alice after that",
            )


@REQUIREMENTS.that(
    2,
    "a deleted ACL ends reading with the next Fetch of a session, an added one permits it",
    source="KafkaApis",
)
def right_changed(target: Target) -> None:
    topics = mine, other = filled_topics(target, 2)
    for version in VERSIONS:
        session = SecuritySession(version, topics)
        with ruled(target, rule(mine.name, READ)) as alice:
            expect_equal(
                session.found(alice, (other, mine)),
                [(mine.name, 0, 1), (other.name, *REFUSED)],
                f"Fetch v{version}",
            )
            create(target, rule(other.name, READ))
            expect_equal(
                sorted(session.found(alice)),
                sorted([(mine.name, 0, 1), (other.name, 0, 1)]),
                "with an ACL that was added",
            )
            for topic in topics:
                delete(target, topic.name, principal=ALICE)
                settled(
                    partial(described_acls, target, rule(topic.name, READ)),
                    lambda rows: not rows,
                    "no rule",
                )
            found = sorted(session.found(alice))
            expect_equal(
                found, sorted([(mine.name, *REFUSED), (other.name, *REFUSED)]), "without any ACL"
            )


@REQUIREMENTS.that(
    3,
    "a follower's Fetch by a principal that is no broker is rejected for the whole session: "
    "TOPIC_AUTHORIZATION_FAILED",
    source="KafkaApis",
)
def follower_within_session(target: Target) -> None:
    topics = mine, other = filled_topics(target, 2)
    for version in VERSIONS:
        session = SecuritySession(version, topics)
        with ruled(target, rule(mine.name, READ)) as alice, bob(target) as stranger:
            session.found(alice, (mine, other))
            for who, peer in (("alice", alice), ("bob", stranger)):
                found = sorted(session.found(peer, replica_id=SOME_BROKER))
                expect_equal(
                    found,
                    sorted([(mine.name, *REFUSED), (other.name, *REFUSED)]),
                    f"Fetch v{version} as broker 1 by {who}",
                )


@REQUIREMENTS.that(
    4,
    "session id and epoch are checked before any ACL: FETCH_SESSION_ID_NOT_FOUND and "
    "INVALID_FETCH_SESSION_EPOCH",
    source="KafkaApis, FetchSession",
)
def errors_of_sessions(target: Target) -> None:
    (topic,) = filled_topics(target, 1)
    session, absent = SecuritySession(VERSION, (topic,)), SecuritySession(VERSION, (topic,))
    with ruled(target, rule(topic.name, READ)) as alice, bob(target) as other:
        session.found(alice, (topic,))
        answer = session.ask(other, (topic,), skip=7)
        expect_equal(
            (answer.error_code, answer.responses),
            (int(ErrorCode.INVALID_FETCH_SESSION_EPOCH), []),
            "a wrong epoch of bob",
        )
        absent.session_id = 1 if session.session_id != 1 else 2
        answer = absent.ask(other, (topic,), skip=7)
        expect_equal(
            (answer.error_code, answer.responses),
            (int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND), []),
            "a session that does not exist",
        )


@REQUIREMENTS.that(
    5,
    "unauthorized partitions follow the others, without records, and do not complete the wait "
    "for min_bytes",
    source="KafkaApis",
)
def refused_rows(target: Target) -> None:
    mine, other = filled_topics(target, 2)
    rows = [
        FetchTopic(
            topic=each.name, topic_id=each.topic_id, partitions=[FetchPartition(partition=0)]
        )
        for each in (other, mine)
    ]
    for row in rows:
        row.partitions[0].partition_max_bytes = 1000
        row.partitions[0].fetch_offset = 1
    asked = FetchRequest(
        session_epoch=-1, max_bytes=10000, max_wait_ms=WAIT_MS, min_bytes=1, topics=rows
    )
    with ruled(target, rule(mine.name, READ)) as alice, target.peer() as peer:
        correlation_id = alice.send(asked, VERSION)
        expect_equal(alice.is_silent(), True, "whether the Fetch waits")
        produced(peer, mine)
        answer = alice.receive(asked, VERSION, correlation_id, FetchResponse)
        found = [
            (topic.topic_id, [(each.error_code, each.high_watermark) for each in topic.partitions])
            for topic in answer.responses
        ]
        expect_equal(
            found,
            [(mine.topic_id, [(0, 2)]), (other.topic_id, [(TOPIC_FAILED, -1)])],
            "the rows of the answer",
        )
        refused = answer.responses[1].partitions[0]
        expect_equal(
            (refused.aborted_transactions, refused.records),
            ([], b""),
            "aborted transactions and records of the refused row",
        )
