"""CreatePartitions (37): topics get wider, each by itself, in one batch of the metadata log; answered when that is committed.

Source: KIP-195, kafka.server.ControllerApis.createPartitions, ReplicationControlManager.createPartitions.
"""

from typing import TYPE_CHECKING

from kraftsim.core.decision import Refusal
from kraftsim.core.metadata.create_partitions import WidenedTopic
from kraftsim.node.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsResponse, CreatePartitionsTopicResult

if TYPE_CHECKING:
    from kraftsim.node.controller.controller import Controller


def handle(controller: "Controller", call: Call) -> Answer | Deferred:
    """Answer per topic; what can be made is committed first."""
    request = call.body
    assert isinstance(request, CreatePartitionsRequest), "dispatch decodes by API key"
    if request.timeout_ms <= 0:
        return _refuse(call, ErrorCode.REQUEST_TIMED_OUT)
    decision = controller.ledger.state.replication.decide_create_partitions(request, controller.world.random("topics"))
    return controller.ledger.commit(decision, lambda offsets: CreatePartitionsResponse(results=[_result(result) for result in decision.result]))


def _result(result: WidenedTopic) -> CreatePartitionsTopicResult:
    refusal = Refusal(ErrorCode.NONE) if result.refusal is None else result.refusal
    return CreatePartitionsTopicResult(name=result.name, error_code=refusal.error, error_message=refusal.message)


def _refuse(call: Call, error: ErrorCode) -> Answer:
    assert isinstance(call.body, CreatePartitionsRequest), "dispatch decodes by API key"
    return CreatePartitionsResponse(results=[CreatePartitionsTopicResult(name=topic.name, error_code=error) for topic in call.body.topics])


HANDLER: "Handler[Controller]" = Handler(key=ApiKey.CREATE_PARTITIONS, handle=handle, refuse=_refuse)
