"""Limits of Kafka's wire types, for readers and writers.

Source: org.apache.kafka.common.protocol.codec.types.Type;
org.apache.kafka.message.MessageDataGenerator (strings).
"""

LAST_INT32 = 0x7FFFFFFF
LAST_UINT32 = 0xFFFFFFFF
STRING_SIZE_MAX = 0x7FFF
"""Kafka rejects longer strings on both sides, compact ones, too."""
