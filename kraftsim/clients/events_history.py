"""What a checker finds in the history of a workload's clients, and what its readers read."""

from kraftsim.events.event import Event


class HistoryChecked(Event):
    """A checker has read the whole history of a workload: so many transactions and reads.

    `model` is the consistency model that it must meet: see `rules_history_anomalies.FORBIDDEN`.
    """

    workload: str
    model: str
    operation_count: int


class HistoryAnomalyFound(Event):
    """The history has an anomaly that its model forbids; `witness` has its steps."""

    workload: str
    anomaly: str
    key: str
    witness: str


class BranchRead(Event):
    """A reader has read all accounts of a branch of the bank, in one state: after a transfer."""

    client_id: str
    branch: int
    transfer: int
    total: int
    expected_total: int
