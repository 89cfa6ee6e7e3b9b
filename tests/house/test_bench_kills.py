"""What `make bench ARGS=kills` counts as lost, duplicated, disordered, partial and leaked."""

from types import SimpleNamespace
from typing import cast

import pytest

from tools.bench.bench_kills import (
    ABORTED,
    COMMITTED,
    RECORDS_PER_TRANSACTION,
    UNKNOWN,
    Findings,
    IdempotentWriter,
    TransactionalWriter,
    check_idempotent,
    check_transactional,
)

WHOLE = [(0, f"t.0.{number}") for number in range(RECORDS_PER_TRANSACTION)]


def found_of(findings: Findings) -> list[str]:
    return [name for name, examples in findings.rows() if examples]


@pytest.mark.parametrize(
    ("acknowledged", "records", "expected"),
    [
        (["w.0", "w.1"], [(0, "w.0"), (0, "w.1")], []),
        (["w.0"], [(0, "w.0"), (0, "w.1")], []),
        (["w.0", "w.1"], [(0, "w.0")], ["lost"]),
        (["w.0"], [(0, "w.0"), (1, "w.0")], ["doubled"]),
        (["w.0", "w.1"], [(0, "w.1"), (0, "w.0")], ["disordered"]),
        (["w.0", "w.1"], [(0, "w.1"), (1, "w.0")], []),
    ],
)
def test_idempotent_records(
    acknowledged: list[str], records: list[tuple[int, str]], expected: list[str]
) -> None:
    findings = Findings()
    check_idempotent(
        [cast(IdempotentWriter, SimpleNamespace(acknowledged=acknowledged))], records, findings
    )
    assert found_of(findings) == expected


@pytest.mark.parametrize(
    ("outcome", "records", "expected"),
    [
        (COMMITTED, WHOLE, []),
        (ABORTED, [], []),
        (UNKNOWN, WHOLE, []),
        (UNKNOWN, [], []),
        (COMMITTED, [], ["lost"]),
        (COMMITTED, WHOLE[1:], ["partial"]),
        (UNKNOWN, WHOLE[1:], ["partial"]),
        (ABORTED, WHOLE, ["leaked"]),
        (COMMITTED, [*WHOLE, WHOLE[0]], ["doubled"]),
        (COMMITTED, [*WHOLE, (0, "other.5.0")], ["leaked"]),
    ],
)
def test_transactions(outcome: str, records: list[tuple[int, str]], expected: list[str]) -> None:
    findings = Findings()
    check_transactional(
        [cast(TransactionalWriter, SimpleNamespace(name="t", outcomes={0: outcome}))],
        records,
        findings,
    )
    assert found_of(findings) == expected
