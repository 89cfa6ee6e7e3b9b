"""A transactional id has one partition of `__transaction_state`, and so one coordinator.
Source: KIP-98; TransactionStateManager.partitionFor.
"""

from random import Random

from kraftsim.groups.rules_timing import partition_of
from tools.claims.recording import Figures

PARTITIONS, IDS = 50, 2000
KNOWN = {"": 0, "a": 47, "copier-1": 26, "\u00e9": 33}
"""By `Utils.abs(transactionalId.hashCode) % 50` of Java."""


def test_transactional_id_always_maps_to_one_partition(figures: Figures) -> None:
    """A hash of the name alone, independent of caller, time and order; ids are spread over all
    partitions.
    """
    draw = Random(1)
    names = [
        "".join(chr(draw.randrange(33, 0x2000)) for _ in range(draw.randrange(1, 40)))
        for _ in range(IDS)
    ]
    placed = {name: partition_of(name, PARTITIONS) for name in names}
    draw.shuffle(names)
    assert all(partition_of(name, PARTITIONS) == placed[name] for name in names)
    assert set(placed.values()) == set(range(PARTITIONS))
    figures(names=len(placed), partitions=PARTITIONS, partitions_in_use=len(set(placed.values())))
