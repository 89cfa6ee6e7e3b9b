"""Random numbers of a node on a real machine: from the operating system, or from a seed if the
operator sets one.
"""

from pathlib import Path
from random import SystemRandom

import pytest

from kraftsim.cluster.launch import parse_node, real_world_of


def drawn(directory: Path, seed: str | None, purpose: str) -> tuple[bool, bytes]:
    settings = {
        "log.dirs": str(directory / "data"),
        "node.id": "1",
        "process.roles": "broker",
        "controller.listener.names": "CONTROLLER",
    }
    settings["controller.quorum.voters"] = "101@127.0.0.1:1"
    world = real_world_of(
        parse_node(settings if seed is None else {**settings, "kraftsim.seed": seed}), 0
    )
    try:
        rng = world.random(purpose)
        return isinstance(rng, SystemRandom), rng.randbytes(16)
    finally:
        world.close()


@pytest.mark.parametrize(
    "purpose", ["fetch sessions", "sasl nonces", "member ids", "topics", "incarnation id"]
)
@pytest.mark.parametrize("seed", [None, "0"])
def test_without_a_seed_ids_and_nonces_come_from_the_operating_system(
    tmp_path: Path, seed: str | None, purpose: str
) -> None:
    """A client that has seen many ids cannot predict the next one: the state of a `random`
    generator can be derived from 624 words.
    """
    found = [drawn(tmp_path / name, seed, purpose) for name in ("one", "two")]
    assert [is_of_the_system for is_of_the_system, _ in found] == [True, True]
    assert found[0][1] != found[1][1]


def test_with_a_seed_a_node_draws_the_same_again(tmp_path: Path) -> None:
    assert drawn(tmp_path / "one", "7", "fetch sessions") == drawn(
        tmp_path / "two", "7", "fetch sessions"
    )
    assert not drawn(tmp_path / "three", "7", "fetch sessions")[0]
