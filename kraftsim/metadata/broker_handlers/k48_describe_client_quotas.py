"""DescribeClientQuotas (48): the configured client quotas, by the broker's metadata.

Source: KIP-546, kafka.server.KafkaApis.
"""

from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_client_quotas import DescribedQuotas, describe_quotas
from kraftsim.server.call import Answer, Call, Deferred, Handler
from kraftsim.server.large_requests import process_entries
from kraftsim.server.serving_broker import ImageBroker, RunningBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k48_describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)


class QuotasBroker(ImageBroker, RunningBroker, Protocol):
    """A broker that describes client quotas."""


def handle(broker: QuotasBroker, call: Call) -> Answer | Deferred:
    """Respond at once, or over several iterations of the event loop: a row takes 7 us, and the size
    of a request does not limit their number.
    """
    assert isinstance(call.body, DescribeClientQuotasRequest), "dispatch decodes by API key"
    found = describe_quotas(broker.image.registries, call.body)
    if isinstance(found, Refusal):
        return DescribeClientQuotasResponse(
            error_code=found.error, error_message=found.message, entries=None
        )
    return process_entries(
        broker.shell,
        call,
        found,
        _entry,
        lambda entries: DescribeClientQuotasResponse(entries=list(entries)),
    )


def _entry(quotas: DescribedQuotas) -> EntryData:
    return EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in quotas.entity],
        values=[ValueData(key=key, value=value) for key, value in quotas.values],
    )


def _refuse(call: Call, error: ErrorCode) -> Answer:
    return DescribeClientQuotasResponse(error_code=error, entries=None)


HANDLER = Handler(key=ApiKey.DESCRIBE_CLIENT_QUOTAS, handle=handle, refuse=_refuse)
