"""What share consumers acquire and acknowledge, from their own view.

Ranges of offsets are inclusive. An acknowledgement is a number: 0 gap, 1 accept, 2 release,
3 reject, 4 renew.
Source: KIP-932, KIP-1222.
"""

from kraftsim.events.event import Event


class ShareRecordsReceived(Event):
    """A share consumer received records, for which it is responsible until their lock expires.

    `waited_ms` is the time since it sent the request: the leader acquired them somewhere between.
    """

    client_id: str
    group_id: str
    member_id: str
    topic: str
    partition: int
    leader_id: int
    first_offset: int
    last_offset: int
    delivery_count: int
    waited_ms: int
    lock_ms: int


class ShareAcknowledgementSent(Event):
    """A share consumer sends acknowledgements: it may not hold the records any longer."""

    client_id: str
    group_id: str
    member_id: str
    topic: str
    partition: int
    leader_id: int
    first_offset: int
    last_offset: int
    acknowledgement: int


class ShareAcknowledgementAnswered(Event):
    """The leader's response to acknowledgements; without `is_answered` there was none."""

    client_id: str
    group_id: str
    member_id: str
    topic: str
    partition: int
    leader_id: int
    first_offset: int
    last_offset: int
    acknowledgement: int
    is_answered: bool
    error_code: int
