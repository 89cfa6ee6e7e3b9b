"""What clients receive, by release, when no block of producer ids is available, and how a
pre-KAFKA-14417 producer reacts.

Source: KIP-730, KAFKA-14417 (brokers and clients), KAFKA-14694; observed on Apache Kafka 3.0.2,
3.3.2 and 3.6.2 in KRaft mode.
"""

from typing import Final

from kraftsim.cluster.scenario import ScenarioEnvironment, ScenarioFailed
from kraftsim.cluster.workload import ProducerIdClient
from kraftsim.releases.catalogue import release
from kraftsim.releases.traits import PREFETCHED_PRODUCER_IDS, RETRIABLE_BLOCK_TIMEOUT
from protocol.errors import ErrorCode

RETRIED_ERRORS: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""Errors after which a pre-3.3.2 producer retries; any other error is fatal to it."""


def waits_for_ids(line: str) -> bool:
    """Return whether brokers of a release block the client's request until a block of ids is
    available.
    """
    return not release(line).has(PREFETCHED_PRODUCER_IDS)


def answer_without_ids(line: str) -> ErrorCode:
    """Return the error with which brokers of a release answer when there is no block."""
    return (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if release(line).has(RETRIABLE_BLOCK_TIMEOUT)
        else ErrorCode.REQUEST_TIMED_OUT
    )


async def retry_as_before(
    stage: ScenarioEnvironment, requester: ProducerIdClient, pause_seconds: float
) -> None:
    """Retry as a pre-3.3.2 producer does. Raises ScenarioFailed on an error that is fatal to it."""
    while (error := await requester.ask_once()) is not ErrorCode.NONE:
        if error not in RETRIED_ERRORS:
            raise ScenarioFailed(f"{error.name} is fatal to a pre-3.3.2 producer")
        await stage.sleep(pause_seconds)
