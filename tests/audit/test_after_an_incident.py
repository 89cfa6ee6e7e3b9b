"""The worked example of docs/after-an-incident.md, with a real Apache Kafka."""

import json
import sys
from pathlib import Path

import pytest

from tests.apache_kafka.class_path import DEFAULT_RELEASE, NEWEST_RELEASE
from tests.audit.hanging_transaction import (
    COMMITTED_BEFORE,
    COMMITTED_BEHIND,
    TRANSACTIONS,
    consumed,
    incident,
    lag,
    shown,
)

pytestmark = pytest.mark.interop


SENT = (
    "".join(
        f'{{"type": "acknowledged", "topic": "payments", "partition": 0, "offset": {offset}, '
        '"transactional_id": "payments-2"}\n'
        for offset in (24, 25, 26, 28, 29)
    )
    + '{"type": "transaction", "transactional_id": "payments-2", "outcome": "committed"}\n'
)
"""What the application recorded: it believes that the late records were committed too."""


@pytest.mark.parametrize("release", [DEFAULT_RELEASE, NEWEST_RELEASE])
def test_a_hanging_transaction_is_found_aborted_and_gone(release: str, tmp_path: Path) -> None:
    """The audit finds what Kafka's own tool finds, its command ends the transaction, and the next
    audit is sound.
    """
    with incident(tmp_path, release) as found:
        assert consumed(found) == COMMITTED_BEFORE
        lag(found)
        found.copy("copies/broker-1")
        audit = found.audit("copies/broker-1", "--out", "audit", "--json", "audit.json")
        assert audit.exit_code == 1, audit.output
        document = json.loads((tmp_path / "audit.json").read_text())
        broken = [rule for rule in document["rules"] if rule["defect_count"]]
        assert [rule["name"] for rule in broken] == ["no-hanging-transactions"]
        (defect,) = broken[0]["defects"]
        hanging = found.tool(
            "kafka-transactions.sh",
            TRANSACTIONS,
            "find-hanging",
            "--broker-id",
            "1",
            "--max-transaction-timeout",
            "0",
        )
        (row,) = hanging.output.splitlines()[1:]
        transaction = defect["transaction"]
        assert row.split()[:5] == [
            str(transaction[name])
            for name in ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch")
        ], hanging.output
        assert found.shell(defect["commands"][0]).exit_code == 0
        assert consumed(found) == COMMITTED_BEHIND
        lag(found)
        found.copy("copies/later")
        later = found.audit("copies/later")
        assert later.exit_code == 0, later.output
        (tmp_path / "sent.jsonl").write_text(SENT)
        sent = found.audit("copies/later", "--acknowledged", "sent.jsonl")
        assert sent.exit_code == 1, sent.output
        assert "LOSS  outcomes-match-their-markers: 2 of 5 examined" in sent.output
    sys.stdout.write(shown(found.steps))
