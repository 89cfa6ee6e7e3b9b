"""The rate limits of copies and reads, by release.   Source: KIP-956 (3.9)."""

from functools import partial

import pytest

from kraftsim.metadata.rules_config_releases import config_tables
from kraftsim.metadata.rules_described_configs import BrokerSettings
from kraftsim.releases.release import is_before, releases
from kraftsim.tiered_storage.archiving import COPY, FETCH, RemoteQuota

FIRST_TIERED, FIRST_WITH_LIMITS = "3.6", "3.8"
TIERED = [each.name for each in releases() if not is_before(each.name, FIRST_TIERED)]


class Stopped:
    """A stopped clock."""

    def wall_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0

    def monotonic_ns(self) -> int:
        return 0


def itself(settings: BrokerSettings) -> BrokerSettings:
    return settings


@pytest.mark.parametrize("line", TIERED)
@pytest.mark.parametrize("key", [COPY, FETCH])
def test_brokers_before_3_8_have_no_quota_and_ignore_the_setting(key: str, line: str) -> None:
    """They continue without one: reading the quota must not stop the broker."""
    tables = config_tables(line)
    pauses = []
    for static in ({}, {key: "1"}):
        settings = BrokerSettings(static=static, tables=tables)
        quota = RemoteQuota(
            key, windows=11, window_seconds=1, settings=partial(itself, settings), clock=Stopped()
        )
        quota.record(1 << 30)
        pauses.append(quota.pause_ms() > 0)
    assert pauses == [False, not is_before(line, FIRST_WITH_LIMITS)]
