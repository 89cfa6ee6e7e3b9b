"""An ACL or a credential that is deleted during administrative requests, or during a client's
session.

Source: KIP-368, KIP-590, KIP-900; ControllerApis, EnvelopeUtils, SaslServerAuthenticator,
ScramSaslServer; verified against Apache Kafka 3.9.1 and 4.4.0.
"""

from collections.abc import Callable
from functools import partial

from kraftsim.conformance.expect import Inapplicable, expect_equal, settled
from kraftsim.conformance.peer import Peer, api_key_of, request_bytes
from kraftsim.conformance.requirement import Requirements
from kraftsim.conformance.security_login import (
    authenticate,
    exchange,
    expect_closed,
    expect_served,
    plain,
    sasl_peer,
    scram_proof,
    scram_user,
    shake,
)
from kraftsim.conformance.security_rights import (
    ACL_VERSION,
    CLUSTER,
    CLUSTER_FAILED,
    CLUSTER_NAME,
    TOPIC_FAILED,
    described_acls,
    require_authorizer,
    revoke,
    rule,
    ruled,
)
from kraftsim.conformance.target import Target
from protocol.acls import AclOperation
from protocol.config_resources import ConfigResourceType
from protocol.errors import ErrorCode
from protocol.messages.k31_delete_acls import (
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from protocol.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from protocol.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from protocol.messages.k51_alter_user_scram_credentials import (
    SCRAM_SHA_512,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
)
from protocol.messages.k58_envelope import EnvelopeRequest, EnvelopeResponse
from protocol.messages.registry import response_class
from protocol.requests import decode_response
from protocol.schema import Message

REQUIREMENTS = Requirements(
    "security", 8, "Deletion of an ACL or a credential during administration or a session"
)
ALTER, ALTER_CONFIGS = AclOperation.ALTER, AclOperation.ALTER_CONFIGS
MECHANISM, SECRET, SET = "SCRAM-SHA-512", "secret", 0
REAUTHENTICATION_FAILED = (
    "Authentication failed during re-authentication due to invalid credentials with SASL "
    f"mechanism {MECHANISM}"
)
ALICE_DATA = b"\x00\x00\x05User\x06alice\x00\x00"
"""Alice's principal in an envelope: DefaultPrincipalData version 0 after its version prefix."""
LOOPBACK = bytes((127, 0, 0, 1))
Ask = Callable[[Message, int], Message]


def nothing_deleted(target: Target) -> DeleteAclsRequest:
    """Return a request that needs ALTER on the cluster and changes nothing."""
    row = DeleteAclsFilter(
        resource_type_filter=1,
        resource_name_filter=target.fresh_name(),
        pattern_type_filter=1,
        principal_filter=None,
    )
    row.host_filter, row.operation, row.permission_type = None, 1, 1
    return DeleteAclsRequest(filters=[row])


def administration(target: Target, topic: str, ask: Ask) -> dict[str, int]:
    """Send requests that change nothing, and return the errors."""
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=2, assignments=None)],
        timeout_ms=10000,
        validate_only=True,
    )
    config = AlterableConfig(name="retention.ms", config_operation=SET, value="1000")
    resource = AlterConfigsResource(
        resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=[config]
    )
    changed = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
    partitions, configs, rules = (
        ask(grown, 2),
        ask(changed, 1),
        ask(nothing_deleted(target), ACL_VERSION),
    )
    assert isinstance(partitions, CreatePartitionsResponse), "the request was CreatePartitions"
    assert isinstance(configs, IncrementalAlterConfigsResponse), (
        "the request was IncrementalAlterConfigs"
    )
    assert isinstance(rules, DeleteAclsResponse), "the request was DeleteAcls"
    return {
        "CreatePartitions": partitions.results[0].error_code,
        "IncrementalAlterConfigs": configs.responses[0].error_code,
        "DeleteAcls": rules.filter_results[0].error_code,
    }


def through_broker(peer: Peer, body: Message, version: int) -> Message:
    """Send the request to the broker, which forwards it in an envelope."""
    return peer.ask(body, version, type_of_answer(body))


