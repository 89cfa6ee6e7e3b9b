"""Random histories of transactions, mostly correct with occasional errors, to compare the check and
the SQL of an invariant.
"""

from collections.abc import Callable
from random import Random

from kraftsim.events.event import Event
from tests.analysis.cleaned_cases import cleaned
from tests.analysis.coordinator_cases import abandoned
from tests.analysis.event_factories import final_log, final_record
from tests.analysis.history import History
from tests.analysis.transaction_events import (
    GROUPS_LOADED,
    GROUPS_UNLOADED,
    OFFSETS,
    ONE,
    PID,
    TWO,
    acknowledged,
    appended,
    asked,
    batch,
    changed,
    dropped,
    ended,
    expected,
    fetch,
    filled,
    logged,
    marked,
    marker,
    materialised,
    pending,
    quiet,
    read,
    replicated,
    sent,
    stable,
    state,
    taken,
    through,
)


def add_transaction_events(history: History, random: Random, slip: Callable[[], bool]) -> None:
    """Let an app consume and produce in transactions, mostly correctly, and a reader check the
    output.
    """

    def emit(node: str, *events: Event) -> None:
        for event in events:
            history.emit(node, event)

    emit("harness", expected())
    emit("c", taken(0))
    walk: list[tuple[int, int, str]] = [(0, 0, "")]
    log: list[tuple[int, int, bool | None]] = []
    offsets: list[tuple[int, int]] = []
    seen: list[tuple[str, int]] = []
    end_offset, epoch, position = 0, 0, 0
    for number in range(1, random.randrange(2, 7)):
        name, is_commit = f"c/{number}", random.random() < 0.7
        if random.random() < 0.3:
            epoch += 1
            emit("c", taken(epoch + (1 if slip() else 0)))
            walk.append((0, epoch, ""))
        walk.append((1, epoch, "out-1" if slip() else "out-0"))
        first = end_offset
        for _ in range(random.randrange(1, 3)):
            key = f"k{end_offset}"
            emit("w", filled(f"f{end_offset}", end_offset))
            emit("c", sent(key, name), acknowledged(key, end_offset))
            emit(ONE, appended(end_offset, end_offset, epoch=epoch))
            if not slip():
                emit(TWO, replicated(end_offset, end_offset, epoch=epoch))
            if is_commit != slip():
                seen.append((key, end_offset))
                seen.append((f"f{end_offset}", 1000 + end_offset))
            else:
                seen.append((f"f{end_offset}", 2000 + end_offset))
            log.append((end_offset, epoch, None))
            end_offset += 1
        emit(ONE, stable(end_offset if slip() else first))
        emit(ONE, pending(number, 2 * number))
        if slip():
            emit(ONE, fetch(number, 2 * number))
        emit("c", asked(name, is_commit=is_commit))
        walk += [(2 if is_commit else 3, epoch, ""), (4 if is_commit else 5, epoch, "")]
        position = _log_states(history, slip, walk, position)
        if not slip():
            emit(ONE, marked(end_offset, is_commit=is_commit, epoch=epoch))
            emit(TWO, marked(end_offset, is_commit=is_commit, epoch=epoch))
            log.append((end_offset, epoch, is_commit != slip()))
        end_offset += 1
        emit(ONE, stable(end_offset))
        emit(ONE, materialised(number, 2 * number) if is_commit else dropped(number, 2 * number))
        emit("c", ended(name, "committed" if is_commit != slip() else "aborted", epoch=epoch))
        if is_commit:
            offsets.append((number, 2 * number))
        if (first + number) % 5 == 0:
            emit(ONE, GROUPS_LOADED)
            emit(TWO, *((GROUPS_LOADED,) if first % 2 else ()))
            emit(ONE, *((GROUPS_UNLOADED,) if first % 3 else ()))
        if offsets:
            emit(ONE, fetch(offsets[-1][0] + (1 if slip() else 0), offsets[-1][1]))
    for key, offset in seen:
        for _ in range(0 if slip() else 1):
            emit("a", read(key, offset + (7 if slip() else 0)))
    emit("a", *([] if random.random() < 0.1 else [through()]), quiet())
    _log_final(history, random, slip, walk, log, offsets)


def _log_states(
    history: History, slip: Callable[[], bool], walk: list[tuple[int, int, str]], position: int
) -> int:
    """Log the state changes of the coordinator since the last call; return the new position."""
    for offset, (status, epoch, partitions) in list(enumerate(walk))[position:]:
        if not slip():
            history.emit("coordinator", changed(offset, status, epoch=epoch, partitions=partitions))
        elif slip():
            history.emit("coordinator", abandoned(offset))
    return len(walk)


def _log_final(
    history: History,
    random: Random,
    slip: Callable[[], bool],
    walk: list[tuple[int, int, str]],
    log: list[tuple[int, int, bool | None]],
    offsets: list[tuple[int, int]],
) -> None:
    """Log the final content of the disks."""
    data = [offset for offset, _, is_commit in log if is_commit is None]
    for topic, letter in (("in", "f"), ("out", "k")):
        history.emit("final", final_log(len(log), len(data), topic=topic))
        for offset in data:
            history.emit("final", final_record(offset, f"{letter}{offset}", topic=topic))
    for broker in (ONE, TWO):
        for offset, epoch, is_commit in log:
            if is_commit is None:
                history.emit(
                    "final",
                    batch(offset, epoch=max(0, epoch - (1 if slip() else 0)), broker=broker),
                )
            else:
                history.emit(
                    "final",
                    marker(
                        offset,
                        epoch=epoch,
                        is_commit=is_commit,
                        coordinator_epoch=1 if slip() else 0,
                        broker=broker,
                    ),
                )
        clean_until = random.randrange(len(walk)) if random.random() < 0.3 else 0
        if clean_until and not slip():
            history.emit(broker, cleaned(clean_until, topic="__transaction_state"))
        for offset, (status, epoch, partitions) in enumerate(walk):
            if offset < clean_until and random.random() < 0.7:
                continue
            shown = random.randrange(6) if slip() else status
            history.emit(
                "final",
                state(
                    offset,
                    shown,
                    epoch=epoch + (3 if slip() else 0),
                    partitions=partitions,
                    broker=broker,
                ),
            )
        for committed_offset, log_offset in offsets:
            history.emit("final", logged(committed_offset, log_offset, PID, broker))
            history.emit(
                "final",
                marker(
                    log_offset + 1,
                    topic=OFFSETS,
                    is_commit=not slip(),
                    broker=broker,
                    producer_id=PID,
                ),
            )
