"""Requests by which brokers and controllers join the cluster and stay in it, and by which operators
remove them, describe the cluster, and change its feature levels.
"""

from typing import Protocol

from kraftsim.core.decision import Decision, Refusal
from kraftsim.metadata.deciding_controller import DecidingController, SessionController, decide
from kraftsim.metadata.describe_cluster import describe_cluster, refuse_endpoint
from kraftsim.metadata.events import BrokerRegistrationRefused
from kraftsim.metadata.rules_feature_updates import Results, update_features_steps
from kraftsim.metadata.rules_registrations import decide_register_controller
from kraftsim.raft.quorum_requests import QuorumMember
from kraftsim.server.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k57_update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from protocol.messages.k60_describe_cluster import (
    CONTROLLERS,
    NO_CONTROLLER,
    DescribeClusterBroker,
    DescribeClusterResponse,
)
from protocol.messages.k62_broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from protocol.messages.k63_broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from protocol.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from protocol.messages.k70_controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from protocol.messages.k94_unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)

# --------------------------------------------------------------------------------------------------
# Requests by which brokers join the cluster and stay in it, and by which an operator removes one
#
# A registration gives a broker its epoch, heartbeats keep its session and unfence it. Only the
# active controller decides, and answers when its records are committed.


def handle_broker_registration(controller: SessionController, call: Call) -> Answer | Deferred:
    """BrokerRegistration (62): a broker registers with the cluster and receives its broker epoch,
    once the registration is committed.

    The epoch is the offset of the record. A live broker with the same id (heartbeat within its
    session) keeps its registration.

    Refuse immediately, or answer when the registration is committed.

    Source: KIP-631, org.apache.kafka.controller.ClusterControlManager.registerBroker.
    """
    request = call.body
    assert isinstance(request, BrokerRegistrationRequest), "dispatch decodes by API key"
    writer = controller.metadata_writer
    decision = writer.state.decide_register(
        request, writer.next_offset, controller.now_ms(), call.api_version
    )
    if isinstance(decision, Refusal):
        controller.world.emit(
            BrokerRegistrationRefused(
                broker_id=request.broker_id, error_code=decision.error, reason=decision.why
            )
        )
        return BrokerRegistrationResponse(error_code=decision.error)
    return writer.commit(
        decision, lambda offsets: BrokerRegistrationResponse(broker_epoch=decision.result)
    )


def _refuse_broker_registration(call: Call, error: ErrorCode) -> Answer:
    return BrokerRegistrationResponse(error_code=error)


BROKER_REGISTRATION: Handler[SessionController] = Handler(
    key=ApiKey.BROKER_REGISTRATION,
    handle=handle_broker_registration,
    refuse=_refuse_broker_registration,
)


