"""Submission ids for clients."""

import os
import time
import uuid


def new_submission_id() -> str:
    """A UUIDv7: random, and in time order, which keeps looking for repeats cheap however many there are."""
    milliseconds = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = milliseconds << 80 | random
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=value))
