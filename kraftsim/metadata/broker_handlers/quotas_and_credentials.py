"""Requests that describe client quotas and SCRAM credentials, from the broker's image."""

from typing import Protocol

from kraftsim.core.decision import Refusal
from kraftsim.metadata.rules_client_quotas import DescribedQuotas, describe_quotas
from kraftsim.metadata.rules_registries import DescribedCredentials, describe_credentials
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
from protocol.messages.k50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


class QuotasBroker(ImageBroker, RunningBroker, Protocol):
    """A broker that describes client quotas."""


def handle_describe_client_quotas(broker: QuotasBroker, call: Call) -> Answer | Deferred:
    """DescribeClientQuotas (48): the configured client quotas, by the broker's metadata.

    Respond at once, or over several iterations of the event loop: a row takes 7 us, and the size of
    a request does not limit their number.

    Source: KIP-546, kafka.server.KafkaApis.
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


def _refuse_describe_client_quotas(call: Call, error: ErrorCode) -> Answer:
    return DescribeClientQuotasResponse(error_code=error, entries=None)


DESCRIBE_CLIENT_QUOTAS = Handler(
    key=ApiKey.DESCRIBE_CLIENT_QUOTAS,
    handle=handle_describe_client_quotas,
    refuse=_refuse_describe_client_quotas,
)


def handle_describe_user_scram_credentials(broker: ImageBroker, call: Call) -> Answer:
    """DescribeUserScramCredentials (50): the SCRAM credentials of users, by the broker's metadata.

    Respond at once.

    Source: KIP-554, kafka.server.KafkaApis.
    """
    assert isinstance(call.body, DescribeUserScramCredentialsRequest), "dispatch decodes by API key"
    results = []
    for found in describe_credentials(broker.image.registries, call.body):
        if isinstance(found, DescribedCredentials):
            infos = [
                CredentialInfo(mechanism=mechanism, iterations=iterations)
                for mechanism, iterations in found.credentials
            ]
            results.append(
                DescribeUserScramCredentialsResult(user=found.user, credential_infos=infos)
            )
        else:
            user, refusal = found
            results.append(
                DescribeUserScramCredentialsResult(
                    user=user, error_code=refusal.error, error_message=refusal.message
                )
            )
    return DescribeUserScramCredentialsResponse(results=results)


def _refuse_describe_user_scram_credentials(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DescribeUserScramCredentialsRequest), "dispatch decodes by API key"
    rows = [
        DescribeUserScramCredentialsResult(error_code=error, error_message=None)
        for _ in call.body.users or ()
    ]  # Kafka leaves the user empty
    return DescribeUserScramCredentialsResponse(error_code=error, error_message=None, results=rows)


DESCRIBE_USER_SCRAM_CREDENTIALS = Handler(
    key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    handle=handle_describe_user_scram_credentials,
    refuse=_refuse_describe_user_scram_credentials,
)


HANDLERS = (
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
