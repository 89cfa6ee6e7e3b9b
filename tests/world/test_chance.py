"""What a node on a real machine draws: from the operating system's entropy, or from a seed if the operator gives one."""

from random import SystemRandom

import pytest

from kraftsim.cluster.launch import parse_node, real_world_of


def drawn(directory, seed: str | None, purpose: str) -> tuple[bool, bytes]:
    settings = {"log.dirs": str(directory / "data"), "node.id": "1", "process.roles": "broker", "controller.listener.names": "CONTROLLER"}
    settings["controller.quorum.voters"] = "101@127.0.0.1:1"
    world = real_world_of(parse_node(settings if seed is None else {**settings, "kraftsim.seed": seed}), 0)
    try:
        chance = world.random(purpose)
        return isinstance(chance, SystemRandom), chance.randbytes(16)
    finally:
        world.close()


@pytest.mark.parametrize("purpose", ["fetch sessions", "sasl nonces", "member ids", "topics", "incarnation id"])
@pytest.mark.parametrize("seed", [None, "0"])
def test_without_a_seed_ids_and_nonces_come_from_the_operating_system(tmp_path, seed, purpose):
    """A client that has seen many ids cannot derive the next one: a generator of `random` gives its state away after 624 words."""
    found = [drawn(tmp_path / name, seed, purpose) for name in ("one", "two")]
    assert [is_of_the_system for is_of_the_system, _ in found] == [True, True]
    assert found[0][1] != found[1][1]


def test_with_a_seed_a_node_draws_the_same_again(tmp_path):
    assert drawn(tmp_path / "one", "7", "fetch sessions") == drawn(tmp_path / "two", "7", "fetch sessions")
    assert not drawn(tmp_path / "three", "7", "fetch sessions")[0]
