"""XXH3: the 64-bit hash of bytes that Apache Kafka stores for the topics of a group.

Only the variant with the default secret and seed 0 is here. Source: the specification of xxHash
(XXH3_64bits); com.dynatrace.hash4j.hashing.Hashing.xxh3_64 gives the same numbers.
"""

from struct import unpack_from
from typing import Final

MASK: Final = (1 << 64) - 1
PRIMES_32: Final = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
PRIMES_64: Final = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
FIRST_SUMS: Final = (PRIMES_32[2], *PRIMES_64[:4], PRIMES_32[1], PRIMES_64[4], PRIMES_32[0])
AVALANCHE: Final = 0x165667919E3779F9
SHORT_MIX: Final = 0x9FB21C651E98DF25
SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
STRIPE: Final = 64
LANES: Final = 8
STRIPES_PER_BLOCK: Final = 16
KEYS: Final = [unpack_from("<8Q", SECRET, 8 * stripe) for stripe in range(STRIPES_PER_BLOCK)]
SCRAMBLING_KEYS: Final = unpack_from("<8Q", SECRET, 128)
LAST_STRIPE_KEYS: Final = unpack_from("<8Q", SECRET, 121)
MERGING_KEYS: Final = unpack_from("<8Q", SECRET, 11)


def xxh3_64(data: bytes) -> int:
    """Return the unsigned 64-bit XXH3 hash of `data`, in time linear in its length."""
    length = len(data)
    if length <= 16:
        return _of_up_to_16(data, length)
    if length > 240:
        return _of_many(data, length)
    hashed = length * PRIMES_64[0]
    if length <= 128:
        for index in range((length + 31) // 32):
            hashed += _mixed(data, 16 * index, 32 * index)
            hashed += _mixed(data, length - 16 * (index + 1), 32 * index + 16)
        return _avalanche(hashed & MASK)
    for index in range(8):
        hashed += _mixed(data, 16 * index, 16 * index)
    hashed = _avalanche(hashed & MASK)
    for index in range(8, length // 16):
        hashed += _mixed(data, 16 * index, 16 * (index - 8) + 3)
    return _avalanche(hashed + _mixed(data, length - 16, 119) & MASK)


def _of_up_to_16(data: bytes, length: int) -> int:
    if length > 8:
        low, high = _word(data, 0, 8), _word(data, length - 8, 8)
        low ^= _word(SECRET, 24, 8) ^ _word(SECRET, 32, 8)
        high ^= _word(SECRET, 40, 8) ^ _word(SECRET, 48, 8)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(length + swapped + high + _folded(low, high) & MASK)
    if length > 3:
        mixed = _word(data, 0, 4) << 32 | _word(data, length - 4, 4)
        mixed ^= _word(SECRET, 8, 8) ^ _word(SECRET, 16, 8)
        mixed ^= _rotated(mixed, 49) ^ _rotated(mixed, 24)
        mixed = mixed * SHORT_MIX & MASK
        mixed ^= (mixed >> 35) + length
        mixed = mixed * SHORT_MIX & MASK
        return mixed ^ mixed >> 28
    if length:
        mixed = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        mixed ^= _word(SECRET, 0, 4) ^ _word(SECRET, 4, 4)
    else:
        mixed = _word(SECRET, 56, 8) ^ _word(SECRET, 64, 8)
    mixed = (mixed ^ mixed >> 33) * PRIMES_64[1] & MASK
    mixed = (mixed ^ mixed >> 29) * PRIMES_64[2] & MASK
    return mixed ^ mixed >> 32


def _of_many(data: bytes, length: int) -> int:
    """Eight sums over stripes of 64 bytes; the sums are scrambled after each block of 16 stripes.

    The last stripe overlaps the one before it.
    """
    sums = list(FIRST_SUMS)
    for index in range((length - 1) // STRIPE):
        place = index % STRIPES_PER_BLOCK
        _accumulate(sums, unpack_from("<8Q", data, STRIPE * index), KEYS[place])
        if place == STRIPES_PER_BLOCK - 1:
            for lane, key in enumerate(SCRAMBLING_KEYS):
                scrambled = sums[lane] & MASK
                sums[lane] = (scrambled ^ scrambled >> 47 ^ key) * PRIMES_32[0] & MASK
    _accumulate(sums, unpack_from("<8Q", data, length - STRIPE), LAST_STRIPE_KEYS)
    hashed = length * PRIMES_64[0]
    for lane in range(0, LANES, 2):
        hashed += _folded(
            sums[lane] & MASK ^ MERGING_KEYS[lane], sums[lane + 1] & MASK ^ MERGING_KEYS[lane + 1]
        )
    return _avalanche(hashed & MASK)


def _accumulate(sums: list[int], stripe: tuple[int, ...], keys: tuple[int, ...]) -> None:
    """Add a stripe; the sums exceed 64 bits, as only their remainders count."""
    for lane, value in enumerate(stripe):
        keyed = value ^ keys[lane]
        sums[lane ^ 1] += value
        sums[lane] += (keyed & 0xFFFFFFFF) * (keyed >> 32)


def _mixed(data: bytes, start: int, key_start: int) -> int:
    low, high = unpack_from("<2Q", data, start)
    low_key, high_key = unpack_from("<2Q", SECRET, key_start)
    return _folded(low ^ low_key, high ^ high_key)


def _word(data: bytes, start: int, size: int) -> int:
    return int.from_bytes(data[start : start + size], "little")


def _folded(first: int, second: int) -> int:
    product = first * second
    return product & MASK ^ product >> 64


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & MASK


def _avalanche(mixed: int) -> int:
    mixed = (mixed ^ mixed >> 37) * AVALANCHE & MASK
    return mixed ^ mixed >> 32
