"""Computes the figures that lease_pid leaves open: message size in the log, collisions of random
generations, size and pause of a snapshot.

python -m tools.bench.bench_leases [--partitions 10 100 1000 10000] [--producers 10] [--pause]

All figures follow from the rules and the record layout, except those of --pause: the CPU
milliseconds that one server needs to build and serialise the snapshot of all its partitions at
once; it serves no request meanwhile.
"""

import argparse
import json
import time

from kraftsim.lease_pid.rules_broker import (
    NEXT,
    LeasedPartition,
    Readings,
    Repeated,
    SequenceOfLease,
    snapshot_of,
)
from protocol.lease_pid.messages import FoundMessage, LeasedMessage
from protocol.lease_pid.stored import SIZE_AND_CHECKSUM, StoredMessage, build_stored

TAKEN, REPEATED = "taken", "called a duplicate"
TOPIC = "t"


def message_bytes() -> dict[str, int]:
    """Return the size of each field of a message without key and value in the log, in order."""
    return {
        "size and checksum": SIZE_AND_CHECKSUM.size,
        "arrived_ms": 8,
        "offset": 8,
        "leader_epoch": 4,
        "pid": 4,
        "generation": 4,
        "sequence_number": 4,
        "timestamp_ms": 8,
        "key": 4,
        "value": 4,
    }


def collisions(bits: int, reading: SequenceOfLease) -> dict[str, int]:
    """Return the results of an old producer's next message after its id was leased again, with
    their number among all 2^bits generations.

    The old producer has written two messages with the middle generation; the new one has written as
    many with the random one. Rejections are omitted.
    """
    old = 2 ** (bits - 1)
    counts: dict[str, int] = {}
    for drawn in range(2**bits):
        leased = LeasedPartition(Readings(sequence_of_lease=reading))
        first = leased.readings.first_sequence
        for sequence in (first, first + 1):
            leased.apply(
                LeasedMessage(producer_id=1, generation=drawn, sequence_number=sequence), 0
            )
        last, following = (
            leased.check(LeasedMessage(producer_id=1, generation=old, sequence_number=first + n))
            for n in (1, 2)
        )
        if isinstance(last, Repeated):
            counts[REPEATED] = counts.get(REPEATED, 0) + 1
        elif following is NEXT:
            counts[TAKEN] = counts.get(TAKEN, 0) + 1
    return counts


def server(partitions: int, producers: int) -> dict[tuple[str, int], tuple[LeasedPartition, int]]:
    """Return the partitions of a server, each with `producers` producers that have written one
    message.
    """
    found = {}
    for number in range(partitions):
        leased = LeasedPartition(Readings())
        for producer_id in range(1, producers + 1):
            leased.apply(LeasedMessage(producer_id=producer_id, generation=1, sequence_number=0), 0)
        found[TOPIC, number] = (leased, producers)
    return found


def snapshot_bytes(partitions: int, producers: int) -> int:
    """Return the size of the snapshot of such a server."""
    return len(build_stored(snapshot_of(server(partitions, producers))))


def pause_ms(partitions: int, producers: int) -> float:
    """Return the CPU milliseconds of the fastest of three snapshots of such a server."""
    known, spent = server(partitions, producers), []
    for _ in range(3):
        begun = time.process_time_ns()
        build_stored(snapshot_of(known))
        spent.append((time.process_time_ns() - begun) / 1e6)
    return round(min(spent), 1)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 100, 1000, 10000])
    parser.add_argument("--producers", type=int, default=10, help="in each partition")
    parser.add_argument(
        "--bits", type=int, default=16, help="of random generations, all of which are tested"
    )
    parser.add_argument(
        "--pause", action="store_true", help="also measure CPU time, which is not deterministic"
    )
    options = parser.parse_args()
    whole = len(build_stored(StoredMessage(found=FoundMessage(content=LeasedMessage()))))
    rows = []
    for partitions in options.partitions:
        row: dict[str, float] = {
            "partitions": partitions,
            "bytes": snapshot_bytes(partitions, options.producers),
        }
        if options.pause:
            row["pause_ms"] = pause_ms(partitions, options.producers)
        rows.append(row)
    print(
        json.dumps(
            {
                "message": {**message_bytes(), "in all": whole},
                "drawn": {
                    "of": 2**options.bits,
                    **{each.value: collisions(options.bits, each) for each in SequenceOfLease},
                },
                "snapshot": {"producers of each partition": options.producers, "rows": rows},
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
