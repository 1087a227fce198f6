"""YARG, a rhythm game, as a game of Laurels: the names of its numbers, and its boards.

The boards are those of its players: best scores and best percentages of a song, kept apart; the list of one exact set
of modifiers; and the community's, with any modifiers that make a song as hard or harder.
"""

from typing import Final

from laurels.model import Board, Condition, Dimension, GameDefinition

INSTRUMENTS: Final = {
    0: "five_fret_guitar",
    1: "five_fret_bass",
    2: "five_fret_rhythm",
    3: "five_fret_coop_guitar",
    4: "keys",
    10: "six_fret_guitar",
    11: "six_fret_bass",
    12: "six_fret_rhythm",
    13: "six_fret_coop_guitar",
    20: "four_lane_drums",
    21: "pro_drums",
    22: "five_lane_drums",
    23: "elite_drums",
    30: "pro_guitar_17_fret",
    31: "pro_guitar_22_fret",
    32: "pro_bass_17_fret",
    33: "pro_bass_22_fret",
    34: "pro_keys",
    40: "vocals",
    41: "harmony",
}
DIFFICULTIES: Final = {0: "beginner", 1: "easy", 2: "medium", 3: "hard", 4: "expert", 5: "expert_plus"}
ENGINES: Final = {  # a built-in preset's id is the MD5 of its name
    "d620197a-5611-c0ab-5a60-135aefe8bc67": "default",
    "32d5d528-be26-a88a-da42-d9cbdd312e62": "casual",
    "b5da5ebe-e49d-30ea-5313-74e506b03822": "precision",
    "13c5234a-eba4-ea6d-0a64-ada2a4d9b22d": "solo_taps",
}
NO_ENGINE: Final = "00000000-0000-0000-0000-000000000000"  # never chosen
MODIFIERS: Final = (  # by bit
    "all_strums",
    "all_hopos",
    "all_taps",
    "hopos_to_taps",
    "taps_to_hopos",
    "note_shuffle",
    "no_kicks",
    "unpitched_only",
    "no_dynamics",
    "no_vocal_percussion",
    "range_compress",
    "opens_to_greens",
)
# Those that make a song as hard or harder.
FAIR_MODIFIERS: Final = [
    "all_strums",
    "taps_to_hopos",
    "note_shuffle",
    "no_dynamics",
    "no_vocal_percussion",
    "range_compress",
]

SONG: Final = ("track_id", "instrument", "difficulty")
FULL_SPEED: Final = Condition(ge=100)
GAME: Final = GameDefinition(
    title="YARG",
    dimensions={"modifiers": Dimension(type="set", none=("none", "no-modifiers"))},
    boards={
        "song": Board(
            title="Best scores of a song",
            where={"speed": FULL_SPEED},
            partition=SONG,
            order=("score desc", "speed desc", "played_at asc"),
            scale={"speed": 2},
        ),
        "song_percent": Board(
            title="Best percentages of a song",
            where={"speed": FULL_SPEED},
            partition=SONG,
            order=("percent desc", "score desc", "played_at asc"),
            scale={"percent": 4},
        ),
        "song_exact": Board(
            title="Best scores of a song with exactly these modifiers",
            partition=(*SONG, "modifiers"),
            order=("score desc", "player_id asc"),
        ),
        "community": Board(
            title="Best scores of a song and engine, with fair modifiers",
            where={
                "engine": Condition(in_=["default", "casual", "precision"]),
                "modifiers": Condition(subset_of=FAIR_MODIFIERS),
                "speed": FULL_SPEED,
            },
            partition=(*SONG, "engine"),
            order=("score desc", "speed desc", "accepted_at asc"),
            scale={"speed": 2},
        ),
    },
)
