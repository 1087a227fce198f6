"""All routes, by noun."""

from laurels.http import boards, entries, games, health, keys, live, players, submissions

ROUTES = [
    *games.ROUTES,
    *boards.ROUTES,
    *submissions.ROUTES,
    *entries.ROUTES,
    *players.ROUTES,
    *keys.ROUTES,
    *live.ROUTES,
    *health.ROUTES,
]
