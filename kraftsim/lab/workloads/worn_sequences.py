"""Idempotent producers whose sequences are nearly used up, as the start state of a workload.

Sequences of a producer wrap to 0 after 2147483647, which takes more records than a run can write. A
partition that knows nothing of a producer accepts any first sequence (KIP-360), so that a producer
may begin near the end: batches in flight, retries, failovers and snapshots then meet the wrap.
Source: DefaultRecordBatch.incrementSequence, ProducerAppendInfo.checkSequence.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from kraftsim.clients.rules_producer_steps import ProducerSettings
from kraftsim.cluster.scenario import ProducerDriver, ScenarioEnvironment
from kraftsim.producer_state.rules_entries import LAST_SEQUENCE
from kraftsim.releases.release import is_before

if TYPE_CHECKING:
    from random import Random  # noqa: TID251  (type only; the stream comes from the scenario environment)

WORN_SHARE: Final = 0.3
"""The share of producers whose sequences wrap within the run."""
SEQUENCES_LEFT_MAX: Final = 30
"""A writer of a scenario sends a few tens of records to each partition."""
ACCEPTS_SINCE: Final = "2.5"
"""Before, a partition without state answers UNKNOWN_PRODUCER_ID to any sequence but 0."""


def producer_of(
    stage: ScenarioEnvironment, name: str, settings: ProducerSettings | None = None
) -> ProducerDriver:
    """Return an idempotent producer that has not started; some, by seed, begin near the last
    sequence.
    """
    random: Random = stage.random("worn sequences")
    is_worn, left = random.random() < WORN_SHARE, random.randint(1, SEQUENCES_LEFT_MAX)
    chosen = settings or ProducerSettings()
    if is_worn and not is_before(stage.spec.release, ACCEPTS_SINCE):
        chosen = replace(chosen, first_sequence=LAST_SEQUENCE + 1 - left)
    return stage.producer(name, chosen)
