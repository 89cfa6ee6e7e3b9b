"""Log lines for operators, derived from the events of a node: registration, fencing, elections,
leadership, ISR changes, refused frames, failed logins, slow disks.

The node code emits events only. This module decides which of them an operator needs, at which
level and how often, so that no hot path formats a line: an event without an entry in `MESSAGES`
costs one dictionary lookup. Two limits keep a log readable when a cluster is in trouble. Messages
of one text appear at most `LINES_MAX` times per window, and the window ends with a count of the
suppressed ones. Per-partition messages are summarised: one line per window, with the number of
partitions and the names of the first few.

Source: the levels and subjects follow the log lines of kafka.server.ReplicaManager,
org.apache.kafka.raft.KafkaRaftClient, org.apache.kafka.controller.ClusterControlManager.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from kraftsim.events.event import Event
from kraftsim.server.events_connections import OUTBOUND
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode

DEBUG, INFO, WARNING, ERROR = "debug", "info", "warning", "error"
WINDOW_SECONDS = 5.0
SUMMARY_SECONDS = 1.0
LINES_MAX = 10
"""Lines of one text per window of WINDOW_SECONDS."""
NAMED_MAX = 5
"""Partitions that a summary names."""
SLOW_FLUSH_SECONDS = 1.0
"""ZooKeeper warns at the same length (fsync.warningthresholdms)."""
EXPECTED_CLOSINGS = ("peer", "stopping", "idle")
SHUT_DOWN = "shut down"
Values = dict[str, object]
ERROR_NAMES = {int(code): code.name for code in ErrorCode}
API_NAMES = {int(key): key.name for key in ApiKey}
Emit = Callable[..., object]


class Logger(Protocol):
    """What this module needs of structlog's bound logger."""

    def debug(self, event: str, **values: object) -> object:
        """Write a line at debug level."""
        ...

    def info(self, event: str, **values: object) -> object:
        """Write a line at info level."""
        ...

    def warning(self, event: str, **values: object) -> object:
        """Write a line at warning level."""
        ...

    def error(self, event: str, **values: object) -> object:
        """Write a line at error level."""
        ...


@dataclass(frozen=True, slots=True)
class Message:
    """One log message.

    `values` maps the event's fields to those of the line; None: this event needs no line.
    """

    level: str
    text: str
    values: Callable[[Values], Values | None] = dict
    is_summary: bool = False
    """Collect the events of SUMMARY_SECONDS into one line that counts and names partitions."""


def _with_names(values: Values) -> Values:
    """Replace error codes and API keys by Kafka's names."""
    named = dict(values)
    for number, name, names in (
        ("error_code", "error", ERROR_NAMES),
        ("api_key", "api", API_NAMES),
    ):
        if number in named:
            code = named.pop(number)
            named[name] = names.get(cast(int, code), code)
    return named


def _unexpected(values: Values) -> Values | None:
    """Omit connections that closed normally, and those to other nodes, which are reopened."""
    return (
        None if values["reason"] in EXPECTED_CLOSINGS or values["listener"] == OUTBOUND else values
    )


def _unasked(values: Values) -> Values | None:
    """Omit a broker that is fenced because of its controlled shutdown."""
    return None if values["reason"] == SHUT_DOWN else values


def _only_torn(values: Values) -> Values | None:
    return values if values["truncated_bytes"] else None


def _only_expired(values: Values) -> Values | None:
    return values if values["is_expired"] else None


def _feature(values: Values) -> Values:
    """Rename `level`, which is a key of every line."""
    return {f"feature_{name}" if name == "level" else name: value for name, value in values.items()}


def _isr(values: Values) -> Values:
    return {**values, "detail": f"[{values['isr']}]"}


def _transaction_partition(values: Values) -> Values:
    return {"topic": "__transaction_state", "partition": values["partition"]}


def _group_partition(values: Values) -> Values:
    return {"topic": "__consumer_offsets", "partition": values["partition"]}


