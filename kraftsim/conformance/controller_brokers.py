"""BrokerRegistration (62) and BrokerHeartbeat (63): how a broker is registered, kept fenced,
unfenced, and shut down.

Source: KIP-631; ClusterControlManager.registerBroker,
ReplicationControlManager.processBrokerHeartbeat, BrokerHeartbeatManager.
"""

from kraftsim.conformance.emulated_broker import CAUGHT_UP, LOG_DIRS_SINCE, throw_away_broker
from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k62_broker_registration import Feature
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatResponse

REQUIREMENTS = Requirements("controller", 2, "Registration and heartbeats of brokers")
REGISTER = "ClusterControlManager.registerBroker"
HEARTBEAT = "ReplicationControlManager.processBrokerHeartbeat"
NO_EPOCH = -1


@REQUIREMENTS.that(
    1, "each registration of a broker returns a higher broker epoch", source=f"KIP-631; {REGISTER}"
)
def registers(target: Target) -> None:
    epochs = []
    for _ in range(3):
        with throw_away_broker(target) as broker:
            epochs.append(broker.registered())
    expect(epochs[0] >= 0, f"a broker epoch of {epochs[0]}")
    expect_equal(epochs, sorted(set(epochs)), "broker epochs in the order of allocation")


@REQUIREMENTS.that(
    2, "another incarnation of a fenced broker replaces it with a higher epoch", source=REGISTER
)
def another_incarnation(target: Target) -> None:
    with throw_away_broker(target) as broker:
        first = broker.registered(incarnation=1)
        second = broker.registered(incarnation=2)
        expect(second > first, f"epoch {second} after epoch {first}")
        expect_error(
            broker.heartbeat(epoch=first).error_code,
            ErrorCode.STALE_BROKER_EPOCH,
            "a heartbeat of the first incarnation",
        )
        expect_error(
            broker.heartbeat().error_code, ErrorCode.NONE, "a heartbeat of the second incarnation"
        )


@REQUIREMENTS.that(
    3,
    "a repeated registration of the same incarnation keeps its broker epoch",
    source=f"{REGISTER}; verified against Apache Kafka 3.8.1 and 3.9.1",
    since="3.9",
)
def the_same_incarnation(target: Target) -> None:
    with throw_away_broker(target) as broker:
        first = broker.registered()
        expect_equal(broker.registered(), first, "the epoch of the repeated registration")


@REQUIREMENTS.that(
    4,
    "a registration with another cluster id is rejected with INCONSISTENT_CLUSTER_ID",
    source=REGISTER,
)
def another_cluster(target: Target) -> None:
    with throw_away_broker(target) as broker:
        asked = broker.request()
        asked.cluster_id = "another-cluster-of-ours"
        answer = broker.register(asked)
        expect_error(
            answer.error_code,
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            "a registration with another cluster's id",
        )
        expect_equal(answer.broker_epoch, NO_EPOCH, "the epoch in an error response")


@REQUIREMENTS.that(
    5,
    "a broker that does not support the cluster's metadata.version is rejected with "
    "UNSUPPORTED_VERSION",
    source=REGISTER,
)
def too_old_a_broker(target: Target) -> None:
    with throw_away_broker(target) as broker:
        asked = broker.request()
        others = [feature for feature in asked.features if feature.name != "metadata.version"]
        asked.features = [
            *others,
            Feature(name="metadata.version", min_supported_version=1, max_supported_version=1),
        ]
        answer = broker.register(asked)
        expect_error(
            answer.error_code,
            ErrorCode.UNSUPPORTED_VERSION,
            "a registration with metadata.version 1 to 1",
        )
        expect_equal(answer.broker_epoch, NO_EPOCH, "the epoch in an error response")


@REQUIREMENTS.that(
    6,
    "a registration without log directories is rejected with INVALID_REGISTRATION",
    source=f"KIP-858; {REGISTER}",
    since="3.7",
)
def no_log_directory(target: Target) -> None:
    with throw_away_broker(target) as broker:
        expect(
            target.range_of(ApiKey.BROKER_REGISTRATION, target.controller_address())[1]
            >= LOG_DIRS_SINCE,
            "version 2 is not offered",
        )
        asked = broker.request()
        asked.log_dirs = []
        answer = broker.register(asked)
        expect_error(
            answer.error_code,
            ErrorCode.INVALID_REGISTRATION,
            "a registration without log directories",
        )
        expect_equal(answer.broker_epoch, NO_EPOCH, "the epoch in an error response")


@REQUIREMENTS.that(7, "a rejected registration changes nothing", source=REGISTER)
def refusals_change_nothing(target: Target) -> None:
    with throw_away_broker(target) as broker:
        epoch = broker.registered()
        asked = broker.request(incarnation=2)
        asked.cluster_id = "another-cluster-of-ours"
        broker.register(asked)
        expect_error(
            broker.heartbeat(epoch=epoch).error_code,
            ErrorCode.NONE,
            "a heartbeat under the epoch given before",
        )


