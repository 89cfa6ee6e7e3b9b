"""The event on another node that caused an event, and the resulting Lamport clocks.

None of this is on the wire. A received frame pairs with the last one sent before it on the same
connection with the same correlation id. Where frames were not logged, some events still identify
each other: a block that was allocated and received, a batch and its acknowledgements, an id that
was returned and received.

A run is read in slices of its order of time. `CauseTracker` keeps what a later slice may need: the
causes that have no effect yet, each with its clock, and one clock per node. So the memory is that
of a slice, and the result does not depend on where the slices are cut.
Source: L. Lamport, Time, Clocks, and the Ordering of Events in a Distributed System, 1978.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
NO_CAUSE: Final = -1
OPEN_MAX: Final = 1 << 20
"""The number of causes without an effect that are kept of each sort, the latest ones: a frame that
was sent a million unanswered frames ago is not looked for.
"""


class KindRows(NamedTuple):
    """The events of one kind in a slice: their fields, and for each its index in the order of time
    within the slice, ascending.
    """

    table: pa.Table
    place: Integers


class Causes(NamedTuple):
    """For each event of a slice, in the order of time, the position of its cause (NO_CAUSE for
    none), and its Lamport clock.
    """

    cause: Integers
    lamport: Integers


class _Known(NamedTuple):
    """Events that may become causes: their keys, and their places."""

    keys: tuple[Integers, ...]
    position: Integers
    node: Integers
    lamport: Integers

    def kept(self, which: "Integers | Booleans") -> "_Known":
        return _Known(
            tuple(key[which] for key in self.keys),
            self.position[which],
            self.node[which],
            self.lamport[which],
        )


def _nothing(key_count: int) -> _Known:
    empty = np.zeros(0, np.int64)
    return _Known((empty,) * key_count, empty, empty, empty)


class _Pairs(NamedTuple):
    """Indexes of effects in a slice and the positions of their causes."""

    effect: Integers
    cause: Integers


class _Sort:
    """Events that identify each other by a key: each effect pairs with the last cause before it
    with an equal key, unless another effect is paired with that.
    """

    def __init__(self, cause_kind: str, effect_kind: str, names: Sequence[str]) -> None:
        self.cause_kind, self.effect_kind, self.names = cause_kind, effect_kind, names
        self.open = _nothing(len(names))

    def pair(self, slice_: "_Slice") -> _Pairs:
        """Pair the effects of a slice, and note which causes remain."""
        causes = slice_.keys(self.cause_kind, self.names)
        effects = slice_.keys(self.effect_kind, self.names)
        keys = [
            np.concatenate((known, cause, effect))
            for known, cause, effect in zip(self.open.keys, causes.keys, effects.keys, strict=True)
        ]
        base, known_count = slice_.base, len(self.open.position)
        position = np.concatenate((self.open.position, causes.place + base, effects.place + base))
        is_effect = np.arange(len(position)) >= known_count + len(causes.place)
        order = np.lexsort((position, *keys))
        same = np.ones(max(len(order) - 1, 0), np.bool_)
        for key in keys:
            ordered = key[order]
            same &= ordered[1:] == ordered[:-1]
        effect_after = is_effect[order]
        found = np.flatnonzero(same & effect_after[1:] & ~effect_after[:-1])
        is_open = ~effect_after
        is_open[:-1] &= ~same
        self._remaining = order[is_open]
        self._keys = keys
        return _Pairs(position[order[found + 1]] - base, position[order[found]])

    def keep(self, slice_: "_Slice", lamport: Integers) -> None:
        """Keep the causes that remain, with their clocks in this slice or a former one."""
        known_count = len(self.open.position)
        causes = slice_.keys(self.cause_kind, self.names)
        every = _Known(
            tuple(key[: known_count + len(causes.place)] for key in self._keys),
            np.concatenate((self.open.position, causes.place + slice_.base)),
            np.concatenate((self.open.node, slice_.node[causes.place])),
            np.concatenate((self.open.lamport, lamport[causes.place])),
        )
        self.open = _latest(every.kept(self._remaining))


def _latest(known: _Known) -> _Known:
    if len(known.position) <= OPEN_MAX:
        return known
    return known.kept(np.argpartition(known.position, -OPEN_MAX)[-OPEN_MAX:])


class _Appends:
    """Appended batches, and the acknowledgements of their records: an acknowledgement pairs with
    the batch before it that contains the offset, of several the one that begins last.
    """

    NAMES: Final = ("topic", "partition", "first_offset", "last_offset")

    def __init__(self) -> None:
        self.known = _nothing(len(self.NAMES))

    def pair(self, slice_: "_Slice") -> _Pairs:
        """Pair the acknowledgements of a slice."""
        appends = self._all(slice_, np.zeros(len(slice_.node), np.int64))
        acknowledged = slice_.keys("RecordAcknowledged", ("topic", "partition", "offset"))
        nothing = np.zeros(0, np.int64)
        if not len(appends.position) or not len(acknowledged.place):
            return _Pairs(nothing, nothing)
        topic, partition, first_offset, last_offset = appends.keys
        ack_topic, ack_partition, offset = acknowledged.keys
        count = len(appends.position)
        position = np.concatenate((appends.position, acknowledged.place + slice_.base))
        is_append = np.arange(len(position)) < count
        logs = (np.concatenate((topic, ack_topic)), np.concatenate((partition, ack_partition)))
        order = np.lexsort((position, ~is_append, np.concatenate((first_offset, offset)), *logs))
        # the last append at or before each place: it begins last of those that begin early enough
        place = np.maximum.accumulate(np.where(is_append[order], np.arange(len(order)), -1))
        asked = np.flatnonzero(~is_append[order] & (place >= 0))
        effect, append = order[asked], order[place[asked]]
        same = np.ones(len(effect), np.bool_)
        for log in logs:
            same &= log[effect] == log[append]
        effect, append = effect[same], append[same]
        early = position[append] < position[effect]
        holds = early & (last_offset[append] >= offset[effect - count])
        late = effect[~early]
        found = [(effect[holds] - count, position[append[holds]])]
        for each in late.tolist():  # a batch that was truncated and written again
            cause = self._before(appends, each - count, acknowledged.keys, int(position[each]))
            if cause is not None:
                found.append((np.array([each - count]), np.array([cause])))
        rows = np.concatenate([rows for rows, _ in found])
        return _Pairs(acknowledged.place[rows], np.concatenate([cause for _, cause in found]))

    @staticmethod
    def _before(appends: _Known, ack: int, keys: Sequence[Integers], position: int) -> int | None:
        topic, partition, first_offset, last_offset = appends.keys
        ack_topic, ack_partition, offset = (int(key[ack]) for key in keys)
        found = np.flatnonzero(
            (topic == ack_topic)
            & (partition == ack_partition)
            & (first_offset <= offset)
            & (appends.position < position)
        )
        if not len(found):
            return None
        last = found[np.lexsort((appends.position[found], first_offset[found]))[-1]]
        return int(appends.position[last]) if last_offset[last] >= offset else None

    def keep(self, slice_: "_Slice", lamport: Integers) -> None:
        """Keep the batches, with their clocks."""
        self.known = _latest(self._all(slice_, lamport))

    def _all(self, slice_: "_Slice", lamport: Integers) -> _Known:
        new = slice_.keys("BatchAppended", self.NAMES)
        return _Known(
            tuple(np.concatenate(pair) for pair in zip(self.known.keys, new.keys, strict=True)),
            np.concatenate((self.known.position, new.place + slice_.base)),
            np.concatenate((self.known.node, slice_.node[new.place])),
            np.concatenate((self.known.lamport, lamport[new.place])),
        )


class _Keys(NamedTuple):
    """The keys of the events of one kind that have all of them, and their indexes."""

    keys: tuple[Integers, ...]
    place: Integers


class _Slice:
    """The events of one slice, as the sorts of causes ask for them."""

    def __init__(
        self,
        rows: Mapping[str, KindRows],
        node: Integers,
        base: int,
        codes: dict[str, dict[str | None, int]],
    ) -> None:
        self.rows, self.node, self.base, self._codes = rows, node, base, codes
        self._found: dict[tuple[str, tuple[str, ...]], _Keys] = {}

    def keys(self, kind: str, names: Sequence[str]) -> _Keys:
        """Return columns of the events of a kind as numbers: texts as codes that are the same in
        every slice; events without a link have no key.
        """
        found = self._found.get((kind, tuple(names)))
        if found is not None:
            return found
        if kind in self.rows:
            table, index = self.rows[kind]
            keys = tuple(self._column(table, name) for name in names)
            if "link" in names:
                has_link = keys[names.index("link")] >= 0
                keys, index = tuple(key[has_link] for key in keys), index[has_link]
            found = _Keys(keys, index)
        else:
            empty = np.zeros(0, np.int64)
            found = _Keys((empty,) * len(names), empty)
        self._found[kind, tuple(names)] = found
        return found

    def _column(self, table: pa.Table, name: str) -> Integers:
        column = table.column(name)
        if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            return self._coded(column, name)
        numbers = column.cast(pa.int64()).combine_chunks().fill_null(-1)
        return np.asarray(numbers, np.int64)

    def _coded(self, column: pa.ChunkedArray, name: str) -> Integers:
        """Return a number for each text, the same for the same text; -1 for null and for ''."""
        if not len(column):
            return np.zeros(0, np.int64)
        encoded = column.combine_chunks()
        if not pa.types.is_dictionary(column.type):
            encoded = encoded.dictionary_encode()
        known = self._codes.setdefault(name, {None: -1, "": -1})
        codes = np.array(
            [known.setdefault(text, len(known)) for text in encoded.dictionary.to_pylist()] or [-1],
            np.int64,
        )
        indices = np.asarray(encoded.indices.fill_null(-1), np.int64)
        return np.where(indices >= 0, codes[indices], -1)


class CauseTracker:
    """Derives causes and clocks of one run, slice by slice."""

    def __init__(self) -> None:
        self.frames_paired = 0
        self._codes: dict[str, dict[str | None, int]] = {}
        self._count: dict[int, int] = {}
        self._shift: dict[int, int] = {}
        self._frames = _Sort(
            "FrameSent", "FrameReceived", ("link", "correlation_id", "is_response")
        )
        self._sorts: tuple[_Sort | _Appends, ...] = (
            self._frames,
            _Sort("ProducerIdBlockAllocated", "ProducerIdBlockReceived", ("first_producer_id",)),
            _Sort("ProducerIdReturned", "ClientInitialized", ("producer_id", "producer_epoch")),
            _Appends(),
        )

    def derive(self, rows: Mapping[str, KindRows], node: Integers, base: int) -> Causes:
        """Return causes and clocks of the next slice: its events by kind, the code of the node of
        each event in the order of time, and the position of the first.
        """
        slice_ = _Slice(rows, node, base, self._codes)
        cause = np.full(len(node), NO_CAUSE, np.int64)
        for sort in self._sorts:
            pairs = sort.pair(slice_)
            cause[pairs.effect] = pairs.cause
            if sort is self._frames:
                self.frames_paired += len(pairs.effect)
        lamport = self._clocks(cause, node, base)
        for sort in self._sorts:
            sort.keep(slice_, lamport)
        return Causes(cause, lamport)

    def _former(self, positions: Integers) -> tuple[Integers, Integers]:
        """Return node and clock of causes in former slices."""
        every = [sort.known if isinstance(sort, _Appends) else sort.open for sort in self._sorts]
        position = np.concatenate([known.position for known in every])
        order = np.argsort(position, kind="stable")
        found = order[np.searchsorted(position[order], positions)]
        node = np.concatenate([known.node for known in every])[found]
        return node, np.concatenate([known.lamport for known in every])[found]

    def _clocks(self, cause: Integers, node: Integers, base: int) -> Integers:
        """Return the clocks: on each node one more than before, and at an effect at least one more
        than the clock of its cause on another node.

        On a node the clock is its own count plus a shift that only grows, so that only effects need
        to be visited one by one, in order of time.
        """
        order = np.argsort(node, kind="stable")
        nodes, first, sizes = np.unique(node[order], return_index=True, return_counts=True)
        for each in nodes.tolist():
            self._count.setdefault(each, 0)
            self._shift.setdefault(each, 1)
        begins = np.array([self._count[each] for each in nodes.tolist()], np.int64)
        count = np.empty(len(node), np.int64)
        count[order] = np.arange(len(node)) + np.repeat(begins - first, sizes)
        shift_from = {each: [self._count[each]] for each in nodes.tolist()}
        shift = {each: [self._shift[each]] for each in nodes.tolist()}

        effects = np.flatnonzero(cause != NO_CAUSE)
        is_former = cause[effects] < base
        former_node, former_lamport = self._former(cause[effects[is_former]])
        local = np.where(is_former, 0, cause[effects] - base)
        cause_node = node[local] if len(node) else local
        cause_node[is_former] = former_node
        cause_count = count[local] if len(node) else local
        cause_lamport = np.full(len(effects), -1, np.int64)
        cause_lamport[is_former] = former_lamport
        other = cause_node != node[effects]
        visits = zip(
            node[effects[other]].tolist(),
            count[effects[other]].tolist(),
            cause_node[other].tolist(),
            cause_count[other].tolist(),
            cause_lamport[other].tolist(),
            strict=True,
        )
        for effect_node, effect_count, from_node, from_count, clock in visits:
            if clock < 0:
                shifts = shift[from_node]
                place = bisect_right(shift_from[from_node], from_count) - 1
                clock = from_count + shifts[place]
            needed = clock + 1 - effect_count
            if needed > shift[effect_node][-1]:
                shift_from[effect_node].append(effect_count)
                shift[effect_node].append(needed)
        lamport = np.empty(len(node), np.int64)
        for place, each in enumerate(nodes.tolist()):
            rows = order[first[place] : first[place] + sizes[place]]
            starts = np.asarray(shift_from[each], np.int64)
            lamport[rows] = (
                count[rows]
                + np.asarray(shift[each], np.int64)[
                    np.searchsorted(starts, count[rows], side="right") - 1
                ]
            )
            self._count[each] += int(sizes[place])
            self._shift[each] = shift[each][-1]
        return lamport
