"""DescribeUserScramCredentials (50): the SCRAM credentials of users, by the broker's metadata.

Source: KIP-554, kafka.server.KafkaApis.
"""

from kraftsim.metadata.rules_registries import DescribedCredentials, describe_credentials
from kraftsim.server.call import Answer, Call, Handler
from kraftsim.server.serving_broker import ImageBroker
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(broker: ImageBroker, call: Call) -> Answer:
    """Respond at once."""
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


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, DescribeUserScramCredentialsRequest), "dispatch decodes by API key"
    rows = [
        DescribeUserScramCredentialsResult(error_code=error, error_message=None)
        for _ in call.body.users or ()
    ]  # Kafka leaves the user empty
    return DescribeUserScramCredentialsResponse(error_code=error, error_message=None, results=rows)


HANDLER = Handler(key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, handle=handle, refuse=_refuse)
