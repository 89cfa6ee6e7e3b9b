"""What clients are told when no block of producer ids comes, by release, and what a producer of before KAFKA-14417 makes of it.

Source: KIP-730, KAFKA-14417 (brokers and clients), KAFKA-14694; asked of Apache Kafka 3.0.2, 3.3.2 and 3.6.2 without ZooKeeper.
"""

from typing import Final

from kraftsim.cluster.scenario import Stage, StoryFailed
from kraftsim.cluster.workload import IdAsker
from kraftsim.releases.catalogue import release
from kraftsim.releases.traits import PREFETCHED_PRODUCER_IDS, RETRIABLE_BLOCK_TIMEOUT
from protocol.errors import ErrorCode

ASKED_AGAIN: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
"""After these a producer of before 3.3.2 asks again; on everything else it ends."""


def waits_for_ids(line: str) -> bool:
    """Tell whether brokers of a release let a client wait for a block of ids."""
    return not release(line).has(PREFETCHED_PRODUCER_IDS)


def answer_without_ids(line: str) -> ErrorCode:
    """Return what brokers of a release say when there is none."""
    return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if release(line).has(RETRIABLE_BLOCK_TIMEOUT) else ErrorCode.REQUEST_TIMED_OUT


async def ask_as_before(stage: Stage, asker: IdAsker, pause_seconds: float) -> None:
    """Be a producer of before 3.3.2 that is told to ask again. Raises StoryFailed if it ends."""
    while (error := await asker.ask_once()) is not ErrorCode.NONE:
        if error not in ASKED_AGAIN:
            raise StoryFailed(f"a producer of before 3.3.2 ends on {error.name}")
        await stage.sleep(pause_seconds)
