"""The stories of upgrades, and the harm that their careful order keeps away."""

from kraftsim.explore.run import play


def test_a_cluster_is_upgraded_under_load() -> None:
    """From 3.5 to a later release, with its levels: invariants hold, and every record is there once."""
    result = play("rolling_upgrade", seed=3, settings={"kraftsim.release": "3.5"}, work={"hops": 1, "copiers": 1, "writers": 1})
    assert result.trouble is None and not result.violations


def test_whoever_goes_back_is_refused() -> None:
    """A level, a broker and a controller of the former release."""
    result = play("downgrade_refused", seed=1)
    assert result.trouble is None and not result.violations


def test_a_single_bounce_copies_twice_what_two_bounces_copy_once() -> None:
    """A member of before KIP-447 that stands still is fenced by nobody if ids change in the same bounce (KIP-447, its upgrade path)."""
    harm = play("kip_447_upgrade", seed=2, work={"bounces": 1})
    assert harm.violations and all(each.startswith("every-input-copied-once") for each in harm.violations)
    none = play("kip_447_upgrade", seed=2)
    assert none.trouble is None and not none.violations
