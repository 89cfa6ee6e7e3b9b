"""Checks a bank over what clients read: transfers between the accounts of a branch, each recorded
with both accounts' new balances, so that what was lost, repeated or computed from an old state
shows.

A branch numbers its transfers from 1. A consistent read of a branch is its state after the longest
run of transfers of which a reader has both records: partitions become visible one by one, so the
latest record of every account need not be of one state. In each of them the sum is the same.
Source: Jepsen's bank test; A. Adya, lost update (P4).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraftsim.clients.rules_history_anomalies import Anomaly, AnomalyKind

RECORDS = 2
"""Records of one transfer: one for each account."""


class BankEntry(NamedTuple):
    """One record: a transfer's effect on one account; `amount` is negative where it was paid."""

    branch: int
    number: int
    account: int
    amount: int
    balance: int

    @property
    def key(self) -> str:
        """Return the entry as the key of its record."""
        return ".".join(str(each) for each in self)


def entry_of(key: str) -> BankEntry:
    """Return the entry of a record's key. Raises ValueError."""
    branch, number, account, amount, balance = (int(part) for part in key.split("."))
    return BankEntry(branch, number, account, amount, balance)


@dataclass(frozen=True, kw_only=True, slots=True)
class Branch:
    """The state of a branch: `number` of its last transfer, and the balances of its accounts."""

    number: int
    balances: Mapping[int, int]

    @property
    def total(self) -> int:
        """The sum of all balances."""
        return sum(self.balances.values())


def opening(accounts: int, balance: int) -> Branch:
    """Return a branch before its first transfer."""
    return Branch(number=0, balances=dict.fromkeys(range(accounts), balance))


def consistent_read(branch: int, start: Branch, entries: Sequence[BankEntry]) -> Branch:
    """Return the state of a branch after the longest run of transfers that are there completely, by
    the balances that their records have.
    """
    transfers = _transfers(branch, entries)
    number, balances = start.number, dict(start.balances)
    while len(transfers.get(number + 1, ())) >= RECORDS:
        number += 1
        balances.update({entry.account: entry.balance for entry in transfers[number]})
    return Branch(number=number, balances=balances)


def bank_anomalies(
    reader: str, branches: int, start: Branch, entries: Sequence[BankEntry]
) -> list[Anomaly]:
    """Return what is wrong in the records of one read of all partitions."""
    return [
        anomaly
        for branch in range(branches)
        for anomaly in _of_branch(reader, branch, start, _transfers(branch, entries))
    ]


def missing_transfers(
    reader: str, made: Mapping[int, int], start: Branch, entries: Sequence[BankEntry]
) -> list[Anomaly]:
    """Return the branches of which a read after all work was done lacks transfers; `made` is how
    many there are, by branch.
    """
    found = {branch: consistent_read(branch, start, entries).number for branch in made}
    return [
        Anomaly(
            AnomalyKind.LOST_APPEND,
            f"branch-{branch}",
            (
                f"{reader} read {found[branch]} transfers of branch {branch} completely, of "
                f"{count} that were made",
            ),
        )
        for branch, count in made.items()
        if found[branch] < count
    ]


def _transfers(branch: int, entries: Sequence[BankEntry]) -> dict[int, list[BankEntry]]:
    found: dict[int, list[BankEntry]] = {}
    for entry in entries:
        if entry.branch == branch:
            found.setdefault(entry.number, []).append(entry)
    return found


def _of_branch(
    reader: str, branch: int, start: Branch, transfers: Mapping[int, Sequence[BankEntry]]
) -> Iterator[Anomaly]:
    balances = dict(start.balances)
    for number in sorted(transfers):
        if len(transfers[number]) > RECORDS:
            yield Anomaly(
                AnomalyKind.LOST_UPDATE,
                f"branch-{branch}/{number}",
                (
                    f"{reader} read transfer {number} of branch {branch} more than once: "
                    f"{', '.join(entry.key for entry in transfers[number])}",
                ),
            )
    number = start.number
    while len(transfers.get(number + 1, ())) == RECORDS:
        number += 1
        for entry in transfers[number]:
            expected = balances[entry.account] + entry.amount
            balances[entry.account] = entry.balance
            if entry.balance != expected:
                yield Anomaly(
                    AnomalyKind.LOST_UPDATE,
                    f"branch-{branch}/{number}/{entry.account}",
                    (
                        f"{reader} read balance {entry.balance} of account {entry.account} of "
                        f"branch {branch} after transfer {number}, which makes it {expected}",
                    ),
                )
        if sum(balances.values()) != start.total:
            yield Anomaly(
                AnomalyKind.WRONG_TOTAL,
                f"branch-{branch}/{number}",
                (
                    f"{reader} read a total of {sum(balances.values())} in branch {branch} after "
                    f"transfer {number}, not {start.total}",
                ),
            )
            return
