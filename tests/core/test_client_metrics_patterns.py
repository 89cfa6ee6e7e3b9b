"""Valid match patterns of client metrics subscriptions: the columns are results of
ClientMetricsConfigs.validate of 3.9.1, 4.0.2 and 4.4.0.
"""

import pytest

from kraftsim.metadata.rules_config_releases import config_tables, refuse_client_metrics
from protocol.errors import ErrorCode

LINES = ("3.9", "4.0", "4.4")
ILLEGAL = "Illegal client matching pattern: "
EMPTY = "Configuration '{}' values must not be empty."


@pytest.mark.parametrize(
    ("name", "value", "complaints"),
    [
        ("match", "client_id=b=", (None, None, None)),
        ("match", "client_id=b==", (None, None, None)),
        ("match", "client_id==b", (f"{ILLEGAL}client_id==b",) * 3),
        ("match", "client_id=a=b", (f"{ILLEGAL}client_id=a=b",) * 3),
        ("match", "client_id=", (f"{ILLEGAL}client_id=",) * 3),
        ("match", "=b", (f"{ILLEGAL}=b",) * 3),
        ("match", "client_id=a,", (None, ILLEGAL, EMPTY.format("match"))),
        ("match", ",client_id=a", (ILLEGAL, ILLEGAL, EMPTY.format("match"))),
        ("match", ",", (None, ILLEGAL, EMPTY.format("match"))),
        ("match", "", (ILLEGAL, None, None)),
        ("match", " ", (f"{ILLEGAL} ", None, None)),
        ("match", " client_id = a ", (None, None, None)),
        ("match", "client_id=a,client_id=a", (None, None, None)),
        ("metrics", "a,,b", (None, None, EMPTY.format("metrics"))),
        ("metrics", "a,a", (None, None, None)),
        ("metrics", "", (None, None, None)),
    ],
)
def test_lists_are_split_as_in_each_release(
    name: str, value: str, complaints: tuple[str | None, ...]
) -> None:
    for line, complaint in zip(LINES, complaints, strict=True):
        refusal = refuse_client_metrics("s", {name: value}, config_tables(line).client_metrics)
        assert (refusal and (refusal.error, refusal.why)) == (
            complaint and (ErrorCode.INVALID_CONFIG, complaint)
        ), line
