"""`laurels boards`."""

import click

from laurels.cli.session import Session, instance_title, with_session


@click.command()
@click.argument("board", required=False)
@with_session
def boards(session: Session, board: str | None) -> None:
    """List the boards of a game, or the instances of one BOARD with their entries."""
    with session.laurels(read_only=True) as laurels:
        game = session.game(laurels)
        if board is None:
            infos = game.boards()
            if session.json:
                session.show_json(infos)
                return
            rows = [
                [
                    info.name,
                    info.definition.policy,
                    ", ".join(info.definition.order),
                    ", ".join(info.definition.partition) or None,
                    info.definition.window and (info.definition.window.every or "season"),
                    "yes" if info.ready else f"{info.progress:.0%}",
                ]
                for info in infos
            ]
            session.show_table(["board", "policy", "order", "partition", "window", "ready"], rows, f"game {game.name}")
            return
        instances = game.instances(board)
        if session.json:
            session.show_json(instances)
            return
        session.show_table(["instance", ">entries"], [[instance_title(i.instance), i.entries] for i in instances])
