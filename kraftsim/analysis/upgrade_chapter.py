"""The report's chapter on upgrades and migrations: phases, releases and levels of nodes over time,
producer id blocks, errors of clients.

A run of KRaft alone whose nodes all have the same release, and in which no level changes, has no
such chapter.
Source: KIP-584, KIP-730, KIP-866.
"""

import html
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from kraftsim.analysis.places import Where
from kraftsim.analysis.sentences import printable
from kraftsim.analysis.store import read_events
from kraftsim.clients.invariants.only_retriable_errors import TIMED_OUT, TIMING_OUT
from protocol.errors import ErrorCode

STARTED, PHASE, LEVEL, MIGRATION, BLOCK = (
    "NodeStarted",
    "PhaseBegan",
    "FeatureLevelChanged",
    "MigrationStateChanged",
    "ProducerIdBlockAllocated",
)
REFUSED: Final = "InitProducerIdRefused"
ERRORS: Final = (REFUSED, "RecordFailed", "TransactionErred")
KINDS: Final = (STARTED, PHASE, LEVEL, MIGRATION, BLOCK, *ERRORS)
COLUMNS: Final = (
    "kind",
    "node",
    "incarnation",
    "t_ns",
    "release",
    "phase",
    "feature",
    "level",
    "previous_level",
    "migration_state",
    "given_by",
    "broker_id",
    "error_code",
)
QUORUM: Final = "quorum"
ERROR_NAMES: Final = {int(error): error.name for error in ErrorCode}
BEFORE_ALL: Final = "before the first phase"
MOMENTS_MAX: Final = 400
Row: TypeAlias = Mapping[str, str | int | None]


class UpgradeMoment(msgspec.Struct, frozen=True):
    """A change: its time in nanoseconds of the run, the node, and what changed."""

    t_ns: int
    node: str
    what: str


class Counted(msgspec.Struct, frozen=True):
    """How often an event happened within a phase."""

    phase: str
    what: str
    times: int


class UpgradeChapter(msgspec.Struct, frozen=True):
    """The content of the chapter: the changes in order (the first few hundred of `moment_count`),
    blocks of producer ids, and errors, by phase.
    """

    moments: tuple[UpgradeMoment, ...]
    moment_count: int
    blocks: tuple[Counted, ...]
    errors: tuple[Counted, ...]


def find_upgrade(parquet: Where) -> UpgradeChapter | None:
    """Return the chapter of the run in a Parquet file, or None if it has none."""
    table = read_events(parquet, kinds=KINDS, columns=COLUMNS)
    return upgrade_of(
        sorted(table.to_pylist(), key=lambda row: (row["t_ns"], row["node"], row["incarnation"]))
    )


def upgrade_of(rows: Iterable[Row]) -> UpgradeChapter | None:
    """Return the chapter of events in their order; None if no node changes its release, level or
    mode.
    """
    phase, moments = BEFORE_ALL, []
    blocks: Counter[tuple[str, str]] = Counter()
    errors: Counter[tuple[str, str]] = Counter()
    releases: dict[str, None] = {}
    release_of: dict[tuple[object, object], str] = {}
    has_changed = False
    for row in rows:
        kind, text = str(row["kind"]), ""
        if kind == PHASE:
            phase = str(row["phase"])
            text = f"phase {phase}"
        elif kind == STARTED:
            releases[str(row["release"])] = None
            release_of[row["node"], row["incarnation"]] = str(row["release"])
            text = f"starts as {row['release']}"
        elif kind == LEVEL and row["level"] != row["previous_level"]:
            text, has_changed = (
                f"{row['feature']} goes from {row['previous_level']} to {row['level']}",
                True,
            )
        elif kind == MIGRATION:
            text, has_changed = f"the log has the migration state {row['migration_state']}", True
        elif kind == BLOCK:
            giver = row.get("given_by") or QUORUM
            blocks[phase, f"for broker {row['broker_id']}, allocated by the {giver}"] += 1
            has_changed = has_changed or giver != QUORUM
        elif kind in ERRORS:
            errors[
                phase,
                (
                    f"{kind}: "
                    f"{_error(row['error_code'])}"
                    f"{_known(row, release_of.get((row['node'], row['incarnation'])))}"
                ),
            ] += 1
        if text:
            moments.append(UpgradeMoment(int(row["t_ns"] or 0), str(row["node"]), text))
    if len(releases) < 2 and not has_changed:
        return None
    return UpgradeChapter(
        tuple(moments[:MOMENTS_MAX]), len(moments), _counted(blocks), _counted(errors)
    )


def _counted(found: Counter[tuple[str, str]]) -> tuple[Counted, ...]:
    """Return the counts by phase, in the order of their first time."""
    return tuple(Counted(phase, what, times) for (phase, what), times in found.items())


def _known(row: Row, release: str | None) -> str:
    """Return what is known about a release with these API versions; nothing if none is known to
    have them.
    """
    if row["kind"] != REFUSED or row["error_code"] != TIMED_OUT or release not in TIMING_OUT:
        return ""
    return (
        f", which {release} is known to return when no block of ids arrives in time; it is fatal "
        "to a producer"
    )


def _error(code: str | int | None) -> str:
    return ERROR_NAMES.get(int(code), f"error {code}") if code is not None else "no error code"


# --------------------------------------------------------------------------------------------------
# The chapter on upgrades and migrations in the report: three tables
#
# Text from a run reaches the page as text only.


def upgrade_html(chapter: UpgradeChapter | None) -> str:
    """Return the chapter, or nothing if a run has none."""
    if chapter is None:
        return ""
    moments = [
        (f"{moment.t_ns / 1e9:,.3f}", moment.node, moment.what) for moment in chapter.moments
    ]
    left_out = chapter.moment_count - len(moments)
    return "\n".join(
        (
            '<section class="chapter" id="upgrade"><h2>Upgrade and migration</h2>',
            _table("Changes of nodes", ("second", "node", "what changed"), moments),
            f'<p class="quiet">{left_out:,} more changes are in the event log.</p>'
            if left_out
            else "",
            _table(
                "Blocks of producer ids",
                ("phase", "block", "times"),
                [(each.phase, each.what, f"{each.times:,}") for each in chapter.blocks],
            ),
            _table(
                "Errors that clients saw",
                ("phase", "error", "times"),
                [(each.phase, each.what, f"{each.times:,}") for each in chapter.errors],
            ),
            "</section>",
        )
    )


def _table(title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    body = "".join(
        "<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    if not body:
        return f'<h3>{_text(title)}</h3><p class="quiet">None.</p>'
    heads = "".join(f"<th>{_text(each)}</th>" for each in head)
    return (
        f"<h3>{_text(title)}</h3><table><thead><tr>{heads}</tr></thead><tbody>{body}"
        "</tbody></table>"
    )


def _text(value: str) -> str:
    return html.escape(printable(value))
