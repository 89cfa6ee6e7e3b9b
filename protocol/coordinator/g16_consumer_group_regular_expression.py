"""ConsumerGroupRegularExpression (16): the topics that a regular expression of a consumer group's
member matched when it was last resolved.

The coordinator resolves it (4.0), from time to time and when the topics change.
Source: KIP-848; ConsumerGroupRegularExpressionKey.json, ConsumerGroupRegularExpressionValue.json.
"""

from protocol.schema import array, int64, message, string


@message(key=16, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey:
    """By group and expression."""

    group_id: str = string()
    regular_expression: str = string()


@message(key=16, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    """The topics, and the metadata version at which they were resolved."""

    topics: list[str] = array(string)
    version: int = int64()
    timestamp: int = int64()
