"""The seven properties of Apache Kafka's RaftEventSimulationTest, two seeds of each; `make
raft-properties` runs a thousand.
"""

from collections.abc import Callable

import pytest

from kraftsim.lab.bugs.bug import bug
from kraftsim.raft.rules_log import RaftLog
from kraftsim.raft.rules_roles import Leadership
from kraftsim.server.parts import Parts
from kraftsim.world.simulated.errors import SimulationStopped
from tests.simulate.raft_properties.properties import PROPERTIES, run


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", PROPERTIES)
def test_property_holds(name: str, seed: int) -> None:
    """All invariants hold after every event, and every replica learns what is committed.

    The histories are checked not to be trivial.
    """
    result = run(name, seed)
    assert result.looks > 50 and result.end_offset > 10


def test_seed_is_reproducible() -> None:
    name = "can_recover_after_all_nodes_killed"
    assert run(name, 1) == run(name, 1)


class CommitsWhatItHas(Leadership):
    """A leader that waits for no voter."""

    def high_watermark(self, log: RaftLog) -> int | None:
        return (
            log.end_offset
            if log.high_watermark is None or log.end_offset > log.high_watermark
            else None
        )


class CommitsWhatTooFewHave(Leadership):
    """A leader that treats half of an odd number of voters as a majority: one too few."""

    def high_watermark(self, log: RaftLog) -> int | None:
        ends = sorted((self._end_of(key, log) for key in self._voters.keys), reverse=True)
        found = ends[max(0, len(ends) // 2 - 1)]
        return (
            found
            if self._covers_own_epoch(found)
            and (log.high_watermark is None or found > log.high_watermark)
            else None
        )


@pytest.mark.parametrize(
    "swap, name, seed, broken",
    [
        (
            lambda parts: parts.replacing(leadership=CommitsWhatItHas),
            "can_elect_initial_leader",
            2,
            "majority-reached-high-watermark",
        ),
        (
            lambda parts: parts.replacing(leadership=CommitsWhatTooFewHave),
            "can_elect_initial_leader",
            2,
            "majority-reached-high-watermark",
        ),
        (bug("KAFKA-10533").into, "can_elect_initial_leader", 1, "majority-reached-high-watermark"),
    ],
    ids=["waits-for-no-voter", "one-too-few", "KAFKA-10533"],
)
def test_wrong_rules_violate_an_invariant(
    swap: Callable[[Parts], Parts], name: str, seed: int, broken: str
) -> None:
    with pytest.raises(SimulationStopped, match=broken):
        run(name, seed, swap)
