"""The event on another node that caused an event, and the resulting Lamport clocks.

None of this is on the wire. A received frame pairs with the last one sent before it on the same
connection with the same correlation id. Where frames were not logged, some events still identify
each other: a block that was allocated and received, a batch and its acknowledgements, an id that
was returned and received.
Source: L. Lamport, Time, Clocks, and the Ordering of Events in a Distributed System, 1978.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Integers = npt.NDArray[np.int64]
NO_CAUSE: Final = -1


class Causes(NamedTuple):
    """For each row of the sorted events the row of its cause (NO_CAUSE for none), and its Lamport
    clock.
    """

    cause: Integers
    lamport: Integers
    frames_paired: int


def derive_causes(events: pa.Table) -> Causes:
    """Return causes and clocks of events that are sorted by time; a cause always precedes its
    effect.
    """
    cause = np.full(events.num_rows, NO_CAUSE, np.int64)
    kind = events.column("kind")
    frames = _frames(events, kind)
    _follow(cause, frames)
    for effect in (
        _blocks(events, kind),
        _identities(events, kind),
        _acknowledgements(events, kind),
    ):
        _follow(cause, effect)
    node = _codes(events.column("node"))
    other_node = (cause != NO_CAUSE) & (node[cause] != node)
    return Causes(cause, _lamport(node, np.where(other_node, cause, NO_CAUSE)), len(frames.effect))


class Pairs(NamedTuple):
    """Rows of effects and the rows of their causes."""

    effect: Integers
    cause: Integers


def _follow(cause: Integers, pairs: Pairs) -> None:
    cause[pairs.effect] = pairs.cause


def _rows(kind: pa.ChunkedArray, name: str) -> Integers:
    return np.asarray(pc.indices_nonzero(pc.equal(kind, name)), np.int64)


def _column(events: pa.Table, name: str, rows: Integers) -> Integers:
    return np.asarray(
        events.column(name).take(pa.array(rows)).cast(pa.int64()).combine_chunks().fill_null(-1),
        np.int64,
    )


def _codes(column: pa.ChunkedArray) -> Integers:
    """Return a number for each value, the same for the same value; -1 for null."""
    return np.asarray(column.combine_chunks().dictionary_encode().indices.fill_null(-1), np.int64)


def _last_before(
    causes: Integers,
    effects: Integers,
    cause_keys: tuple[Integers, ...],
    effect_keys: tuple[Integers, ...],
) -> Pairs:
    """Pair each effect with the last preceding cause with equal keys, unless another effect is
    paired with it.
    """
    rows = np.concatenate((causes, effects))
    is_effect = np.concatenate((np.zeros(len(causes), np.bool_), np.ones(len(effects), np.bool_)))
    keys = [np.concatenate(pair) for pair in zip(cause_keys, effect_keys, strict=True)]
    order = np.lexsort((rows, *keys))
    rows, is_effect = rows[order], is_effect[order]
    same = np.ones(max(len(rows) - 1, 0), np.bool_)
    for key in keys:
        same &= key[order][1:] == key[order][:-1]
    found = np.flatnonzero(same & is_effect[1:] & ~is_effect[:-1])
    return Pairs(rows[found + 1], rows[found])


def _frames(events: pa.Table, kind: pa.ChunkedArray) -> Pairs:
    names = events.column("link").cast(pa.string())
    link = _codes(pc.if_else(pc.equal(names, ""), None, names))
    sent, received = (
        rows[link[rows] >= 0] for rows in (_rows(kind, "FrameSent"), _rows(kind, "FrameReceived"))
    )
    keys = [
        (link[rows], *(_column(events, name, rows) for name in ("correlation_id", "is_response")))
        for rows in (sent, received)
    ]
    return _last_before(sent, received, *keys)


def _blocks(events: pa.Table, kind: pa.ChunkedArray) -> Pairs:
    rows = _rows(kind, "ProducerIdBlockAllocated"), _rows(kind, "ProducerIdBlockReceived")
    return _last_before(*rows, *((_column(events, "first_producer_id", each),) for each in rows))


def _identities(events: pa.Table, kind: pa.ChunkedArray) -> Pairs:
    rows = _rows(kind, "ProducerIdReturned"), _rows(kind, "ClientInitialized")
    keys = [
        tuple(_column(events, name, each) for name in ("producer_id", "producer_epoch"))
        for each in rows
    ]
    return _last_before(*rows, *keys)


def _acknowledgements(events: pa.Table, kind: pa.ChunkedArray) -> Pairs:
    """Pair each acknowledged record with the last append whose base offset is not higher, if that
    append contains the offset and came first.
    """
    appended, acknowledged = _rows(kind, "BatchAppended"), _rows(kind, "RecordAcknowledged")
    topic = _codes(events.column("topic"))
    rows = np.concatenate((appended, acknowledged))
    offset = np.concatenate(
        (_column(events, "first_offset", appended), _column(events, "offset", acknowledged))
    )
    last_offset = np.concatenate(
        (_column(events, "last_offset", appended), np.full(len(acknowledged), -1))
    )
    is_append = np.arange(len(rows)) < len(appended)
    log = (topic[rows], _column(events, "partition", rows))
    order = np.lexsort((rows, ~is_append, offset, *log))
    place = (
        np.maximum.accumulate(np.where(is_append[order], np.arange(len(rows)), -1))
        if len(rows)
        else np.zeros(0, np.int64)
    )
    append = order[np.maximum(place, 0)]
    holds = (
        ~is_append[order]
        & (place >= 0)
        & (last_offset[append] >= offset[order])
        & (rows[append] < rows[order])
    )
    for name in log:
        holds &= name[append] == name[order]
    return Pairs(rows[order][holds], rows[append][holds])


def _lamport(node: Integers, cause: Integers) -> Integers:
    """Return the clocks: on each node one more than before, and at an effect at least one more than
    the clock of its cause.

    On a node the clock is its own count plus a shift that only grows, so that only effects need to
    be visited one by one, in order of time.
    """
    order = np.argsort(node, kind="stable")
    nodes, first = np.unique(node[order], return_index=True)
    count = np.empty(len(node), np.int64)
    count[order] = np.arange(len(node)) - np.repeat(first, np.diff(np.append(first, len(node))))
    shift_from: dict[int, list[int]] = {int(name): [0] for name in nodes}
    shift: dict[int, list[int]] = {int(name): [1] for name in nodes}
    effects = np.flatnonzero(cause != NO_CAUSE)
    causes = cause[effects]
    visits = zip(
        node[effects].tolist(),
        count[effects].tolist(),
        node[causes].tolist(),
        count[causes].tolist(),
        strict=True,
    )
    for effect_node, effect_count, cause_node, cause_count in visits:
        cause_shift = shift[cause_node][bisect_right(shift_from[cause_node], cause_count) - 1]
        needed = cause_count + cause_shift + 1 - effect_count
        if needed > shift[effect_node][-1]:
            shift_from[effect_node].append(effect_count)
            shift[effect_node].append(needed)
    lamport = np.empty(len(node), np.int64)
    for name in nodes.tolist():
        rows = node == name
        lamport[rows] = (
            count[rows]
            + np.asarray(shift[name])[
                np.searchsorted(shift_from[name], count[rows], side="right") - 1
            ]
        )
    return lamport
