"""The leaderboard: results of many people and machines as a site of static files.

A board is one question: one dataset, one threat, one convention. Results that were asked otherwise
stand on a board of their own.
"""

from stockpot.board.site import leaderboard

__all__ = ["leaderboard"]
