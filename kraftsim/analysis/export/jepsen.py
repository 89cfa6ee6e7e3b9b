"""The history of a run's clients as Jepsen writes it: one operation in EDN per line.

Values are micro-operations of Elle's list-append model: a partition is a list, a record that is
produced is `[:append PARTITION KEY]`, and what a reader returned from the start of a partition is
`[:r PARTITION [KEY ...]]`. A client has several records in flight, and a Jepsen process one
operation: each client has as many processes as it needs, and `:client` names it.
Source: jepsen.history; elle.list-append; K. Kingsbury, P. Alvaro, Elle, VLDB 2020.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import IO, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraftsim.analysis.columns import POSITION
from kraftsim.analysis.export.edn import Edn, Keyword, edn
from kraftsim.analysis.export.scope import Integers, LoggedEvent, Scope, codes, texts

KINDS: Final = (
    *("RecordSent", "RecordAcknowledged", "RecordReportedDuplicate", "RecordFailed"),
    *("TransactionBegun", "TransactionEnded"),
)
OUTCOMES: Final = {"committed": "ok", "aborted": "fail"}
"""Outcome of a transaction -> type of its completion; any other one is unknown: info."""
APPEND, READ, OK, INFO = (Keyword(name) for name in ("append", "r", "ok", "info"))
_READ_COLUMNS: Final = ("client_id", "node", "incarnation", "topic", "partition")

Place = tuple[str, int]
"""Topic and partition."""


class Operation(msgspec.Struct, kw_only=True, eq=False):
    """An operation that has not completed."""

    client: str
    process: int
    function: Keyword
    value: Edn
    polled: Edn = None
    is_final: bool = False
    """A read that began when all work was done: what it lacks is lost."""


class Reading(NamedTuple):
    """Rows of the table of reads: what a client returned from a partition, in the order of
    offsets.
    """

    begin: int
    end: int


def write(scope: Scope, out: IO[bytes]) -> list[str]:
    """Write the history; operations without a completion get one of type :info at its end."""
    history = _History(out)
    values = _Values(scope)
    reads = _Reads(scope, values)
    clients = _Clients(history, values)
    for event in scope.events(KINDS):
        reads.write_until(history, event.position)
        clients.take(event)
    reads.write_until(history, scope.end)
    history.close(scope.end_ns)
    remarks = []
    if reads.partial:
        remarks.append(
            f"{reads.partial:,} reads do not begin at the start of a partition, or are not "
            "read_committed: they are written as :poll with :polled, which Elle does not check"
        )
    if not scope.is_whole:
        remarks.append(
            "this history is a part of the run: records that were appended before it are unknown "
            "to a checker"
        )
    return remarks


def key_of(place: Place) -> str:
    """Return the name of a partition: the key of its list."""
    return f"{place[0]}-{place[1]}"


class _History:
    """Numbers operations, and gives each a process that is not in use."""

    def __init__(self, out: IO[bytes]) -> None:
        self._out = out
        self._index = 0
        self._processes = 0
        self._free: dict[str, list[int]] = {}
        self._open: dict[int, Operation] = {}

    def invoke(self, t_ns: int, client: str, function: Keyword, value: Edn) -> Operation:
        """Write an invocation."""
        free = self._free.setdefault(client, [])
        process = heappop(free) if free else self._processes
        self._processes = max(self._processes, process + 1)
        operation = Operation(
            client=client,
            process=process,
            function=function,
            value=value,
        )
        self._open[process] = operation
        self._write(t_ns, operation, Keyword("invoke"), value, {})
        return operation

    def complete(
        self,
        t_ns: int,
        operation: Operation,
        outcome: Keyword,
        *,
        error: Edn = None,
        offset: int | None = None,
    ) -> None:
        """Write a completion. After :info the process is not used again, as in Jepsen."""
        if self._open.pop(operation.process, None) is None:
            return
        more: dict[Keyword, Edn] = {}
        if operation.is_final:
            more[Keyword("final")] = True
        if operation.polled is not None:
            more[Keyword("polled")] = operation.polled
        if offset is not None:
            more[Keyword("offset")] = offset
        if error is not None:
            more[Keyword("error")] = error
        self._write(t_ns, operation, outcome, operation.value, more)
        if outcome != INFO:
            heappush(self._free[operation.client], operation.process)

    def close(self, t_ns: int) -> None:
        """Complete what is open: its outcome is unknown."""
        for operation in list(self._open.values()):
            self.complete(t_ns, operation, INFO, error=Keyword("no-completion"))

    def _write(
        self,
        t_ns: int,
        operation: Operation,
        outcome: Keyword,
        value: Edn,
        more: dict[Keyword, Edn],
    ) -> None:
        line: dict[Keyword, Edn] = {
            Keyword("index"): self._index,
            Keyword("time"): t_ns,
            Keyword("type"): outcome,
            Keyword("process"): operation.process,
            Keyword("f"): operation.function,
            Keyword("value"): value,
            Keyword("client"): operation.client,
            **more,
        }
        self._out.write(edn(line).encode() + b"\n")
        self._index += 1


class _Clients:
    """Turns the events of producers into operations, in the order of time."""

    def __init__(self, history: _History, values: "_Values") -> None:
        self._history = history
        self._values = values
        self._sends: dict[tuple[str, Place, str], Operation] = {}
        self._transactions: dict[tuple[str, str], Operation] = {}

    def take(self, event: LoggedEvent) -> None:
        """Take the next event."""
        client, transaction = event.text("client_id"), event.text("transaction")
        if event.kind == "TransactionBegun":
            self._begin(event, client, transaction)
        elif event.kind == "TransactionEnded":
            operation = self._transactions.pop((client, transaction), None)
            if operation is not None:
                outcome = Keyword(OUTCOMES.get(event.text("outcome"), "info"))
                code = event.number("error_code")
                error: Edn = None if outcome == OK else [Keyword("error-code"), code]
                self._history.complete(event.t_ns, operation, outcome, error=error)
        elif transaction:
            if (client, transaction) not in self._transactions:
                self._begin(event, client, transaction)
        else:
            self._record(event, client)

    def _begin(self, event: LoggedEvent, client: str, transaction: str) -> None:
        value = self._values.appended_in(client, transaction)
        self._transactions[client, transaction] = self._history.invoke(
            event.t_ns, client, Keyword("txn"), value
        )

    def _record(self, event: LoggedEvent, client: str) -> None:
        place = event.text("topic"), event.number("partition")
        name = client, place, event.text("record_key")
        if event.kind == "RecordSent":
            value = [APPEND, key_of(place), self._values.sent(event)]
            self._sends[name] = self._history.invoke(event.t_ns, client, APPEND, [value])
            return
        operation = self._sends.pop(name, None)
        if operation is None:  # a record of a transaction, or one that was sent before the window
            return
        if event.kind == "RecordFailed":
            error: Edn = [Keyword("error-code"), event.number("error_code"), event.text("reason")]
            self._history.complete(event.t_ns, operation, INFO, error=error)
        else:
            offset = event.number("offset")
            self._history.complete(
                event.t_ns, operation, OK, offset=offset if offset >= 0 else None
            )


class _Values:
    """The value of each record in its list.

    Elle requires that a value is appended to a list once. A record that an application sends again
    after a failure has the same key; its value is KEY#2, and the offset tells which one was read.
    """

    def __init__(self, scope: Scope) -> None:
        columns = ["client_id", "topic", "partition", "record_key", "transaction"]
        sent = scope.table(["RecordSent"], columns)
        self._of_event: dict[int, str] = {}
        self._of_offset: dict[tuple[Place, int], str] = {}
        self._name_repeated(scope, sent)
        in_transactions = sent.filter(pc.not_equal(texts(sent.column("transaction")), ""))
        keys = [(name, "ascending") for name in ("client_id", "transaction", POSITION)]
        self._appends = in_transactions.sort_by(keys)
        self._rows = {
            (
                str(self._appends["client_id"][begin].as_py()),
                str(self._appends["transaction"][begin].as_py()),
            ): (begin, end)
            for begin, end in _runs(self._appends, ("client_id", "transaction"))
        }
        self.transactional: set[Place] = {
            (row["topic"], row["partition"])
            for row in in_transactions.group_by(["topic", "partition"]).aggregate([]).to_pylist()
        }

    def sent(self, event: LoggedEvent) -> str:
        """Return the value of a record that is sent."""
        return self._of_event.get(event.position) or event.text("record_key")

    def read(self, place: Place, offset: int, record_key: str) -> str:
        """Return the value of a record that was read."""
        return self._of_offset.get((place, offset), record_key)

    def appended_in(self, client: str, transaction: str) -> Edn:
        """Return the appends of a transaction, also those that are yet to come."""
        begin, end = self._rows.get((client, transaction), (0, 0))
        return [
            [
                APPEND,
                key_of((row["topic"], row["partition"])),
                self._of_event.get(row[POSITION]) or row["record_key"],
            ]
            for row in self._appends.slice(begin, end - begin).to_pylist()
        ]

    def _name_repeated(self, scope: Scope, sent: pa.Table) -> None:
        record = ["topic", "partition", "record_key"]
        counts = sent.select([*record, POSITION]).group_by(record).aggregate([(POSITION, "count")])
        repeated = counts.filter(pc.greater(counts.column(f"{POSITION}_count"), 1))
        if not repeated.num_rows:
            return
        keys = pa.array(set(texts(repeated.column("record_key")).to_pylist()))
        columns = ["kind", "client_id", *record, "offset"]
        rows = scope.table(["RecordSent", "RecordAcknowledged"], columns)
        rows = rows.filter(pc.is_in(texts(rows.column("record_key")), value_set=keys))
        seen: dict[tuple[Place, str], int] = {}
        latest: dict[tuple[str, Place, str], str] = {}
        for row in rows.to_pylist():
            place, key = (row["topic"], row["partition"]), row["record_key"]
            if row["kind"] == "RecordSent":
                count = seen[place, key] = seen.get((place, key), 0) + 1
                value = key if count == 1 else f"{key}#{count}"
                self._of_event[row[POSITION]] = latest[row["client_id"], place, key] = value
            elif (row["client_id"], place, key) in latest:
                self._of_offset[place, row["offset"]] = latest[row["client_id"], place, key]


class _Reads:
    """What readers returned, one operation for each pass of a client through a partition.

    A pass that begins at the first record that any reader returned is a read of the list, if
    aborted records were not visible; any other one is a poll.
    """

    def __init__(self, scope: Scope, values: _Values) -> None:
        columns = [*_READ_COLUMNS, "is_read_committed", "offset", "record_key", "t_ns"]
        table = scope.table(["RecordRead"], columns)
        self._table = table.sort_by([(name, "ascending") for name in (*_READ_COLUMNS, POSITION)])
        self._values = values
        self._operations: dict[int, Operation] = {}
        self.partial = 0
        offsets = np.asarray(self._table.column("offset").combine_chunks(), np.int64)
        self._audited = {
            (row["client_id"], row["topic"])
            for row in scope.table(["CopyRead"], ["client_id", "topic"]).to_pylist()
        }
        """Readers that have read a topic when all work was done."""
        self._readings = [
            Reading(begin, end)
            for begin, end in _runs(self._table, (*_READ_COLUMNS, "is_read_committed"), offsets)
        ]
        self._first_offset: dict[Place, int] = {}
        for reading in self._readings:
            if self._sees_a_list(reading):
                place, offset = self._place(reading), int(offsets[reading.begin])
                self._first_offset[place] = min(self._first_offset.get(place, offset), offset)
        self._last = {
            (self._client(reading), self._place(reading)): reading for reading in self._readings
        }
        self._steps = self._in_order_of_time()
        self._next = next(self._steps, None)

    def write_until(self, history: _History, position: int) -> None:
        """Write what happened before a position."""
        while self._next is not None and self._next[0] < position:
            _, number, is_end = self._next
            reading = self._readings[number]
            if is_end:
                operation = self._operations.pop(number)
                self._returned(operation, reading)
                history.complete(self._t_ns(reading.end - 1), operation, OK)
            else:
                self._operations[number] = self._invoke(history, reading)
            self._next = next(self._steps, None)

    def _in_order_of_time(self) -> Iterator[tuple[int, int, bool]]:
        position = np.asarray(self._table.column(POSITION).combine_chunks(), np.int64)
        steps = [
            step
            for number, reading in enumerate(self._readings)
            for step in (
                (int(position[reading.begin]), number, False),
                (int(position[reading.end - 1]), number, True),
            )
        ]
        yield from sorted(steps)

    def _invoke(self, history: _History, reading: Reading) -> Operation:
        client = self._client(reading)
        if self._is_list(reading):
            place = self._place(reading)
            value: Edn = [[READ, key_of(place), None]]
            operation = history.invoke(self._t_ns(reading.begin), client, Keyword("read"), value)
            operation.is_final = (
                client,
                place[0],
            ) in self._audited and reading == self._last[client, place]
            return operation
        self.partial += 1
        return history.invoke(self._t_ns(reading.begin), client, Keyword("poll"), [])

    def _returned(self, operation: Operation, reading: Reading) -> None:
        """Set the value of a completed read: only now, so that only one is in memory."""
        place = self._place(reading)
        rows = self._table.slice(reading.begin, reading.end - reading.begin)
        offsets = rows.column("offset").to_pylist()
        keys = rows.column("record_key").to_pylist()
        values = [
            self._values.read(place, offset, key) for offset, key in zip(offsets, keys, strict=True)
        ]
        if self._is_list(reading):
            operation.value = [[READ, key_of(place), values]]
        else:
            pairs = [[offset, value] for offset, value in zip(offsets, values, strict=True)]
            operation.polled = [[key_of(place), pairs]]

    def _is_list(self, reading: Reading) -> bool:
        offset = self._table["offset"][reading.begin].as_py()
        return self._sees_a_list(reading) and offset == self._first_offset[self._place(reading)]

    def _sees_a_list(self, reading: Reading) -> bool:
        is_committed = self._table["is_read_committed"][reading.begin].as_py()
        return bool(is_committed) or self._place(reading) not in self._values.transactional

    def _client(self, reading: Reading) -> str:
        return str(self._table["client_id"][reading.begin].as_py())

    def _place(self, reading: Reading) -> Place:
        row = reading.begin
        return str(self._table["topic"][row].as_py()), int(self._table["partition"][row].as_py())

    def _t_ns(self, row: int) -> int:
        return int(self._table["t_ns"][row].as_py())


def _runs(
    table: pa.Table, names: tuple[str, ...], increasing: Integers | None = None
) -> list[tuple[int, int]]:
    """Return where rows with equal values begin and end, and where a column stops increasing."""
    if not table.num_rows:
        return []
    differs = np.zeros(table.num_rows - 1, np.bool_)
    for name in names:
        values = codes(table.column(name))
        differs |= values[1:] != values[:-1]
    if increasing is not None:
        differs |= increasing[1:] <= increasing[:-1]
    begins = [0, *(np.flatnonzero(differs) + 1).tolist()]
    return list(zip(begins, [*begins[1:], table.num_rows], strict=True))
