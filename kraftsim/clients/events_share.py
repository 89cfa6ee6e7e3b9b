"""What share consumers acquire and acknowledge, from their own view.

Ranges of offsets are inclusive. An acknowledgement is a number: 0 gap, 1 accept, 2 release,
3 reject, 4 renew.
Source: KIP-932, KIP-1222.
"""

from kraftsim.events.event import Event


class ShareFetchSent(Event):
    """A share consumer asks a leader for records; `request` counts the requests of a member."""

    client_id: str
    group_id: str
    member_id: str
    leader_id: int
    request: int


class ShareRecordsReceived(Event):
    """A share consumer received records, for which it is responsible until their lock expires.

    `request` is that of ShareFetchSent: the leader acquired them for it somewhere between.
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
    request: int
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
    """The leader's response to acknowledgements of records with this delivery count; without
    `is_answered` there was none.
    """

    client_id: str
    group_id: str
    member_id: str
    topic: str
    partition: int
    leader_id: int
    first_offset: int
    last_offset: int
    acknowledgement: int
    delivery_count: int
    is_answered: bool
    error_code: int
