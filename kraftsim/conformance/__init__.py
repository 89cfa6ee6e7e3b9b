"""What a Kafka node must do, as sentences with checks that run against any address: Apache Kafka decides, kraftsim follows.

python -m kraftsim.conformance 127.0.0.1:9092
"""