def in_envelope(target: Target, body: Message, version: int) -> Message:
    """Send the request to the controller as the broker does for alice."""
    inner = request_bytes(body, version, 7)[4:]
    with target.controller_peer() as peer:
        asked = EnvelopeRequest(
            request_data=inner, request_principal=ALICE_DATA, client_host_address=LOOPBACK
        )
        answer = peer.ask(asked, 0, EnvelopeResponse)
    expect_equal(answer.error_code, 0, "the envelope")
    return decode_response(api_key_of(body), version, bytes(answer.response_data or b""))[1]


def type_of_answer(body: Message) -> type[Message]:
    """Return the response class of a request."""
    return response_class(api_key_of(body))


@REQUIREMENTS.that(
    1,
    "without its ACL an administrator's forwarded requests are rejected: "
    "TOPIC_AUTHORIZATION_FAILED or CLUSTER_AUTHORIZATION_FAILED",
    source="KIP-590; ControllerApis",
)
def administrator_revoked(target: Target) -> None:
    require_authorizer(target)
    topic = target.topic().name
    rules = (
        rule(CLUSTER_NAME, ALTER, resource=CLUSTER),
        rule(topic, ALTER),
        rule(topic, ALTER_CONFIGS),
    )
    with ruled(target, *rules) as peer:
        ways: dict[str, Ask] = {
            "through a broker": partial(through_broker, peer),
            "in an envelope": partial(in_envelope, target),
        }
        for way, ask in ways.items():
            found = settled(
                partial(administration, target, topic, ask),
                lambda errors: not any(errors.values()),
                f"success {way}",
            )
        revoke(target, *rules)
        refused = {
            "CreatePartitions": TOPIC_FAILED,
            "IncrementalAlterConfigs": TOPIC_FAILED,
            "DeleteAcls": CLUSTER_FAILED,
        }
        for way, ask in ways.items():
            found = settled(
                partial(administration, target, topic, ask),
                lambda errors: all(errors.values()),
                f"refusals {way}",
            )
            expect_equal(found, refused, f"errors {way}")


@REQUIREMENTS.that(
    2,
    "an administrator may delete the ACL that permits it: that request succeeds, the next one "
    "returns CLUSTER_AUTHORIZATION_FAILED",
    source="ControllerApis",
)
def own_right_deleted(target: Target) -> None:
    require_authorizer(target)
    may_alter = rule(CLUSTER_NAME, ALTER, resource=CLUSTER)
    with ruled(target, may_alter) as peer:
        own = DeleteAclsFilter(
            resource_type_filter=may_alter.resource_type,
            resource_name_filter=may_alter.resource_name,
            pattern_type_filter=may_alter.resource_pattern_type,
            principal_filter=may_alter.principal,
            host_filter=may_alter.host,
            operation=may_alter.operation,
            permission_type=may_alter.permission_type,
        )

        def errors(asked: DeleteAclsRequest) -> tuple[int, int]:
            row = peer.ask(asked, ACL_VERSION, DeleteAclsResponse).filter_results[0]
            return row.error_code, len(row.matching_acls)

        settled(
            partial(errors, nothing_deleted(target)),
            lambda found: not found[0],
            "the permission to delete ACLs",
        )
        expect_equal(
            errors(DeleteAclsRequest(filters=[own])),
            (0, 1),
            "DeleteAcls of its own ACL: error, deleted ACLs",
        )
        settled(partial(described_acls, target, may_alter), lambda rows: not rows, "no rule")
        found = settled(
            partial(errors, nothing_deleted(target)), lambda found: bool(found[0]), "a refusal"
        )
        expect_equal(found, (CLUSTER_FAILED, 0), "the next DeleteAcls")