def handle_broker_heartbeat(controller: SessionController, call: Call) -> Answer | Deferred:
    """BrokerHeartbeat (63): a broker reports its liveness, its metadata offset and the state it
    wants; the response contains the state it is granted.

    Most heartbeats change nothing and write nothing; one that does is answered when the change is
    committed.

    Refuse immediately, or answer when the change of the heartbeat is committed.

    Source: KIP-631, org.apache.kafka.controller.BrokerHeartbeatManager.
    """
    request = call.body
    assert isinstance(request, BrokerHeartbeatRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.decide_heartbeat(
        request, controller.metadata_writer.next_offset, controller.now_ms()
    )
    if isinstance(decision, Refusal):
        return BrokerHeartbeatResponse(error_code=decision.error)
    reply = decision.result
    return controller.metadata_writer.commit(
        decision,
        lambda offsets: BrokerHeartbeatResponse(
            is_caught_up=reply.is_caught_up,
            is_fenced=reply.is_fenced,
            should_shut_down=reply.should_shut_down,
        ),
        is_atomic=False,
    )


def _refuse_broker_heartbeat(call: Call, error: ErrorCode) -> Answer:
    return BrokerHeartbeatResponse(error_code=error)


BROKER_HEARTBEAT: Handler[SessionController] = Handler(
    key=ApiKey.BROKER_HEARTBEAT, handle=handle_broker_heartbeat, refuse=_refuse_broker_heartbeat
)


def handle_unregister_broker(controller: DecidingController, call: Call) -> Answer | Deferred:
    """UnregisterBroker (64): removes a broker registration; answered once that is committed.

    Refuse immediately, without an error message (before 4.0), or answer when it is committed.

    Source: KIP-631, kafka.server.ControllerApis.
    """
    request = call.body
    assert isinstance(request, UnregisterBrokerRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.decide_unregister(request.broker_id)
    if isinstance(decision, Refusal):
        explains = controller.metadata_writer.state.node.explains_unregistration
        return UnregisterBrokerResponse(
            error_code=decision.error, error_message=decision.message if explains else ""
        )
    return controller.metadata_writer.commit(
        decision, lambda offsets: UnregisterBrokerResponse(), is_atomic=False
    )


def _refuse_unregister_broker(call: Call, error: ErrorCode) -> Answer:
    return UnregisterBrokerResponse(error_code=error)


UNREGISTER_BROKER: Handler[DecidingController] = Handler(
    key=ApiKey.UNREGISTER_BROKER, handle=handle_unregister_broker, refuse=_refuse_unregister_broker
)


# --------------------------------------------------------------------------------------------------
# Requests by which controllers register with the active controller, and by which an operator
# removes a registration


def handle_controller_registration(controller: DecidingController, call: Call) -> Answer | Deferred:
    """ControllerRegistration (70): a controller registers its endpoints and supported features;
    answered once that is committed.

    Refuse immediately, or answer when the registration is committed.

    Source: KIP-919, kafka.server.ControllerApis.handleControllerRegistration.
    """
    request = call.body
    assert isinstance(request, ControllerRegistrationRequest), "dispatch decodes by API key"
    decision = decide_register_controller(
        controller.metadata_writer.state.features.metadata_level, request
    )
    if isinstance(decision, Refusal):
        return ControllerRegistrationResponse(
            error_code=decision.error, error_message=decision.message
        )
    return controller.metadata_writer.commit(
        decision, lambda offsets: ControllerRegistrationResponse()
    )


def _refuse_controller_registration(call: Call, error: ErrorCode) -> Answer:
    return ControllerRegistrationResponse(error_code=error)


CONTROLLER_REGISTRATION: Handler[DecidingController] = Handler(
    key=ApiKey.CONTROLLER_REGISTRATION,
    handle=handle_controller_registration,
    refuse=_refuse_controller_registration,
)


def handle_unregister_controller(controller: DecidingController, call: Call) -> Answer | Deferred:
    """UnregisterController (94): removes the registration of a controller that is permanently gone;
    answered once that is committed.

    Refuse immediately, or answer when it is committed. A running controller registers again.

    Source: org.apache.kafka.controller.{QuorumController,
    ClusterControlManager}.unregisterController (4.4), kafka.server.ControllerApis.
    """
    request = call.body
    assert isinstance(request, UnregisterControllerRequest), "dispatch decodes by API key"
    decision = controller.metadata_writer.state.decide_unregister_controller(request.controller_id)
    if isinstance(decision, Refusal):
        return UnregisterControllerResponse(
            error_code=decision.error, error_message=decision.message
        )
    return controller.metadata_writer.commit(
        decision, lambda offsets: UnregisterControllerResponse()
    )


def _refuse_unregister_controller(call: Call, error: ErrorCode) -> Answer:
    return UnregisterControllerResponse(error_code=error)


UNREGISTER_CONTROLLER: Handler[DecidingController] = Handler(
    key=ApiKey.UNREGISTER_CONTROLLER,
    handle=handle_unregister_controller,
    refuse=_refuse_unregister_controller,
)


# --------------------------------------------------------------------------------------------------
# UpdateFeatures (57): changes finalized feature levels of the cluster; answered once they are
# committed
#
# Source: KIP-584, KIP-778, KIP-1022, org.apache.kafka.controller.QuorumController.updateFeatures.

ONE_RESULT_UNTIL = 1
"""The last version with a result per feature."""


def handle_update_features(controller: DecidingController, call: Call) -> Answer | Deferred:
    """Answer per feature; since 4.0 one result for all of them."""
    request = call.body
    assert isinstance(request, UpdateFeaturesRequest), "dispatch decodes by API key"

    def carry_out(decision: Decision[Results] | Refusal) -> Answer | Deferred:
        if isinstance(decision, Refusal):
            return UpdateFeaturesResponse(error_code=decision.error, error_message=decision.message)
        results = (
            []
            if call.api_version > ONE_RESULT_UNTIL
            else [_result(*result) for result in decision.result]
        )
        response = UpdateFeaturesResponse(results=results)
        if controller.metadata_writer.state.node.updates_features_atomically:
            response.error_message = None
            for result in results:
                result.error_message = (
                    ErrorCode.NONE.name
                )  # what 4.x returns on success in earlier versions
        return controller.metadata_writer.commit(decision, lambda offsets: response)

    return decide(
        controller,
        call,
        lambda: update_features_steps(
            controller.metadata_writer.state.feature_view(), request, call.api_version
        ),
        carry_out,
    )


def _result(feature: str, refusal: Refusal | None) -> UpdatableFeatureResult:
    if refusal is None:
        return UpdatableFeatureResult(feature=feature, error_message=None)
    return UpdatableFeatureResult(
        feature=feature, error_code=refusal.error, error_message=refusal.message
    )


def _refuse_update_features(call: Call, error: ErrorCode) -> Answer:
    return UpdateFeaturesResponse(
        error_code=error, error_message=None if error is ErrorCode.UNKNOWN_SERVER_ERROR else ""
    )


UPDATE_FEATURES: Handler[DecidingController] = Handler(
    key=ApiKey.UPDATE_FEATURES, handle=handle_update_features, refuse=_refuse_update_features
)


# --------------------------------------------------------------------------------------------------
# DescribeCluster (60) on a controller: the registered controllers, with their addresses on the
# listener of the request
#
# Every controller answers, from committed metadata. Source: KIP-919,
# kafka.server.ControllerApis.handleDescribeCluster.

TOO_OLD = "Direct-to-controller communication is not supported with the current MetadataVersion."


class DescribingController(DecidingController, QuorumMember, Protocol):
    """A controller that knows the leader of the quorum."""


def handle_describe_cluster(controller: DescribingController, call: Call) -> Answer | Deferred:
    """Answer once everything in the response is committed."""
    state = controller.metadata_writer.state
    if not state.features.metadata_level.has_controller_registrations:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=TOO_OLD
        )
    refused = refuse_endpoint(call, CONTROLLERS)
    if refused is not None:
        return refused
    leader_id = controller.raft.quorum.leader_id
    answer = describe_cluster(
        call,
        CONTROLLERS,
        cluster_id=controller.config.cluster_id,
        nodes=[
            DescribeClusterBroker(
                broker_id=registered.controller_id, host=end_point.host, port=end_point.port
            )
            for registered in sorted(
                state.registries.controllers.records(), key=lambda record: record.controller_id
            )
            for end_point in registered.end_points
            if end_point.name == call.listener
        ],
        controller_id=NO_CONTROLLER if leader_id is None else leader_id,
    )
    return (
        controller.metadata_writer.commit(Decision([], None), lambda offsets: answer)
        if controller.is_active
        else answer
    )


def _refuse_describe_cluster(call: Call, error: ErrorCode) -> Answer:
    return DescribeClusterResponse(error_code=error)


DESCRIBE_CLUSTER: Handler[DescribingController] = Handler(
    key=ApiKey.DESCRIBE_CLUSTER, handle=handle_describe_cluster, refuse=_refuse_describe_cluster
)


HANDLERS = (
    BROKER_REGISTRATION,
    BROKER_HEARTBEAT,
    UNREGISTER_BROKER,
    CONTROLLER_REGISTRATION,
    UNREGISTER_CONTROLLER,
    UPDATE_FEATURES,
    DESCRIBE_CLUSTER,
)
