"""Rates and buckets of clients do not accumulate for ever: clients choose the ids that index
them.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftsim.metadata.rules_registries import Registries
from kraftsim.server.client_quotas import MutationQuotas
from kraftsim.server.controller import RequestQuotas
from kraftsim.server.rules_quotas import IDLE_MS, TIDY_MIN, ExpiringMap, TokenBucket, WindowedRate
from kraftsim.world.interface import Clock
from protocol.metadata.settings import ClientQuotaRecord, EntityData


def test_entries_unused_for_an_hour_are_removed() -> None:
    """Used entries are kept, however many others there are."""
    rates: ExpiringMap[int, WindowedRate] = ExpiringMap(lambda: WindowedRate(11, 1000))
    for key in range(TIDY_MIN):
        rates.of(key, 1).record(1.0, 1)
    kept = rates.of(7, IDLE_MS)
    kept.record(1.0, IDLE_MS)
    rates.of(TIDY_MIN, IDLE_MS + 1).record(1.0, IDLE_MS + 1)
    assert len(rates) == 2 and rates.of(7, IDLE_MS + 1) is kept


def test_scans_of_all_entries_are_rare() -> None:
    """The next scan comes after as many new entries as the last one saw: the amortized cost is
    constant.
    """
    looks = 0

    class Counted(TokenBucket):
        @property
        def last_ms(self) -> int:
            nonlocal looks
            looks += 1
            return 0

    buckets: ExpiringMap[int, Counted] = ExpiringMap(lambda: Counted(1))
    for key in range(32 * TIDY_MIN):
        buckets.of(key, 0)
    assert len(buckets) == 32 * TIDY_MIN and looks < 2 * len(buckets)


class OneClock:
    """A clock that is set."""

    now_ms = 1

    def monotonic_ms(self) -> int:
        return self.now_ms


def charge_requests(quotas: RequestQuotas, call: Any) -> None:
    quotas.charge(call, 1)


def charge_mutations(quotas: MutationQuotas, call: Any) -> None:
    quotas.allowance(call, is_strict=True).admits(1)


@pytest.mark.parametrize(
    ("kind", "key", "charge", "kept"),
    [
        (RequestQuotas, "request_percentage", charge_requests, "_rates"),
        (MutationQuotas, "controller_mutation_rate", charge_mutations, "_buckets"),
    ],
)
def test_controller_forgets_clients_that_came_once(
    kind: Any, key: str, charge: Callable[[Any, Any], None], kept: str
) -> None:
    """Each with its own client id, under a limit per client id."""
    record = ClientQuotaRecord(
        entity=[EntityData(entity_type="client-id", entity_name=None)], key=key, value=1000.0
    )
    registries = cast(
        Registries,
        SimpleNamespace(quota_changes=1, quotas=SimpleNamespace(records=lambda: [record])),
    )
    config = SimpleNamespace(
        quota_window_num=11,
        quota_window_size_seconds=1,
        controller_quota_window_num=11,
        controller_quota_window_size_seconds=1,
    )
    clock = OneClock()
    quotas = kind(config, cast(Clock, clock), lambda: registries)
    for number in range(5 * TIDY_MIN):
        clock.now_ms += IDLE_MS // TIDY_MIN
        charge(
            quotas, SimpleNamespace(principal=SimpleNamespace(name="u"), client_id=f"c-{number}")
        )
    assert len(getattr(quotas, kept)) <= 2 * TIDY_MIN
