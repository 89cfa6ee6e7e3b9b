"""The world of one participant of a two-phase commit: it prepares, the database decides, and it, or
the instance after it, completes (KIP-939).

The coordinator is the rules and the records of `__transaction_state`; a record is in flight until
it is replicated, and its coordinator may fail before and after. Instances send one request at a
time, which waits in the network for as long as it likes, also when its sender is gone; each answer
may be lost, and then the instance sends the request again. An instance crashes at any moment.

A marker must have what the database decided, of the transaction that is open in the partition; and
in the end everything is decided.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kraftsim.core.decision import Refusal
from kraftsim.transactions.rules_coordinator import (
    Already,
    EndTxnInput,
    Expected,
    MustAbort,
    NeedsProducerId,
    TransactionRules,
)
from kraftsim.transactions.rules_state import (
    COMPLETED,
    ENDLESS_MS,
    ONGOING,
    PREPARE_COMMIT,
    PREPARED,
    TransactionEntry,
    TransactionFacts,
    facts_record,
    first_facts,
    read_facts,
)
from kraftsim.transactions.rules_two_phase_commit import TransactionRulesOfTwoPhaseCommit
from protocol.coordinator.registry import CoordinatorTopic, parse_record
from protocol.coordinator.transactions import TransactionLogValue
from protocol.errors import ErrorCode

PRODUCER_ID, NOW = 7, 1_000
PARTITION = ("t", 0)
OVER = ("done", "gone")
COPIES = 2
"""Of this many requests that arrived last there may be a late copy."""
FORGED = {ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING}


BOUNDS: Final[Mapping[str, Mapping[str, int]]] = {
    "a crash": {"crashes": 1},
    "a crash and a failover": {"crashes": 1, "failovers": 1},
    "a crash and a lost request": {"crashes": 1, "lost": 1},
    "a crash and a late copy": {"crashes": 1, "late": 1},
    "a lost request and two failovers": {"failovers": 2, "lost": 1},
}
"""What happens besides the work: a crash is also a pause, after which both instances work."""


class Request(NamedTuple):
    """A request of an instance: init, add or end; `commits` of an end."""

    instance: int
    kind: str
    producer: Expected
    commits: bool = False


@dataclass(slots=True)
class Participant:
    """One instance. `step` is what it does next: init, add, prepare, decide, end or done.

    `owner` is its number in the database, `found` the identity of the transaction to end, which is
    not its own while it `recovers`.
    """

    step: str = "init"
    producer: Expected = (-1, -1)
    found: Expected | None = None
    owner: int = 0
    commits: bool = False
    is_asking: bool = False
    recovers: bool = False


@dataclass(kw_only=True)
class TwoPhaseCommitWorld:
    """`crashes`, `failovers`, `lost` and `late` are how often each may happen: the last one is a
    copy of a request that arrives once more.

    `database_fences`: whether the database refuses the commit of an earlier instance.
    """

    crashes: int = 0
    failovers: int = 0
    lost: int = 0
    late: int = 0
    keeps: bool = True
    database_fences: bool = True
    rules: type[TransactionRules] = TransactionRulesOfTwoPhaseCommit
    entry: TransactionEntry = field(
        default_factory=lambda: TransactionEntry("id", first_facts(PRODUCER_ID, ENDLESS_MS, NOW))
    )
    log: TransactionFacts | None = None
    pending: tuple[TransactionFacts, Request | None] | None = None
    instances: list[Participant] = field(default_factory=lambda: [Participant()])
    network: tuple[Request, ...] = ()
    copies: tuple[Request, ...] = ()
    decided: frozenset[Expected] = frozenset()
    last_decided: Expected | None = None
    owners: int = 0
    open_in_partition: Expected | None = None

    # Moves
    # ----------------------------------------------------------------------------------------------

    def moves(self) -> list[str]:
        """Return the possible moves."""
        found = []
        for number, instance in enumerate(self.instances):
            if instance.step not in OVER and not instance.is_asking:
                found += self._steps(number, instance)
        is_over = all(each.step in OVER for each in self.instances)
        if self.crashes and not is_over:
            found += ["crash", "pause"]
        is_done = any(each.step == "done" for each in self.instances)
        if is_over and (not is_done or self.entry.facts.state is ONGOING):
            found.append("restart")
        found += [f"arrives:{place}" for place in range(len(self.network))]
        if self.lost:
            found += [f"loses:{place}" for place in range(len(self.network))]
        if self.late:
            found += [f"late:{place}" for place in range(len(self.copies))]
        if self.pending is not None:
            found.append("stored")
        elif self.entry.facts.state in PREPARED:
            found.append("marked")
        if self.failovers:
            found.append("fails")
            if self.pending is not None:
                found.append("fails-behind")
        return found

    def _steps(self, number: int, instance: Participant) -> list[str]:
        if instance.step == "decide":
            return [f"commits:{number}", f"refuses:{number}"]
        return [f"goes:{number}"]

    def make(self, move: str) -> None:
        """Make a move."""
        kind, _, place = move.partition(":")
        match kind:
            case "goes":
                self._go(int(place))
            case "commits" | "refuses":
                self._decide(int(place), is_commit=kind == "commits")
            case "crash" | "pause":
                self.crashes -= 1
                if kind == "crash":
                    self.instances[-1].step = "gone"
                self.instances.append(Participant())
            case "restart":
                self.instances.append(Participant())
            case "arrives" | "late":
                waiting = self.network if kind == "arrives" else self.copies
                request = waiting[int(place)]
                if kind == "late":
                    self.late -= 1
                    self.copies = self.copies if self.late else ()
                else:
                    self.network = _without(self.network, int(place))
                    self.copies = (*self.copies, request)[-COPIES:] if self.late else ()
                self._arrive(request, answers=kind == "arrives")
            case "loses":
                self.lost -= 1
                request = self.network[int(place)]
                self.network = _without(self.network, int(place))
                self._again(request)
            case "stored":
                self._store()
            case "marked":
                self._mark()
            case _:
                self._fail(is_lost=kind == "fails")

    def is_fault(self, move: str) -> bool:
        """Return whether a move need not happen."""
        return move.partition(":")[0] in (
            "crash",
            "pause",
            "loses",
            "late",
            "fails",
            "fails-behind",
        )

    def is_settled(self) -> bool:
        """Return whether an instance is done, no other one works, and everything is decided in the
        partition.
        """
        is_over = all(each.step in OVER for each in self.instances)
        return is_over and self._is_complete() and self.pending is None and not self.network

    def _is_complete(self) -> bool:
        return (
            any(each.step == "done" for each in self.instances)
            and self.entry.facts.state not in (ONGOING, *PREPARED)
            and self.open_in_partition is None
        )

    def sufficient(self, moves: list[str]) -> list[str]:
        """Return all moves: nothing is left out."""
        return moves

    def state(self) -> Hashable:
        """Return what the future depends on.

        Epochs count from that of the coordinator's record. Instances that are over do not count,
        nor what the database decided of transactions that are not open any more.
        """
        base = self.entry.facts.producer_epoch
        live = [each for each in self.instances if each.step not in OVER]
        rank = {
            number: live.index(each) if each in live else -1
            for number, each in enumerate(self.instances)
        }

        def of(identity: Expected | None) -> int | None:
            return None if identity is None else identity[1] - base

        def facts_of(facts: TransactionFacts | None) -> Hashable:
            return None if facts is None else _relative(facts, base)

        def request_of(request: Request) -> Hashable:
            producer = None if request.kind == "init" else of(request.producer)
            return rank[request.instance], request.kind, producer, request.commits

        last = self.last_decided
        open_one = self.open_in_partition
        return (
            _relative(self.entry.facts, base),
            facts_of(self.log),
            None
            if self.pending is None
            else (
                facts_of(self.pending[0]),
                None if self.pending[1] is None else request_of(self.pending[1]),
            ),
            tuple(
                (
                    each.step,
                    None if each.step == "init" else of(each.producer),
                    of(each.found),
                    each.owner == self.owners,
                    each.commits,
                    each.is_asking,
                    each.recovers,
                )
                for each in live
            ),
            any(each.step == "done" for each in self.instances),
            tuple(map(request_of, self.network)),
            tuple(map(request_of, self.copies)),
            of(open_one),
            open_one in self.decided,
            None if last is None or self._is_past(last) else of(last),
            (self.crashes, self.failovers, self.lost, self.late),
        )

    def _is_past(self, identity: Expected) -> bool:
        """Return whether no transaction has this identity any more, and none will."""
        known = [self.entry.facts, *([] if self.log is None else [self.log])]
        return all(identity[1] < facts.producer_epoch for facts in known) and not any(
            each.found == identity for each in self.instances if each.step not in OVER
        )

    # Instances
    # ----------------------------------------------------------------------------------------------

    def _go(self, number: int) -> None:
        instance = self.instances[number]
        match instance.step:
            case "init" | "add":
                self._send(Request(number, instance.step, instance.producer))
            case "prepare":
                instance.found, instance.step = instance.producer, "decide"
            case "look":
                self.owners += 1
                instance.owner = self.owners
                is_decided = instance.found is not None and instance.found == self.last_decided
                instance.commits = is_decided
                instance.recovers = instance.found is not None
                instance.step = "end" if instance.recovers else "add"
            case "end":
                self._send(Request(number, "end", instance.producer, instance.commits))

    def _send(self, request: Request) -> None:
        self.instances[request.instance].is_asking = True
        self.network = (*self.network, request)

    def _again(self, request: Request) -> None:
        instance = self.instances[request.instance]
        instance.is_asking = False

    def _decide(self, number: int, *, is_commit: bool) -> None:
        instance = self.instances[number]
        instance.step, instance.commits = "end", is_commit
        if not is_commit:
            return
        if self.database_fences and instance.owner != self.owners:
            instance.step = "gone"
            return
        assert instance.found is not None, "what is decided is prepared"
        self.decided, self.last_decided = self.decided | {instance.found}, instance.found

    def _answer(self, request: Request, given: Expected | ErrorCode, kept: Expected | None) -> None:
        instance = self.instances[request.instance]
        instance.is_asking = False
        if instance.step == "gone":
            return
        if isinstance(given, ErrorCode):
            if given in FORGED:
                instance.step = "gone"
            return
        match request.kind:
            case "init":
                instance.producer, instance.found, instance.step = given, kept, "look"
            case "add":
                instance.step = "prepare"
            case _:
                instance.producer, instance.step = given, "add" if instance.recovers else "done"
                instance.recovers = False

    # The coordinator
    # ----------------------------------------------------------------------------------------------

    def _arrive(self, request: Request, *, answers: bool) -> None:
        rules, waiting = self.rules(), request if answers else None
        outcome: TransactionFacts | Already | NeedsProducerId | MustAbort | Refusal
        match request.kind:
            case "init":
                decide = rules.decide_keeping if self.keeps else rules.decide_init
                outcome = decide(self.entry, None, ENDLESS_MS, NOW)
            case "add":
                outcome = rules.decide_add(self.entry, request.producer, [PARTITION], 2, NOW)
            case _:
                asked = EndTxnInput(
                    producer_id=request.producer[0],
                    producer_epoch=request.producer[1],
                    is_commit=request.commits,
                    transaction_version=2,
                )
                outcome = rules.decide_end(self.entry, asked, NOW)
        match outcome:
            case TransactionFacts():
                self._append(outcome, waiting)
            case MustAbort():
                aborted = rules.decide_forced_abort(self.entry, 2, NOW)
                assert isinstance(aborted, TransactionFacts), aborted
                self._append(aborted, None)
                self._refuse(waiting, ErrorCode.CONCURRENT_TRANSACTIONS)
            case Already():
                if waiting is not None:
                    self._answer(waiting, (outcome.producer_id, outcome.producer_epoch), None)
            case Refusal():
                self._refuse(waiting, outcome.error)
            case _:
                raise AssertionError(f"{outcome} of {request}")

    def _refuse(self, waiting: Request | None, error: ErrorCode) -> None:
        if waiting is not None:
            self._answer(waiting, error, None)

    def _append(self, facts: TransactionFacts, waiting: Request | None) -> None:
        self.entry.begin(facts)
        self.pending = (facts, waiting)

    def _store(self) -> None:
        assert self.pending is not None, "a record is in flight"
        facts, waiting = self.pending
        self.pending, self.log = None, facts
        self.entry.finish(facts)
        if facts.state is ONGOING and facts.next_producer_epoch < 0:
            self.open_in_partition = (facts.producer_id, facts.producer_epoch)
        if waiting is None or facts.state in COMPLETED.values():
            return
        if waiting.kind == "init" and facts.state is ONGOING:
            given = (facts.next_producer_id, facts.next_producer_epoch)
            self._answer(waiting, given, (facts.producer_id, facts.producer_epoch))
        elif waiting.kind == "end":
            self._answer(waiting, self.rules().identity_after(facts), None)
        else:
            self._answer(waiting, (facts.producer_id, facts.producer_epoch), None)

    def _mark(self) -> None:
        """The marker is written, and the completion is on its way."""
        facts = self.entry.facts
        of = self.open_in_partition
        if of is not None:
            assert (facts.producer_id, facts.producer_epoch) == (of[0], of[1] + 1), (
                f"the marker of {facts.producer_id}/{facts.producer_epoch} ends {of[0]}/{of[1]}"
            )
            is_commit = facts.state is PREPARE_COMMIT
            assert is_commit == (of in self.decided), (
                f"{of[0]}/{of[1]} is {'committed' if is_commit else 'aborted'} against the database"
            )
            self.open_in_partition = None
        self._append(self.rules().completed(self.entry, NOW), None)

    def _fail(self, *, is_lost: bool) -> None:
        """Another coordinator loads the log, with or without the record in flight. A request that
        was not answered is sent once more.
        """
        self.failovers -= 1
        if self.pending is not None:
            facts, waiting = self.pending
            self.pending = None
            if not is_lost:
                self.log = facts
                if facts.state is ONGOING and facts.next_producer_epoch < 0:
                    self.open_in_partition = (facts.producer_id, facts.producer_epoch)
            if waiting is not None:
                self._again(waiting)
        loaded = (
            first_facts(PRODUCER_ID, ENDLESS_MS, NOW) if self.log is None else through(self.log)
        )
        self.entry = TransactionEntry("id", loaded)


def _relative(facts: TransactionFacts, base: int) -> Hashable:
    return (
        facts.state,
        facts.producer_epoch - base,
        facts.next_producer_epoch - base if facts.next_producer_epoch >= 0 else None,
        facts.previous_producer_id,
        facts.last_producer_epoch - base if facts.last_producer_epoch >= 0 else None,
        facts.partitions,
    )


def through(facts: TransactionFacts) -> TransactionFacts:
    """Return what a coordinator reads of a record of these facts."""
    key, value = facts_record("id", facts, 1)
    parsed = parse_record(CoordinatorTopic.TRANSACTION_STATE, key, value)
    assert parsed is not None and isinstance(parsed[1], TransactionLogValue), "a value"
    return read_facts(parsed[1])


def _without(requests: tuple[Request, ...], place: int) -> tuple[Request, ...]:
    return (*requests[:place], *requests[place + 1 :])