@REQUIREMENTS.that(
    8,
    "a heartbeat of an unregistered broker is rejected with STALE_BROKER_EPOCH",
    source="ClusterControlManager.checkBrokerEpoch",
)
def unknown_broker(target: Target) -> None:
    with throw_away_broker(target) as broker:
        for epoch in (0, 1, NO_EPOCH, 2**62):
            expect_error(
                broker.heartbeat(epoch=epoch).error_code,
                ErrorCode.STALE_BROKER_EPOCH,
                f"a heartbeat under epoch {epoch}",
            )


@REQUIREMENTS.that(
    9,
    "a heartbeat with another broker epoch is rejected with STALE_BROKER_EPOCH",
    source="ClusterControlManager.checkBrokerEpoch",
)
def stale_epoch(target: Target) -> None:
    with throw_away_broker(target) as broker:
        epoch = broker.registered()
        for wrong in (epoch - 1, epoch + 1, NO_EPOCH):
            answer = broker.heartbeat(epoch=wrong)
            expect_error(
                answer.error_code,
                ErrorCode.STALE_BROKER_EPOCH,
                f"a heartbeat under epoch {wrong}, registered under {epoch}",
            )
            expect_equal(
                _state(answer),
                (False, True, False),
                "caught up, fenced, to shut down, in an error response",
            )


@REQUIREMENTS.that(
    10,
    "a broker stays fenced until it has caught up with the metadata, even if it requests to be "
    "unfenced",
    source="BrokerHeartbeatManager; KIP-631",
)
def fenced_until_caught_up(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered()
        for want_fence in (True, False):
            answer = broker.heartbeat(offset=0, want_fence=want_fence)
            expect_error(answer.error_code, ErrorCode.NONE, "a heartbeat")
            expect_equal(
                _state(answer),
                (False, True, False),
                f"caught up, fenced, to shut down, where it wants {'out' if want_fence else 'in'}",
            )


@REQUIREMENTS.that(
    11,
    "a caught-up broker is unfenced when it requests it, and fenced when it requests it",
    source=HEARTBEAT,
)
def in_and_out(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered()
        expect_equal(
            _state(broker.heartbeat(offset=CAUGHT_UP, want_fence=True)),
            (True, True, False),
            "caught up, fenced, to shut down, waiting",
        )
        expect_equal(
            _state(broker.heartbeat(offset=CAUGHT_UP, want_fence=False)),
            (True, False, False),
            "the same, unfenced",
        )
        expect_equal(
            _state(broker.heartbeat(offset=CAUGHT_UP, want_fence=True)),
            (True, True, False),
            "the same, fenced again",
        )


@REQUIREMENTS.that(
    12,
    "a broker that leads no partition may shut down as soon as it requests it",
    source=f"{HEARTBEAT}; KIP-631: controlled shutdown",
)
def shuts_down(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered()
        expect_equal(
            _state(broker.heartbeat(offset=CAUGHT_UP, want_fence=False)),
            (True, False, False),
            "caught up, fenced, to shut down, unfenced",
        )
        last = broker.heartbeat(offset=CAUGHT_UP, want_fence=False, want_shut_down=True)
        expect(last.should_shut_down, "a broker that leads nothing may not shut down")


@REQUIREMENTS.that(
    13,
    "a second broker with the id of an unfenced one is rejected with DUPLICATE_BROKER_REGISTRATION",
    source=f"{REGISTER}: the session of the first is alive",
)
def duplicate(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered(incarnation=1)
        broker.heartbeat(offset=CAUGHT_UP, want_fence=False)
        answer = broker.register(broker.request(incarnation=2))
        expect_error(
            answer.error_code,
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "another incarnation while the first is alive",
        )
        expect_equal(answer.broker_epoch, NO_EPOCH, "the epoch in an error response")
        expect_error(
            broker.heartbeat(offset=CAUGHT_UP).error_code,
            ErrorCode.NONE,
            "a heartbeat of the first",
        )


@REQUIREMENTS.that(
    14,
    "a broker that migrates from ZooKeeper is rejected with BROKER_ID_NOT_REGISTERED unless "
    "migration is enabled on the controllers",
    source=f"KIP-866; {REGISTER}",
    since="3.4",
)
def migrates_from_nowhere(target: Target) -> None:
    with throw_away_broker(target) as broker:
        asked = broker.request()
        asked.is_migrating_zk_broker = True
        answer = broker.register(asked)
        expect_error(
            answer.error_code, ErrorCode.BROKER_ID_NOT_REGISTERED, "a broker that migrates"
        )
        expect_equal(answer.broker_epoch, NO_EPOCH, "the epoch in an error response")


def _state(answer: BrokerHeartbeatResponse) -> tuple[bool, bool, bool]:
    return answer.is_caught_up, answer.is_fenced, answer.should_shut_down
