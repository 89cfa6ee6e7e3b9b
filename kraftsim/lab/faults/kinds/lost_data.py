"""Faults of a disk that loses or corrupts data, and reports success: a node notices them when it
reads, after a restart, or not at all.

Writes are torn or reach another place, flushes lie, names are lost, bits rot, and whole disks come
back empty or as they were some time ago. Recovery truncates a log at its first invalid batch, and
replicas restore the rest. Against the loss of flushed data one node has no guarantee: a voter that
forgets its vote may vote twice. So each kind declares its class of loss, and random schedules do
not combine more losses than a cluster can survive (`kraftsim.lab.faults.random_faults`).
"""

from collections.abc import Iterator

from kraftsim.lab.faults.fault import (
    FLUSHES_EVERY_BATCH,
    Between,
    DataLoss,
    Family,
    FaultKind,
    OneOf,
)
from kraftsim.lab.faults.injection import Injection
from kraftsim.lab.faults.storage_faults import damage_until_healed, sound_files
from kraftsim.world.simulated import FileClass
from kraftsim.world.simulated.disk_faults import LyingFlush
from kraftsim.world.simulated.durable_disk import Names, Wreck
from kraftsim.world.simulated.inode import SECTOR_BYTES, Damage, Fate


def torn_write(injection: Injection) -> None:
    """A host loses power in the middle of a write: some sectors of it are durable and some are not,
    in any order.

    All file names are kept, so that torn files are read; see `lost-name` for the opposite.

    Power off the host now and restart it later; it is effective if a part of an unflushed write is
    durable.
    """
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    fate = Fate[(injection.text("shape") or "holes").upper()]
    losses = injection.simulation.power_off(host, Wreck(names=Names.KEPT, fate=fate))
    if losses.torn_files:
        injection.record_effect(
            f"{losses.torn_files} files were torn, {losses.lost_bytes} bytes differ from what "
            "was written"
        )
    injection.start_later(host, injection.integer("after_ms"))


TORN_WRITE = FaultKind(
    name="torn-write",
    title="a write torn by a power loss",
    family=Family.DISK,
    inject=torn_write,
    triggers_on=("disk",),
    params={"shape": "holes", "after_ms": 1000},
    draws={"shape": OneOf(("prefix", "holes", "zeros")), "after_ms": Between(20, 4000)},
    data_loss=DataLoss.UNFLUSHED,
    settings=FLUSHES_EVERY_BATCH,
)


