"""The result of one run of one design, counted from its logs: the key of each record names its
writer and its number.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec


class ComparisonOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`doubled`: records more than once in the log.

    `lost`: acknowledged, but not in the log. `missing`: neither acknowledged nor in the log.

    `disordered`: records whose first copy is behind that of a later record of the same writer.
    `refusals`: error responses to records. `silence_ms`: the longest time without an
    acknowledgement after a broker was killed (-1: none was). `ids_used`: producer ids that
    producers received, `ids_taken`: producer ids that were allocated for that, in blocks.
    """

    system: str
    seed: int
    records: int
    doubled: int
    lost: int
    missing: int
    disordered: int
    refusals: int
    fenced: int
    requests: int
    ids_used: int
    ids_taken: int
    silence_ms: int
    finished_ms: int
    trouble: str | None = None


def record_key(writer: int, number: int) -> str:
    """Return the key of a record, made of its writer and its number."""
    return f"{writer}.{number}"


class LogCount(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of the records that were to be written, taken from a log."""

    doubled: int
    lost: int
    missing: int
    disordered: int


def count_logs(
    logs: Mapping[int, Sequence[str]], records_each: int, acknowledged: Iterable[str]
) -> LogCount:
    """Count, given the keys in each writer's partition in log order and the keys that were
    acknowledged to some producer.
    """
    acked_keys = set(acknowledged)
    doubled = lost = missing = disordered = 0
    for writer, keys in logs.items():
        copies = Counter(keys)
        for number in range(records_each):
            key = record_key(writer, number)
            doubled += max(copies[key] - 1, 0)
            lost += not copies[key] and key in acked_keys
            missing += not copies[key] and key not in acked_keys
        highest = -1
        for key in dict.fromkeys(keys):
            number = int(key.partition(".")[2])
            disordered += number < highest
            highest = max(highest, number)
    return LogCount(doubled=doubled, lost=lost, missing=missing, disordered=disordered)


def longest_silence_ms(
    kills_ns: Sequence[int],
    acknowledged_ns: Mapping[int, Sequence[int]],
    ends_ns: Mapping[int, int],
) -> int:
    """Return the longest time from a kill to the next acknowledgement of a writer that was still at
    work; -1 where no broker was killed.
    """
    longest = -1
    for kill_ns in kills_ns:
        for writer, times in acknowledged_ns.items():
            if kill_ns >= ends_ns.get(writer, 0):
                continue
            following = next((time for time in times if time > kill_ns), None)
            if following is not None:
                longest = max(longest, (following - kill_ns) // 1_000_000)
    return longest
