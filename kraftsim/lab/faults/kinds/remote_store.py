"""Faults of the remote store of tiered storage: calls that are slow or fail, listings that lag, and
objects that are lost, incomplete or of another segment.

All brokers share the store. A failed call may have taken effect, so that a copy is repeated under
another id and the remains are deleted later. A segment leaves the local log only after its copy is
complete, and a reader or a follower that finds objects missing must say so rather than skip
records.
"""

from kraftsim.lab.faults.fault import Aim, Between, Family, FaultKind, OneOf
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import impair, random_key, stores_of
from kraftsim.world.simulated.objects import StoreFault

MS_PER_SECOND = 1000


def slow_store(injection: Injection) -> None:
    """Every call of the remote store takes longer: fetches wait for remote.fetch.max.wait.ms at
    most, copies for as long as they take.

    Delay every call; it is effective with the first one.
    """
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect("a call took longer"),
                delay_seconds=injection.integer("delay_ms") / MS_PER_SECOND,
            ),
        )


SLOW_STORE = FaultKind(
    name="slow-store",
    title="a slow remote store",
    family=Family.STORE,
    inject=slow_store,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"delay_ms": 1000, "duration_ms": 5000},
    draws={"delay_ms": Between(100, 5000), "duration_ms": Between(500, 5000)},
)


def failing_store(injection: Injection) -> None:
    """Calls to the remote store fail, some of them after they took effect.

    Let so many of a thousand calls fail; it is effective with the first that does.
    """
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect("a call failed"),
                failing_permille=injection.integer("permille"),
            ),
        )


FAILING_STORE = FaultKind(
    name="failing-store",
    title="a failing remote store",
    family=Family.STORE,
    inject=failing_store,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"permille": 500, "duration_ms": 5000},
    draws={"permille": Between(50, 1000), "duration_ms": Between(500, 5000)},
)


def stale_store_listing(injection: Injection) -> None:
    """Listings of the remote store are stale: objects written since are missing, objects deleted
    since are listed.

    Freeze the listings; it is effective when one of them would be different.
    """
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect("a listing was stale"),
                stale_keys=tuple(store.contents),
            ),
        )


STALE_STORE_LISTING = FaultKind(
    name="stale-store-listing",
    title="stale listings of a remote store",
    family=Family.STORE,
    inject=stale_store_listing,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 10000)},
)


def half_copied_segment(injection: Injection) -> None:
    """The copy of a segment to remote storage fails at one of its objects: the records may be
    there, but not their indexes or snapshots.

    Let writes of one kind of object fail; it is effective with the first.
    """
    ending = injection.text("ending")
    for store in stores_of(injection):
        impair(
            injection,
            store,
            StoreFault(
                record_effect=lambda: injection.record_effect(
                    f"no object {ending} could be written"
                ),
                fails_at=ending,
            ),
        )


HALF_COPIED_SEGMENT = FaultKind(
    name="half-copied-segment",
    title="incomplete copies of segments in a remote store",
    family=Family.STORE,
    inject=half_copied_segment,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"ending": ".snapshot", "duration_ms": 5000},
    draws={
        "ending": OneOf((".index", ".timeindex", ".leader_epoch_checkpoint", ".snapshot")),
        "duration_ms": Between(500, 5000),
    },
)


def lost_object(injection: Injection) -> None:
    """The remote store loses an object that it had acknowledged, until it is healed: for example
    from a backup.

    Delete one object with a given key suffix; it is effective if there is one.
    """
    found = random_key(injection, injection.text("ending") or "")
    if found is None:
        return
    store, key = found
    lost = store.contents.pop(key)
    injection.record_effect(f"{key} is gone")

    segment = key.partition(".")[0]

    def heal() -> None:
        if any(each.startswith(segment) for each in store.contents):  # it was not deleted since
            store.contents.setdefault(key, lost)

    injection.lasting(heal, injection.integer("duration_ms"))


LOST_OBJECT = FaultKind(
    name="lost-object",
    title="a remote store that loses an object",
    family=Family.STORE,
    inject=lost_object,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"ending": ".log", "duration_ms": 5000},
    draws={
        "ending": OneOf((".log", ".index", ".snapshot", ".leader_epoch_checkpoint")),
        "duration_ms": Between(500, 5000),
    },
)


SNAPSHOT = ".snapshot"


def snapshot_of_another_segment(injection: Injection) -> None:
    """The producer snapshot of a segment in the remote store is replaced by that of another segment
    of the partition, until it is healed.

    Replace a snapshot by another one of the same directory; it is effective if there are two that
    differ.
    """
    found = random_key(injection, SNAPSHOT)
    if found is None:
        return
    store, key = found
    directory = key.rpartition("/")[0]
    others = [
        each
        for each in sorted(store.contents)
        if each.startswith(f"{directory}/") and each.endswith(SNAPSHOT) and each != key
    ]
    others = [each for each in others if store.contents[each] != store.contents[key]]
    if not others:
        return
    right, other = store.contents[key], injection.random.choice(others)
    store.contents[key] = store.contents[other]
    injection.record_effect(f"{key} has the content of {other}")

    def heal() -> None:
        if key in store.contents:
            store.contents[key] = right

    injection.lasting(heal, injection.integer("duration_ms"))


SNAPSHOT_OF_ANOTHER_SEGMENT = FaultKind(
    name="snapshot-of-another-segment",
    title="a producer snapshot of another segment",
    family=Family.STORE,
    inject=snapshot_of_another_segment,
    aim=Aim.ALL,
    triggers_on=("time", "event"),
    params={"duration_ms": 5000},
    draws={"duration_ms": Between(500, 5000)},
)


FAULTS = (
    SLOW_STORE,
    FAILING_STORE,
    STALE_STORE_LISTING,
    HALF_COPIED_SEGMENT,
    LOST_OBJECT,
    SNAPSHOT_OF_ANOTHER_SEGMENT,
)
