"""InitProducerId (22): producer ids without a transactional id, and requests that are rejected
before the coordinator.

Source: KIP-98, KIP-360; TransactionCoordinator.handleInitProducerId, ProducerIdManager.
"""

import itertools
import time

from kraftsim.conformance.expect import expect, expect_equal, expect_error
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.target import SETTLE_SECONDS, Target
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k22_init_producer_id import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    InitProducerIdRequest,
    InitProducerIdResponse,
)

REQUIREMENTS = Requirements("init-producer-id", 1, "Without a transactional id")
COORDINATOR = "TransactionCoordinator.handleInitProducerId"
WITH_CURRENT_ID_SINCE = 3
BLOCK_SIZE = 1000
NOT_YET = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.REQUEST_TIMED_OUT)
"""The errors while a broker waits for its next block: 14 since 3.6, 7 before."""
TIMEOUT_MS = 60000


def _ask_until_answered(
    target: Target, version: int, asked: InitProducerIdRequest
) -> InitProducerIdResponse:
    give_up_at = time.monotonic() + SETTLE_SECONDS
    with target.peer() as peer:
        while True:
            answer = peer.ask(asked, version, InitProducerIdResponse)
            if answer.error_code not in NOT_YET or time.monotonic() > give_up_at:
                return answer


@REQUIREMENTS.that(
    1,
    "every version returns new producer ids with epoch 0, none of them twice",
    source="KIP-98; KIP-730",
)
def fresh_ids(target: Target) -> None:
    ids = []
    for version in target.versions(ApiKey.INIT_PRODUCER_ID):
        for _ in range(5):
            answer = _ask_until_answered(
                target,
                version,
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS),
            )
            expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
            expect_equal(answer.producer_epoch, 0, f"version {version}: epoch")
            expect(answer.producer_id >= 0, f"version {version}: id {answer.producer_id}")
            ids.append(answer.producer_id)
    expect_equal(len(set(ids)), len(ids), "different ids")


@REQUIREMENTS.that(
    2,
    "each id is returned once, also across blocks; in between only COORDINATOR_LOAD_IN_PROGRESS "
    "(before 3.6 REQUEST_TIMED_OUT)",
    source="KIP-730; KAFKA-15459",
)
def beyond_a_block(target: Target) -> None:
    ids: list[int] = []
    version = target.newest(ApiKey.INIT_PRODUCER_ID)
    asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=TIMEOUT_MS)
    give_up_at = time.monotonic() + SETTLE_SECONDS
    with target.peer() as peer:
        while len(ids) < BLOCK_SIZE + BLOCK_SIZE // 5:
            answer = peer.ask(asked, version, InitProducerIdResponse)
            if answer.error_code == ErrorCode.NONE:
                ids.append(answer.producer_id)
                continue
            expect(answer.error_code in NOT_YET, f"error {answer.error_code} after {len(ids)} ids")
            expect_equal(
                (answer.producer_id, answer.producer_epoch),
                (NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
                "id and epoch in an error response",
            )
            expect(time.monotonic() < give_up_at, f"only {len(ids)} ids in {SETTLE_SECONDS:g} s")
    expect_equal(len(set(ids)), len(ids), "different ids")
    steps = {later - earlier for earlier, later in itertools.pairwise(ids)}
    expect(
        1 in steps and min(steps) >= 1, f"ids of one broker do not rise: steps {sorted(steps)[:5]}"
    )


@REQUIREMENTS.that(
    3,
    "producer id and epoch are given both or not at all, else INVALID_REQUEST",
    source=COORDINATOR,
)
def half_given(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.INIT_PRODUCER_ID, since=WITH_CURRENT_ID_SINCE):
            for producer_id, producer_epoch in ((7, NO_PRODUCER_EPOCH), (NO_PRODUCER_ID, 0)):
                for transactional_id in (None, "conformance"):
                    asked = InitProducerIdRequest(
                        transactional_id=transactional_id,
                        transaction_timeout_ms=TIMEOUT_MS,
                        producer_id=producer_id,
                        producer_epoch=producer_epoch,
                    )
                    answer = peer.ask(asked, version, InitProducerIdResponse)
                    what = (
                        f"version {version}, id {producer_id}, epoch {producer_epoch}, "
                        f"transactional id {transactional_id}"
                    )
                    expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, what)
                    expect_equal(
                        (answer.producer_id, answer.producer_epoch),
                        (NO_PRODUCER_ID, NO_PRODUCER_EPOCH),
                        f"{what}: id and epoch in an error response",
                    )


@REQUIREMENTS.that(
    4,
    "without a transactional id a given producer id and epoch are ignored, and a new id is "
    "returned",
    source=COORDINATOR,
)
def given_id_is_ignored(target: Target) -> None:
    for version in target.versions(ApiKey.INIT_PRODUCER_ID, since=WITH_CURRENT_ID_SINCE):
        before, epoch = target.producer_id()
        asked = InitProducerIdRequest(
            transactional_id=None,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=before,
            producer_epoch=epoch,
        )
        answer = _ask_until_answered(target, version, asked)
        expect_error(answer.error_code, ErrorCode.NONE, f"version {version}")
        expect(answer.producer_id != before, f"version {version}: the given id is returned again")
        expect_equal(answer.producer_epoch, 0, f"version {version}: epoch")


@REQUIREMENTS.that(
    5, "an empty transactional id is rejected with INVALID_REQUEST", source=COORDINATOR
)
def empty_transactional_id(target: Target) -> None:
    with target.peer() as peer:
        for version in target.versions(ApiKey.INIT_PRODUCER_ID):
            answer = peer.ask(
                InitProducerIdRequest(transactional_id="", transaction_timeout_ms=TIMEOUT_MS),
                version,
                InitProducerIdResponse,
            )
            expect_error(answer.error_code, ErrorCode.INVALID_REQUEST, f"version {version}")


@REQUIREMENTS.that(
    6, "without a transactional id the transaction time-out is ignored", source=COORDINATOR
)
def timeout_does_not_matter(target: Target) -> None:
    for timeout_ms in (0, -1, 2**31 - 1):
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=timeout_ms)
        answer = _ask_until_answered(target, target.newest(ApiKey.INIT_PRODUCER_ID), asked)
        expect_error(answer.error_code, ErrorCode.NONE, f"a time-out of {timeout_ms} ms")
