"""Live topics: what boards and players look like, told to subscribers again whenever it changes. One process, no HTTP.

A hub looks rather than listens: at each tick, and only if something was applied since the last one, it compares what
each topic with subscribers shows now with what it published last, and publishes the difference as one message. So a
thousand submissions between two ticks are one message, and those who submit pay nothing for those who watch.

A message is encoded once and kept in the topic's ring; a subscriber holds no more than the seq of the last message that
it took. Who falls out of the ring, or resumes from too long ago, is given a snapshot that says so.
"""

from laurels.live.connections import Connection, Subscription
from laurels.live.hub import Hub
from laurels.live.topics import (
    ListChange,
    ListSnapshot,
    Message,
    PlayData,
    RankData,
    Topic,
    id_prefix,
)

__all__ = [
    "Connection",
    "Hub",
    "ListChange",
    "ListSnapshot",
    "Message",
    "PlayData",
    "RankData",
    "Subscription",
    "Topic",
    "id_prefix",
]