MESSAGES: Mapping[str, Message] = {
    # registration and fencing
    "BrokerEpochReceived": Message(INFO, "registered with the controller"),
    "FencedByController": Message(WARNING, "fenced by the controller"),
    "UnfencedByController": Message(INFO, "unfenced by the controller"),
    "BrokerRegistered": Message(INFO, "broker registered"),
    "BrokerRegistrationRefused": Message(WARNING, "broker registration refused", _with_names),
    "BrokerFenced": Message(WARNING, "broker fenced", _unasked),
    "BrokerUnfenced": Message(INFO, "broker unfenced"),
    "BrokerUnregistered": Message(INFO, "broker unregistered"),
    "ControllerRegistered": Message(INFO, "controller registered"),
    "ControllerUnregistered": Message(INFO, "controller unregistered"),
    # elections
    "RaftRoleChanged": Message(INFO, "quorum role changed"),
    "ElectionLost": Message(WARNING, "quorum election lost"),
    "CheckQuorumFailed": Message(
        WARNING, "quorum leader resigns: no fetch from a majority of the voters"
    ),
    "OtherClusterAnswered": Message(
        ERROR, "refused by a node of the quorum: it belongs to another cluster", _with_names
    ),
    "VotersChanged": Message(INFO, "quorum voters changed"),
    "ControllerElected": Message(INFO, "became the active controller"),
    "ControllerResigned": Message(WARNING, "resigned as the active controller"),
    "SnapshotLoaded": Message(INFO, "metadata snapshot loaded"),
    "MetadataTruncated": Message(INFO, "metadata log truncated to the leader's"),
    # partitions
    "LeaderElected": Message(INFO, "became leader of partitions", is_summary=True),
    "LeadershipLost": Message(INFO, "lost leadership of partitions", is_summary=True),
    "LeaderFollowed": Message(DEBUG, "follows partitions", is_summary=True),
    "IsrChanged": Message(INFO, "ISR changed", _isr, is_summary=True),
    "PartitionTruncated": Message(INFO, "logs truncated to the leader's", is_summary=True),
    "ReplicationFailed": Message(WARNING, "replica fetch failed"),
    "LogRecovered": Message(WARNING, "torn tail of a log removed", _only_torn),
    "CleaningFailed": Message(ERROR, "log compaction failed"),
    "RemoteCopyFailed": Message(WARNING, "copy to the remote store failed"),
    # coordinators
    "TransactionsLoaded": Message(
        INFO, "transaction coordinator loaded", _transaction_partition, is_summary=True
    ),
    "TransactionsUnloaded": Message(
        INFO, "transaction coordinator unloaded", _transaction_partition, is_summary=True
    ),
    "GroupsLoaded": Message(INFO, "group coordinator loaded", _group_partition, is_summary=True),
    "GroupsUnloaded": Message(
        INFO, "group coordinator unloaded", _group_partition, is_summary=True
    ),
    "TransactionAbortForced": Message(INFO, "transaction aborted by the coordinator"),
    "ProducerFenced": Message(INFO, "producer fenced"),
    # administration
    "TopicCreated": Message(INFO, "topic created"),
    "TopicDeleted": Message(INFO, "topic deleted"),
    "ConfigChanged": Message(INFO, "configuration changed"),
    "FeatureLevelChanged": Message(INFO, "feature level changed", _feature),
    "MigrationDriverMoved": Message(INFO, "migration driver changed state"),
    "MigrationWaits": Message(INFO, "migration waits"),
    "ZookeeperControllerClaimed": Message(INFO, "claimed /controller in ZooKeeper"),
    "ZookeeperSessionEnded": Message(WARNING, "ZooKeeper session expired", _only_expired),
    # clients
    "RequestRefused": Message(WARNING, "request refused", _with_names),
    "MessageFailed": Message(ERROR, "message could not be built or encoded", _with_names),
    "TlsHandshakeFailed": Message(WARNING, "TLS handshake failed"),
    "AuthenticationRefused": Message(WARNING, "authentication failed"),
    "ConnectionClosed": Message(INFO, "connection closed by this node", _unexpected),
    # failures
    "DiskFailed": Message(ERROR, "disk failed"),
    "LogDirectoryFailed": Message(ERROR, "log directory failed"),
    "NodeFailed": Message(ERROR, "node failed"),
}
"""By the kind of the event."""


class OperatorLogWindow:
    """The lines written and suppressed for one message since its window began."""

    __slots__ = ("count", "names", "shown")

    def __init__(self) -> None:
        self.shown = 0
        self.count = 0
        self.names: list[str] = []


class OperatorLog:
    """Writes the lines of one node.

    A world looks up `reports` for each event: see `kraftsim.world.real.world.RealWorld.watch`.
    """

    def __init__(self, logger: Logger, loop: asyncio.AbstractEventLoop) -> None:
        self._emit: dict[str, Emit] = {
            level: getattr(logger, level) for level in (DEBUG, INFO, WARNING, ERROR)
        }
        self._loop = loop
        self._windows: dict[str, OperatorLogWindow] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self.reports = Reports(self)

    def report(self, message: Message, event: Event) -> None:
        """Write the line of an event, or count it."""
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        values = message.values(fields)
        if values is None:
            return
        window = self._window_of(message)
        window.count += 1
        if message.is_summary:
            if len(window.names) < NAMED_MAX:
                window.names.append(
                    f"{values['topic']}-{values['partition']}{values.get('detail', '')}"
                )
        elif window.shown < LINES_MAX:
            window.shown += 1
            self._emit[message.level](message.text, **values)

    def report_slow_disk(self, path: str, operation: str, seconds: float) -> None:
        """Warn of a slow flush."""
        if seconds >= SLOW_FLUSH_SECONDS:
            self._emit[WARNING](
                "slow disk", path=path, operation=operation, seconds=round(seconds, 3)
            )

    def close(self) -> None:
        """Write the suppressed counts; nothing is reported later."""
        for text in list(self._timers):
            self._timers[text].cancel()
            self._end_window(text)

    def _window_of(self, message: Message) -> OperatorLogWindow:
        found = self._windows.get(message.text)
        if found is None:
            found = self._windows[message.text] = OperatorLogWindow()
            length = SUMMARY_SECONDS if message.is_summary else WINDOW_SECONDS
            self._timers[message.text] = self._loop.call_later(
                length, self._end_window, message.text
            )
        return found

    def _end_window(self, text: str) -> None:
        window = self._windows.pop(text)
        del self._timers[text]
        message = BY_TEXT[text]
        emit = self._emit[message.level]
        if message.is_summary:
            more = ["..."] if window.count > len(window.names) else []
            emit(text, count=window.count, partitions=" ".join([*window.names, *more]))
        elif window.count > window.shown:
            emit(text, suppressed=window.count - window.shown, seconds=WINDOW_SECONDS)


class Reports(dict[type[Event], Callable[[Event], None] | None]):
    """From the class of an event to the function that writes its line, None for most. Filled on
    demand, so that no event module is imported for it.
    """

    def __init__(self, log: OperatorLog) -> None:
        super().__init__()
        self._log = log

    def __missing__(self, kind: type[Event]) -> Callable[[Event], None] | None:
        message = MESSAGES.get(kind.__name__)
        report = self._log.report
        found = self[kind] = None if message is None else lambda event: report(message, event)
        return found


BY_TEXT = {message.text: message for message in MESSAGES.values()}
