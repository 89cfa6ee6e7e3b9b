"""A broker configured to keep only the latest batch of each producer.   Source: KIP-758."""

import pytest

from kraftsim.server.config_keys import ConfigError
from protocol.errors import ErrorCode
from tests.node.brokers import Client, batch, broker_config, running_cluster
from tools.claims.recording import Figures


def test_producer_state_variant_is_chosen_per_node(figures: Figures) -> None:
    """An old batch is DUPLICATE_SEQUENCE_NUMBER without an offset, and nothing is written; the
    latest one has its offset.
    """
    expected = {
        "latest-batch": {11: (0, 11), 6: (46, -1), 1: (46, -1)},
        "latest-batch-46": {11: (46, 11), 6: (46, -1), 1: (46, -1)},
        "five-batches": {11: (0, 11), 7: (0, 7), 6: (45, -1), 1: (45, -1)},
    }
    for kind, answers in expected.items():
        with running_cluster(
            kraftsim_producer_state=kind, max_in_flight_sequence_number_per_connection="11"
        ) as cluster:

            async def work(client: Client, answers: dict[int, tuple[int, int]] = answers) -> None:
                await client.create_topic("t")
                for number in range(12):
                    assert (
                        await client.produce(
                            batch(1, producer_id=7, producer_epoch=0, base_sequence=number)
                        )
                    ).error_code == 0
                for number, (error, offset) in answers.items():
                    answer = await client.produce(
                        batch(1, producer_id=7, producer_epoch=0, base_sequence=number)
                    )
                    assert (answer.error_code, answer.base_offset) == (error, offset), number
                too_old = await client.produce(
                    batch(1, producer_id=7, producer_epoch=0, base_sequence=0)
                )
                assert too_old.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
                assert (await client.fetch(0)).high_watermark == 12

            cluster.run(work)
    figures(
        **{
            f"{kind}_{11 - number}_behind": list(each)
            for kind, answers in expected.items()
            for number, each in answers.items()
        },
    )


@pytest.mark.parametrize(
    "wrong",
    [
        {"kraftsim_producer_state": "six-batches"},
        {"max_in_flight_sequence_number_per_connection": "0"},
        {"max_in_flight_sequence_number_per_connection": str(2**30 + 1)},
    ],
)
def test_invalid_settings_are_rejected(wrong: dict[str, str], figures: Figures) -> None:
    """The range is from 1 to 2^30."""
    with pytest.raises(ConfigError):
        broker_config(1, "host", **wrong)
    accepted = [
        str(2**exponent)
        for exponent in range(32)
        if is_accepted(max_in_flight_sequence_number_per_connection=str(2**exponent))
    ]
    default = broker_config(1, "host").max_in_flight_sequence_number_per_connection
    figures(least=int(accepted[0]), greatest=int(accepted[-1]), default_window=default)


def is_accepted(**settings: str) -> bool:
    """Whether a broker starts with these."""
    try:
        broker_config(1, "host", **settings)
    except ConfigError:
        return False
    return True
