"""Quotas in use: how a rate is measured, how long the throttle time is, and which quota applies to
which client (KIP-13, KIP-55, KIP-219).
"""

import pytest

from kraftsim.server.rules_quotas import ClientLimits, Limit, TokenBucket, WindowedRate
from protocol.metadata.settings import ClientQuotaRecord, EntityData

KEY = "producer_byte_rate"


def record(value: float, **names: str | None) -> ClientQuotaRecord:
    """A quota of an entity; a None name is the default entity."""
    parts = [
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in names.items()
    ]
    return ClientQuotaRecord(entity=parts, key=KEY, value=value)


def test_new_rate_is_averaged_over_all_windows_but_one() -> None:
    """Eleven windows of one second: an initial burst counts as if spread over ten seconds."""
    rate = WindowedRate(11, 1000)
    rate.record(105_000, 50_000)
    assert rate.measure(50_000) == 10_500
    assert rate.pause_ms(10_000, 50_000) == 500
    assert rate.pause_ms(10_500, 50_000) == 0
    assert rate.measure(50_500) == 10_000, "half a second later it is at its limit"
    assert rate.pause_ms(10_000, 50_500) == 0
    rate.record(-105_000, 50_500)
    assert rate.measure(50_500) == 0


def test_rate_windows_expire() -> None:
    """A steady rate is measured exactly; eleven seconds after its end the rate is zero."""
    rate = WindowedRate(11, 1000)
    for second in range(30):
        rate.record(500, second * 1000)
    assert rate.measure(29_999) == pytest.approx(500, rel=0.01)
    assert rate.measure(29_000 + 10_999) > 0
    assert rate.measure(29_000 + 11_000) == 0


def test_most_specific_quota_applies_and_names_its_sharing_scope() -> None:
    """In Kafka's order: user and client, user and any client, user, any user and client, any user
    and any client, any user, client, any client.
    """
    levels: list[tuple[dict[str, str | None], tuple[str, str]]] = [
        ({"user": "u", "client_id": "c"}, ("u", "c")),
        ({"user": "u", "client_id": None}, ("u", "c")),
        ({"user": "u"}, ("u", "")),
        ({"user": None, "client_id": "c"}, ("u", "c")),
        ({"user": None, "client_id": None}, ("u", "c")),
        ({"user": None}, ("u", "")),
        ({"client_id": "c"}, ("", "c")),
        ({"client_id": None}, ("", "c")),
    ]
    records = [record(float(number), **names) for number, (names, _) in enumerate(levels)]
    others = [
        record(99.0, user="v"),
        record(99.0, client_id="d"),
        record(99.0, user="u", client_id="d"),
        record(99.0, ip="127.0.0.1"),
    ]
    for number, (_, sharers) in enumerate(levels):
        limits = ClientLimits([*others, *records[number:]])
        assert limits.find(KEY, "u", "c") == Limit(float(number), sharers)
    assert ClientLimits(others).find(KEY, "u", "c") is None
    assert not ClientLimits([record(99.0, ip="127.0.0.1")])


def test_token_bucket_starts_full_and_may_be_overdrawn_once() -> None:
    """KIP-599: two per second, eleven seconds: 22 at once; what exceeds them must be refilled
    first.
    """
    bucket = TokenBucket(11)
    assert bucket.tokens(2.0, 1000) == 22
    bucket.take(30, 2.0, 1000)
    assert (bucket.tokens(2.0, 1000), bucket.pause_ms(2.0, 1000)) == (-8, 4000)
    assert (bucket.tokens(2.0, 5000), bucket.pause_ms(2.0, 5000)) == (0, 0)
    bucket.take(-100, 2.0, 5000)
    assert bucket.tokens(2.0, 5000) == 22
