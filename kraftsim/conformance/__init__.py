"""What a Kafka node must do, as sentences with checks that run against any address: Apache Kafka decides, kraftsim follows."""
