"""CreateTopics: handed on to the controller, whose answer goes back to the client as it came.

Source: KIP-590, kafka.server.KafkaApis.forwardToControllerOrFail.
"""

from kraftsim.node.broker.broker import Broker
from kraftsim.node.call import Answer, Call, Deferred, Handler
from protocol.api_keys import ApiKey
from protocol.errors import ErrorCode
from protocol.messages.k19_create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse


def handle(broker: Broker, call: Call) -> Deferred:
    """Answer what the controller answers; REQUEST_TIMED_OUT for every topic if there is none."""
    later = Deferred()
    broker.forwarding.forward(call, later, refuse)
    return later


def refuse(call: Call, error: ErrorCode) -> Answer:
    """Build the answer in which every topic has the same error."""
    request = call.body
    assert isinstance(request, CreateTopicsRequest), "dispatch decodes by API key"
    return CreateTopicsResponse(topics=[CreatableTopicResult(name=topic.name, error_code=error) for topic in request.topics])


HANDLER = Handler(key=ApiKey.CREATE_TOPICS, handle=handle, refuse=refuse)