def deleted_user(target: Target, name: str) -> None:
    """Delete a SCRAM user, by its SCRAM-encoded name; return once the broker has removed it."""
    row = ScramCredentialDeletion(
        name=name.replace("=2C", ",").replace("=3D", "="), mechanism=SCRAM_SHA_512
    )
    with target.peer() as peer:
        answer = peer.ask(
            AlterUserScramCredentialsRequest(deletions=[row]), 0, AlterUserScramCredentialsResponse
        )
    expect_equal([each.error_code for each in answer.results], [0], "AlterUserScramCredentials")

    def error() -> int:
        with sasl_peer(target) as peer:
            shake(peer, MECHANISM)
            return authenticate(peer, f"n,,n={name},r=probe".encode()).error_code

    refused = settled(error, lambda code: code != 0, "a refusal of the deleted user")
    expect_equal(
        refused, int(ErrorCode.SASL_AUTHENTICATION_FAILED), "a new connection of the deleted user"
    )


def logged_in(peer: Peer, user: str) -> None:
    """Authenticate by SCRAM.

    Raises Inapplicable if sessions have no lifetime, so that there is no re-authentication.
    """
    answer, _ = exchange(peer, MECHANISM, user, SECRET)
    expect_equal(answer.error_code, 0, "SaslAuthenticate")
    if not answer.session_lifetime_ms:
        raise Inapplicable("connections.max.reauth.ms is not set for SCRAM-SHA-512")


@REQUIREMENTS.that(
    3,
    "the session of a deleted SCRAM user lasts until re-authentication: "
    "SASL_AUTHENTICATION_FAILED, and the connection is closed",
    source="KIP-368; SaslServerAuthenticator",
    since="3.5",
)
def credential_deleted(target: Target) -> None:
    require_authorizer(target)
    user = scram_user(target, MECHANISM, SECRET)
    with sasl_peer(target) as peer:
        logged_in(peer, user)
        deleted_user(target, user)
        expect_served(peer)
        expect_equal(shake(peer, MECHANISM).error_code, 0, "SaslHandshake")
        answer = authenticate(peer, f"n,,n={user},r=again".encode())
        found = (answer.error_code, answer.error_message)
        expect_equal(
            found,
            (int(ErrorCode.SASL_AUTHENTICATION_FAILED), REAUTHENTICATION_FAILED),
            "SaslAuthenticate of the session",
        )
        expect_closed(peer, "it")


@REQUIREMENTS.that(
    4,
    "a SCRAM exchange uses the credential of its first message: if it is deleted before the "
    "proof, authentication still succeeds",
    source="ScramSaslServer",
    since="3.5",
)
def credential_deleted_within(target: Target) -> None:
    require_authorizer(target)
    user = scram_user(target, MECHANISM, SECRET)
    with sasl_peer(target) as fresh, sasl_peer(target) as again:
        logged_in(again, user)
        proofs = [(peer, *scram_proof(peer, MECHANISM, user, SECRET)) for peer in (fresh, again)]
        deleted_user(target, user)
        for peer, token, expected in proofs:
            answer = authenticate(peer, token)
            expect_equal(
                (answer.error_code, bytes(answer.auth_bytes)),
                (0, expected),
                "SaslAuthenticate with the proof",
            )
            expect_served(peer)


@REQUIREMENTS.that(
    5,
    "re-authentication as another user returns SASL_AUTHENTICATION_FAILED; with another "
    "mechanism the connection is closed",
    source="KIP-368; SaslServerAuthenticator.ReauthInfo",
    since="3.5",
)
def another_user(target: Target) -> None:
    require_authorizer(target)
    user, other = scram_user(target, MECHANISM, SECRET), scram_user(target, MECHANISM, SECRET)
    names = [each.replace("=2C", ",").replace("=3D", "=") for each in (user, other)]
    changed = (
        f"Cannot change principals during re-authentication from User.{names[0]}: User.{names[1]}"
    )
    with sasl_peer(target) as peer:
        logged_in(peer, user)
        answer, _ = exchange(peer, MECHANISM, other, SECRET)
        expect_equal(
            (answer.error_code, answer.error_message),
            (int(ErrorCode.SASL_AUTHENTICATION_FAILED), changed),
            "another user",
        )
        expect_closed(peer, "it")
    with sasl_peer(target) as peer:
        logged_in(peer, user)
        expect_equal(shake(peer, "PLAIN").error_code, 0, "SaslHandshake for PLAIN")
        peer.send(SaslAuthenticateRequest(auth_bytes=plain()), 2)
        expect_closed(peer, "a token of another mechanism")
