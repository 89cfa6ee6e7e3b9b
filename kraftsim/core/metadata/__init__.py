"""What the controllers agree on: brokers, topics, configurations, features; and the image that brokers keep of it.   Source: KIP-500, KIP-631."""
