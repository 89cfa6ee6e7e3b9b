"""AllocateProducerIds (67): disjoint blocks of producer ids for brokers.

Source: KIP-730; ProducerIdControlManager.generateNextProducerId.
"""

from kraftsim.conformance.emulated_broker import throw_away_broker
from kraftsim.conformance.expect import expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import Target
from protocol.errors import ErrorCode

REQUIREMENTS = Requirements("controller", 3, "Blocks of producer ids")
GENERATE = "KIP-730; ProducerIdControlManager"
BLOCK_SIZE = 1000
BLOCKS = 5


@REQUIREMENTS.that(
    1, "a broker gets blocks of a thousand ids, each after the previous one", source=GENERATE
)
def blocks(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered()
        answers = [broker.allocate() for _ in range(BLOCKS)]
    expect_equal(
        [answer.error_code for answer in answers], [int(ErrorCode.NONE)] * BLOCKS, "error codes"
    )
    expect_equal(
        [answer.producer_id_len for answer in answers], [BLOCK_SIZE] * BLOCKS, "ids in a block"
    )
    first = answers[0].producer_id_start
    expected = [first + BLOCK_SIZE * number for number in range(BLOCKS)]
    expect_equal(
        [answer.producer_id_start for answer in answers],
        expected,
        "first ids of consecutive blocks of one broker",
    )


@REQUIREMENTS.that(2, "two brokers get different blocks", source=GENERATE)
def two_brokers(target: Target) -> None:
    with throw_away_broker(target) as one, throw_away_broker(target) as other:
        one.registered()
        other.registered()
        starts = [broker.allocate().producer_id_start for _ in range(3) for broker in (one, other)]
    expect_equal(starts, sorted(set(starts)), "first ids in the order of allocation")


@REQUIREMENTS.that(3, "a registered broker gets ids while it is fenced", source=GENERATE)
def fenced_broker(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered()
        broker.heartbeat(want_fence=True)
        expect_error(broker.allocate().error_code, ErrorCode.NONE, "a fenced broker's request")


@REQUIREMENTS.that(
    4,
    "an unregistered broker gets no ids but STALE_BROKER_EPOCH",
    source="ClusterControlManager.checkBrokerEpoch",
)
def unknown_broker(target: Target) -> None:
    with throw_away_broker(target) as broker:
        for epoch in (0, -1, 2**62):
            answer = broker.allocate(epoch)
            expect_error(
                answer.error_code, ErrorCode.STALE_BROKER_EPOCH, f"a request with epoch {epoch}"
            )
            expect_equal(answer.producer_id_len, 0, "ids in an error response")


@REQUIREMENTS.that(
    5,
    "a request with another broker epoch gets no ids but STALE_BROKER_EPOCH",
    source="ClusterControlManager.checkBrokerEpoch",
)
def stale_epoch(target: Target) -> None:
    with throw_away_broker(target) as broker:
        epoch = broker.registered()
        for wrong in (epoch - 1, epoch + 1):
            expect_error(
                broker.allocate(wrong).error_code,
                ErrorCode.STALE_BROKER_EPOCH,
                f"a request with epoch {wrong}, registered under {epoch}",
            )


@REQUIREMENTS.that(
    6, "the ids of a block are allocated to producers by no other broker", source=GENERATE
)
def allocated_by_one_broker(target: Target) -> None:
    with throw_away_broker(target) as broker:
        broker.registered()
        answer = broker.allocate()
        own = range(answer.producer_id_start, answer.producer_id_start + answer.producer_id_len)
        handed_out = [target.producer_id()[0] for _ in range(BLOCK_SIZE // 50)]
    expect_equal(
        [each for each in handed_out if each in own],
        [],
        "ids that a broker allocated from another's block",
    )
