"""What Kafka's wire types can hold at most, for all who read and write them.

Source: org.apache.kafka.common.protocol.types.Type; org.apache.kafka.message.MessageDataGenerator (strings).
"""

LAST_INT32 = 0x7FFFFFFF
LAST_UINT32 = 0xFFFFFFFF
STRING_SIZE_MAX = 0x7FFF
"""Kafka refuses longer strings on both sides, compact ones too."""
