"""Keys of buckets: ints chosen so that Spark spreads the buckets evenly over its partitions.

Spark places a key by ``pmod(murmur3(key, 42), partitions)``. With keys 0, 1, 2 ... two buckets often share a
partition while another partition is empty. The key of bucket i is therefore the
smallest unused int that Spark places in partition i modulo the number of partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catalog.store.store import Store  # not at run time: it loads SQLAlchemy, which workers must not do

#: Name of the catalog's setting that describes the checkpoint. The first batch fixes the number of buckets.
CHECKPOINT_SETTING = "checkpoint"

_MASK = 0xFFFFFFFF
_SPARK_SEED = 42


def bucket_keys(buckets: int, partitions: int) -> tuple[int, ...]:
    """Return the key of each bucket; Spark places bucket i in partition i modulo ``partitions``.

    >>> sorted(spark_hash(key) % 2 for key in bucket_keys(2, 2))
    [0, 1]
    """
    keys: list[int] = []
    candidate = 0
    for bucket in range(buckets):
        while candidate in keys or spark_hash(candidate) % partitions != bucket % partitions:
            candidate += 1
        keys.append(candidate)
        candidate = 0
    return tuple(keys)


def stored_buckets(store: Store) -> int | None:
    """Return the number of buckets that the checkpoint has fixed, or None before the first start."""
    facts = store.settings.get(CHECKPOINT_SETTING)
    return int(str(facts["buckets"])) if isinstance(facts, dict) else None


def spark_hash(value: int) -> int:
    """Return Spark's ``hash(int)``: Murmur3 of 32 bits with seed 42 (``Murmur3_x86_32.hashInt``), signed."""
    k = value & _MASK
    k = k * 0xCC9E2D51 & _MASK
    k = (k << 15 | k >> 17) & _MASK
    k = k * 0x1B873593 & _MASK
    h = _SPARK_SEED ^ k
    h = (h << 13 | h >> 19) & _MASK
    h = (h * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h ^= h >> 16
    h = h * 0x85EBCA6B & _MASK
    h ^= h >> 13
    h = h * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h & 0x80000000 else h
