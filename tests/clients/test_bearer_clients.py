"""librdkafka logs in with tokens of SASL OAUTHBEARER."""

import time
from typing import cast

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.conformance.bearer_tokens import HOUR_S, kraftsim_with_tokens, unsecured_token

pytestmark = pytest.mark.interop
SECONDS = 20.0
Made = dict[str, str | int | float | bool]
"""The type of configurations in the client, which leaves out callbacks."""
AUTHORIZATION = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:alice",
}


def bearer(bootstrap: str, user: str) -> Made:
    """Return the settings of a client that makes a token for itself."""

    def token(_: str) -> tuple[str, float]:
        end = time.time() + HOUR_S
        return unsecured_token({"sub": user, "exp": end}), end

    made = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
    }
    return cast("Made", made)


def test_librdkafka_logs_in_as_the_user_of_its_token() -> None:
    with kraftsim_with_tokens("4.4", AUTHORIZATION) as (tokens, _):
        admin = AdminClient(bearer(tokens, "alice"))
        admin.poll(0)
        made = admin.create_topics([NewTopic("greetings", 1, 1)], request_timeout=SECONDS)
        made["greetings"].result(SECONDS)
        failures: list[KafkaError | None] = []
        producer = Producer(bearer(tokens, "alice"))
        producer.produce("greetings", b"hello", on_delivery=lambda error, _: failures.append(error))
        assert (producer.flush(SECONDS), failures) == (0, [None])
        other = AdminClient(bearer(tokens, "bob"))
        other.poll(0)
        refused = other.create_topics([NewTopic("more", 1, 1)], request_timeout=SECONDS)["more"]
        with pytest.raises(KafkaException) as caught:
            refused.result(SECONDS)
        assert caught.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
