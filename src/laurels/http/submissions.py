"""Submitting plays, and looking them up."""

from typing import Any

from laurels.batch import checked_batch
from laurels.errors import Conflict, InvalidInput, LimitExceeded
from laurels.http.request import Request
from laurels.http.routing import Route
from laurels.http.wire import BATCH_ROWS_MAX, Accepted, BatchQuery, NewSubmission, NewSubmissions
from laurels.model import Answer, Submission

BATCH_BYTES_MAX = 8 << 20


async def submit(request: Request, new: NewSubmission) -> Answer:
    """Submit one play: durable, and counted on every board that it feeds, when this answers."""
    game = request.game
    submission_id = new.submission_id
    key = request.headers.get(b"idempotency-key")
    if key is not None:
        given = key.decode("latin-1").strip('"')
        if submission_id is not None and submission_id != given:
            raise InvalidInput("submission_id", submission_id, "differs from the Idempotency-Key header")
        submission_id = given
    batch = checked_batch(
        game.definition,
        game.limits,
        player_ids=[new.player_id],
        scores=[new.score],
        submission_ids=[submission_id],
        played_at=[new.played_at],
        dimensions={name: [value] for name, value in new.dimensions.items()} if new.dimensions else None,
        metrics={name: [value] for name, value in new.metrics.items()} if new.metrics else None,
    )
    principal = request.principal
    if principal.kind == "player":
        game.check_player_may_submit(batch, principal.player_id or "")
    answer: Answer = (await game.submit_batch(batch))[0]
    if principal.kind == "player" and answer.player_id != principal.player_id:
        raise Conflict("the submission_id is in use")
    return answer


async def submit_batch(request: Request, query: BatchQuery, new: NewSubmissions) -> Accepted:
    """Submit plays as columns: all are accepted in one commit, or none."""
    if len(new.player_ids) > BATCH_ROWS_MAX:
        raise LimitExceeded("player_ids", len(new.player_ids), f"a batch has at most {BATCH_ROWS_MAX} rows")
    answers = await request.game.submit_many(
        new.player_ids,
        new.scores,
        submission_ids=new.submission_ids,
        played_at=new.played_at,
        dimensions=new.dimensions or None,
        metrics=new.metrics or None,
    )
    told = list(answers) if query.answers else None
    return Accepted(accepted=len(answers), submission_ids=answers.submission_ids, answers=told)


async def submission(request: Request) -> Submission:
    """A submission by its id."""
    found: Submission = await request.game.submission(request.names[1])
    return found


PLAY: dict[str, Any] = {
    "player_id": "ada",
    "score": 4200,
    "submission_id": "01935f2e-7a00-7000-8000-000000000001",
    "dimensions": {"track_id": "dani-california"},
    "metrics": {"stars": 5},
}

ROUTES = [
    Route(
        method="POST",
        path="/v1/games/{game}/submissions",
        handler=submit,
        summary="Submit one play",
        tag="submissions",
        role="server",
        players=True,
        body=NewSubmission,
        answer=Answer,
        status=201,
        example={"body": PLAY},
    ),
    Route(
        method="POST",
        path="/v1/games/{game}/submissions/batch",
        handler=submit_batch,
        summary="Submit many plays as columns",
        tag="submissions",
        role="server",
        query=BatchQuery,
        body=NewSubmissions,
        body_bytes_max=BATCH_BYTES_MAX,
        answer=Accepted,
        status=201,
        example={
            "body": {
                "player_ids": ["bob", "cyd"],
                "scores": [3100, 5200],
                "submission_ids": [
                    "01935f2e-7a00-7000-8000-000000000002",
                    "01935f2e-7a00-7000-8000-000000000003",
                ],
                "dimensions": {"track_id": "dani-california"},
            }
        },
    ),
    Route(
        method="GET",
        path="/v1/games/{game}/submissions/{submission_id}",
        handler=submission,
        summary="Get a submission",
        tag="submissions",
        role="server",
        answer=Submission,
        example={"names": {"submission_id": PLAY["submission_id"]}},
    ),
]
