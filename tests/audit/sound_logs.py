"""A small sound cluster in tables: three replicas with idempotent and transactional producers, two
segments, snapshots, indexes and checkpoints.
"""

from tests.audit.tables_of import Disks, Log, LogDir, producer_row

IDEMPOTENT, TRANSACTIONAL = 5, 6


def write_log(home: LogDir, topic: str = "orders") -> Log:
    """Write the log of one replica: offsets 0 to 7 in the first segment, 8 to 10 in the second.

    The transaction of offsets 5 and 6 is aborted, that of offsets 8 and 9 commits; their markers
    have epochs of their own (KIP-890).
    """
    log = home.log(topic)
    log.epochs((0, 0))
    log.produce(IDEMPOTENT, 0, 0, 3)
    log.produce(IDEMPOTENT, 0, 3, 2)
    log.transact(TRANSACTIONAL, 0, 0, 2)
    log.marker("ABORT", TRANSACTIONAL, 1)
    log.aborted(TRANSACTIONAL, 5, 7, 8)
    idempotent = producer_row(IDEMPOTENT, 0, last_sequence=4, last_offset=4, offset_delta=1)
    log.roll()
    log.snapshot(idempotent, producer_row(TRANSACTIONAL, 1, coordinator_epoch=0))
    log.transact(TRANSACTIONAL, 1, 0, 2)
    log.marker("COMMIT", TRANSACTIONAL, 2)
    log.snapshot(idempotent, producer_row(TRANSACTIONAL, 2, coordinator_epoch=0))
    return log


def cluster(*, is_clean: bool = True, is_registered: bool = True) -> tuple[Disks, list[Log]]:
    """Return the tables of three brokers, and their logs, which a test may still change.

    `is_registered`: whether a metadata log is there, with all three in the ISR.
    """
    disks = Disks()
    logs = [write_log(disks.broker(node_id, is_clean=is_clean)) for node_id in (1, 2, 3)]
    if is_registered:
        disks.topic()
    return disks, logs
