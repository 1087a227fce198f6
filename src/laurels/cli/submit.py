"""`laurels submit`."""

import click

from laurels.cli.session import Session, dimensions, instance_title, instant, number, split_pairs, with_session


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("player")
@click.argument("score")
@click.option("-d", "--dimension", multiple=True, metavar="NAME=VALUE", help="Repeat for each.")
@click.option("-m", "--metric", multiple=True, metavar="NAME=NUMBER", help="Repeat for each.")
@click.option("--id", "submission_id", help="Your own id: a repeat with it counts once.")
@click.option("--played-at", metavar="TIME", help="ISO 8601 time of the client's clock.")
@with_session
def submit(
    session: Session,
    player: str,
    score: str,
    dimension: tuple[str, ...],
    metric: tuple[str, ...],
    submission_id: str | None,
    played_at: str | None,
) -> None:
    """Submit a SCORE of a PLAYER. Durable when it returns; prints what changed on which board."""
    with session.laurels() as laurels:
        game = session.game(laurels)
        answer = game.submit(
            player,
            number(score, "score"),
            dimensions=dimensions(game, dimension, "--dimension"),
            metrics={name: number(text, name) for name, text in split_pairs(metric, "--metric").items()},
            submission_id=submission_id,
            played_at=None if played_at is None else instant(played_at, "--played-at"),
        )
    if session.json:
        session.show_json(answer)
        return
    rows = [
        [
            instance_title(change.instance),
            change.counted,
            change.old_score,
            change.new_score,
            change.old_rank,
            change.new_rank,
            change.total,
        ]
        for change in answer.changes
    ]
    columns = ["board", "counted", ">old score", ">new score", ">old rank", ">new rank", ">of"]
    session.show_table(columns, rows, f"submission {answer.submission_id}")
