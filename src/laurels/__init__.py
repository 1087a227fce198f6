"""Laurels: exact, live leaderboards over a durable log of submissions."""

from laurels.batch import Batch
from laurels.config import Config
from laurels.errors import LaurelsError
from laurels.ids import new_submission_id
from laurels.model import Board, Condition, Dimension, GameDefinition, Window
from laurels.service import Laurels

__all__ = [
    "Batch",
    "Board",
    "Condition",
    "Config",
    "Dimension",
    "GameDefinition",
    "Laurels",
    "LaurelsError",
    "Window",
    "new_submission_id",
]