def lying_flush(injection: Injection) -> None:
    """A disk acknowledges flushes without making data durable: a drive with a volatile write cache.

    Without a power loss it has no effect. Healing makes the acknowledged data durable; a host that
    does not start from the remaining data gets an empty disk, as an operator would provide.

    Let flushes return at once and do nothing; with `power_loss` the host loses power as well.

    It is effective when flushed data is lost.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    lies = host.durable.faults.lies
    ailment = LyingFlush(kind=injection.file_class(), record_effect=injection.record_effect)
    lies.append(ailment)

    def lose_power() -> None:
        if host.is_alive and not injection.is_over:
            simulation.kill(host, power_loss=True)
            injection.start_later(host, injection.integer("after_ms"))

    def heal() -> None:
        lies.remove(ailment)
        for path in sorted(host.durable.names):
            host.durable.names[path].keep_promise()
        if not host.is_alive:
            host.durable.lose_everything()
            injection.start_later(host, 0)

    injection.lasting(heal, injection.integer("duration_ms"))
    injection.after(injection.integer("power_loss_ms"), lose_power)


LYING_FLUSH = FaultKind(
    name="lying-flush",
    title="a disk that acknowledges flushes without doing them",
    family=Family.DISK,
    inject=lying_flush,
    params={"file_class": None, "power_loss_ms": 1000, "after_ms": 200, "duration_ms": 5000},
    draws={
        "file_class": OneOf((None, "metadata-log")),
        "power_loss_ms": Between(200, 3000),
        "after_ms": Between(20, 2000),
    },
    data_loss=DataLoss.FLUSHED,
)


def lost_name(injection: Injection) -> None:
    """A host loses power before its directories were flushed: the last creations, renames and
    deletions of files are undone.

    The content of files survives, so that only names are affected; with `zeros` a file that kept
    its new name has lost its content.

    Power off the host now and restart it later; it is effective if a name was undone, or a file
    lost its content.
    """
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    kept = injection.text("kept") or "none"
    wreck = (
        Wreck(names=Names.KEPT, fate=Fate.ZEROS)
        if kept == "zeros"
        else Wreck(names=Names.SOME if kept == "some" else Names.LOST, fate=Fate.KEPT)
    )
    losses = injection.simulation.power_off(host, wreck)
    if losses.lost_names or losses.torn_files:
        injection.record_effect(
            f"{losses.lost_names} names were undone, {losses.torn_files} files have a name but "
            "no content"
        )
    injection.start_later(host, injection.integer("after_ms"))


LOST_NAME = FaultKind(
    name="lost-name",
    title="a rename undone by a power loss",
    family=Family.DISK,
    inject=lost_name,
    triggers_on=("disk",),
    params={"kept": "none", "after_ms": 1000},
    draws={"kept": OneOf(("none", "some", "zeros")), "after_ms": Between(20, 4000)},
    data_loss=DataLoss.UNFLUSHED,
    settings=FLUSHES_EVERY_BATCH,
)


def misdirected_write(injection: Injection) -> None:
    """A sector was written to another position of the same file: it overwrites the data there, and
    is missing at its own position.

    The next incarnation reads both. Only the checksums of batches protect Kafka's files against
    this.

    Move a flushed sector, kill the process, and restart it; it is effective when one of the two
    positions is read.
    """
    host = injection.simulation.host(injection.target)
    durable = host.durable
    found = sound_files(host, durable.durable_files(injection.file_class()))
    paths = [path for path in found if durable.names[path].flushed_bytes >= 2 * SECTOR_BYTES]
    if not paths or not host.is_alive:
        return
    path = injection.random.choice(paths)
    inode = durable.names[path]
    there, belongs = (
        number * SECTOR_BYTES
        for number in injection.random.sample(range(inode.flushed_bytes // SECTOR_BYTES), 2)
    )
    moved = bytes(inode.cache[belongs : belongs + SECTOR_BYTES])
    effect = f"sector {belongs // SECTOR_BYTES} of {path} was written to {there // SECTOR_BYTES}"
    damages = [
        Damage(
            position=there,
            right=bytes(inode.cache[there : there + SECTOR_BYTES]),
            wrong=moved,
            effect=effect,
            record_effect=injection.record_effect,
        ),
        Damage(
            position=belongs,
            right=moved,
            wrong=bytes(SECTOR_BYTES),
            effect=effect,
            record_effect=injection.record_effect,
        ),
    ]
    damage_until_healed(injection, host, path, damages)


MISDIRECTED_WRITE = FaultKind(
    name="misdirected-write",
    title="a misdirected write",
    family=Family.DISK,
    inject=misdirected_write,
    params={"file_class": "metadata-log", "after_ms": 100, "duration_ms": 0},
    draws={
        "file_class": OneOf((None, "metadata-log", "partition-log")),
        "after_ms": Between(20, 2000),
    },
    data_loss=DataLoss.FLUSHED,
)


def bit_rot(injection: Injection) -> None:
    """One bit of a file that was flushed long ago is flipped when the next incarnation reads it.

    A voter has no guarantees against this: a corrupt batch behind its recovery point looks like a
    torn write. And the checksum of a batch does not cover its first 21 bytes, among them the leader
    epoch: corruption there may go undetected (`is_checked` excludes it).

    Flip a bit of the target's disk, kill its process, and restart it; it is effective when the byte
    is read.

    Healing restores the bit.
    """
    host = injection.simulation.host(injection.target)
    paths = sound_files(host, host.durable.durable_files(injection.file_class()))
    if not paths or not host.is_alive:
        return
    path = injection.random.choice(paths)
    inode = host.durable.names[path]
    if injection.flag("is_checked"):
        stretches = list(_checked(bytes(inode.cache[: inode.flushed_bytes])))
        if not stretches or not path.endswith(".log"):
            return
        position = injection.random.choice(injection.random.choice(stretches))
    else:
        position = injection.random.randrange(inode.flushed_bytes)
    right = inode.cache[position]
    wrong = right ^ (1 << injection.random.randrange(8))
    effect = f"byte {position} of {path} was read as {wrong:#04x} instead of {right:#04x}"
    damage = Damage(
        position=position,
        right=bytes([right]),
        wrong=bytes([wrong]),
        effect=effect,
        record_effect=injection.record_effect,
    )
    damage_until_healed(injection, host, path, [damage])


def _checked(data: bytes) -> Iterator[range]:
    """Yield the byte ranges of a segment that the checksums of its batches cover: those behind each
    checksum.
    """
    begin = 0
    while begin + OVERHEAD_BYTES <= len(data):
        end = begin + OVERHEAD_BYTES + int.from_bytes(data[begin + 8 : begin + OVERHEAD_BYTES])
        yield range(begin + UNCHECKED_BYTES, end)
        begin = end


OVERHEAD_BYTES, UNCHECKED_BYTES = 12, 21
"""Base offset and length; these, leader epoch, magic and the checksum itself."""


BIT_ROT = FaultKind(
    name="bit-rot",
    title="bit rot on the disk",
    family=Family.DISK,
    inject=bit_rot,
    params={"file_class": "metadata-log", "is_checked": False, "after_ms": 100, "duration_ms": 0},
    draws={
        "file_class": OneOf((None, "metadata-log", "partition-log", "checkpoint")),
        "after_ms": Between(20, 2000),
    },
    data_loss=DataLoss.FLUSHED,
)


SUFFIX = ".checkpoint"
BOOTSTRAP = "bootstrap.checkpoint"
"""Read by the first start only; its name sorts after those of all snapshots."""
PERMILLE = 1000


def truncated_snapshot(injection: Injection) -> None:
    """The newest snapshot of the metadata log is truncated when the next incarnation reads it.

    A node that still has the records in its log does not need the snapshot; another one must report
    the error and not start. Healing restores the file and starts the node.

    Truncate the file, kill the process, and restart it; it is effective when the file is read to
    its end.
    """
    host = injection.simulation.host(injection.target)
    written = [
        path for path in host.durable.durable_files(FileClass.CHECKPOINT) if path.endswith(SUFFIX)
    ]
    paths = sound_files(host, [path for path in written if not path.endswith(BOOTSTRAP)])
    if not paths or not host.is_alive:
        return
    path = paths[-1]
    inode = host.durable.names[path]
    kept_bytes = len(inode.cache) * injection.integer("kept_permille") // PERMILLE
    effect = f"{path} ends after {kept_bytes} of {len(inode.cache)} bytes"
    damage = Damage(
        position=kept_bytes,
        right=bytes(inode.cache[kept_bytes:]),
        wrong=b"",
        effect=effect,
        record_effect=injection.record_effect,
    )
    damage_until_healed(injection, host, path, [damage])


TRUNCATED_SNAPSHOT = FaultKind(
    name="truncated-snapshot",
    title="a truncated snapshot",
    family=Family.DISK,
    needs_quorum=True,
    inject=truncated_snapshot,
    params={"kept_permille": 500, "after_ms": 100, "duration_ms": 5000},
    settings={"metadata.log.max.record.bytes.between.snapshots": "500"},
    draws={
        "kept_permille": OneOf((0, 100, 500, 900, 999)),
        "after_ms": Between(20, 2000),
        "duration_ms": Between(2000, 8000),
    },
)


def old_disk_image(injection: Injection) -> None:
    """An old backup of a host's disk is restored: the next incarnation finds the data of a moment
    some time ago.

    Nothing marks an old image as old. Everything that the host acknowledged since is lost, its
    votes included.

    Copy the disk now; later kill the process and restart it with the copy.

    It is effective if anything has changed since.
    """
    simulation = injection.simulation
    host = simulation.host(injection.target)
    image = host.durable.after_kill()

    def put_back() -> None:
        if injection.is_over:
            return
        was_alive = host.is_alive
        simulation.kill(host)
        before = host.durable.content()
        host.durable.put(image)
        changed = sum(
            before.get(path) != content for path, content in host.durable.content().items()
        ) + len(before.keys() - image.names.keys())
        if changed:
            injection.record_effect(
                f"{changed} files have the content of {injection.integer('age_ms')} ms ago"
            )
        if was_alive:
            injection.start_later(host, injection.integer("after_ms"))

    injection.after(injection.integer("age_ms"), put_back)


OLD_DISK_IMAGE = FaultKind(
    name="old-disk-image",
    title="a restored old disk image",
    family=Family.DISK,
    inject=old_disk_image,
    params={"age_ms": 2000, "after_ms": 200},
    draws={"age_ms": Between(100, 4000), "after_ms": Between(20, 2000)},
    data_loss=DataLoss.FLUSHED,
)


def lost_disk(injection: Injection) -> None:
    """A host restarts with an empty disk: its process finds no data directory, formats one, and has
    a new directory id.

    A broker registers again and replicates its partitions from the start. A voter must have left
    the quorum before, and rejoins as a new replica.

    Kill the target's process, erase its disk, and restart it; it is effective if the disk had any
    files.

    Source: KIP-853 (a replica is known by its id and its directory id), KIP-858.
    """
    host = injection.simulation.host(injection.target)
    if not host.is_alive:
        return
    injection.simulation.kill(host)
    files = host.durable.lose_everything()
    if files:
        injection.record_effect(f"{files} files are gone")
    injection.start_later(host, injection.integer("after_ms"))


LOST_DISK = FaultKind(
    name="lost-disk",
    title="a disk replaced by an empty one",
    family=Family.DISK,
    inject=lost_disk,
    params={"after_ms": 1000},
    draws={"after_ms": Between(20, 6000)},
    data_loss=DataLoss.FLUSHED,
)


FAULTS = (
    TORN_WRITE,
    LYING_FLUSH,
    LOST_NAME,
    MISDIRECTED_WRITE,
    BIT_ROT,
    TRUNCATED_SNAPSHOT,
    OLD_DISK_IMAGE,
    LOST_DISK,
)
