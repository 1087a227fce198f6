"""`laurels demo`: the main job on a made-up score file, and the thousand scores of a single game."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from laurels.cli.serve import server_module
from laurels.cli.session import Session
from laurels.config import Config, ServerSettings
from laurels.importers import yarg, yarg_game
from laurels.importers.report import ImportReport
from laurels.importers.yarg_demo import build_scores_db
from laurels.model import Board, Bucket, Entry, GameDefinition, Standing
from laurels.service import Laurels as AsyncLaurels
from laurels.sync import BoardInstance, Game, Laurels

SCORES = 1_000
PAGE = 100
COUNTRIES = ("BR", "DE", "FI", "FR", "JP", "KR", "MX", "NG", "PL", "US")
LEADERBOARD = GameDefinition(title="Game leaderboard", boards={"scores": Board()})
BAR_WIDTH = 40
KEY_NAME = "demo"


@click.command()
@click.option("--once", is_flag=True, help="End after the report instead of serving.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), default="laurels-demo", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print the summary as one JSON object on the last line.")
@click.option("--songs", default=300, show_default=True)
@click.option("--players", default=3_000, show_default=True)
@click.option("--plays", default=60_000, show_default=True)
@click.option("--port", type=click.IntRange(1, 65_535), help="[default: 8080, or a free one]")
def demo(once: bool, directory: Path, as_json: bool, songs: int, players: int, plays: int, port: int | None) -> None:
    """A score file in, exact leaderboards out.

    Makes a scores.db as the rhythm game YARG writes it, imports it, and shows a song's top 10, a player's rank, their
    neighbours and the spread of scores; then pages through a thousand scores of one game. It is the same each time.
    Then it serves all that over HTTP, on this machine only, until you press Ctrl-C.
    """
    start = time.perf_counter()
    directory.mkdir(parents=True, exist_ok=True)
    store = f"sqlite:///{directory / 'laurels.db'}"
    session = Session(store, None, "yarg", as_json)
    source = directory / "yarg" / "scores.db"
    if not source.exists():
        click.echo(f"making {source}: {songs:,} songs, {players:,} players, {plays:,} scores")
        build_scores_db(source.parent, songs=songs, players=players, plays=plays)
    config = Config(games={"yarg": yarg_game.GAME, "game-leaderboard": LEADERBOARD})
    with Laurels.open(store, config=config) as laurels:
        game = laurels.game("yarg")
        before = time.perf_counter()
        with session.progress("importing") as progress:
            report = game.run(lambda inner: yarg.import_scores(inner, source, zone="UTC", progress=progress))
        import_s = time.perf_counter() - before
        shown = _show_song(session, game)
        paged = _page_through(session, laurels.game("game-leaderboard"))
        summary = {
            **_summary(game, report),
            **shown,
            **paged,
            "import_seconds": round(import_s, 2),
            "seconds": round(time.perf_counter() - start, 2),
            "store": store,
        }
    _show_summary(session, report, summary)
    if as_json:
        session.show_json(summary)
    elif not once:
        _show_next(store, shown)
        _serve(store, config, port, shown)


def _show_song(session: Session, game: Game) -> dict[str, Any]:
    """The song that most players played: top, one player, neighbours, spread."""
    busiest = max(game.instances("song"), key=lambda info: info.entries)
    partition: dict[str, Any] = dict(busiest.instance.partition)
    board = game.board("song", **partition)
    track = game.descriptions("track_id", [str(busiest.instance.partition["track_id"])])
    known = next(iter(track.values()), {})
    part = f"{busiest.instance.partition['instrument']}, {busiest.instance.partition['difficulty']}"
    title = f"{known.get('title', 'a song')} by {known.get('artist', 'somebody')} ({part}): {busiest.entries:,} players"
    top = board.top(10)
    click.echo()
    _show_entries(session, top, f"Top 10 of {title}")
    middle = board.page(1, offset=busiest.entries // 2).items[0].player_id
    standing = board.entry(middle)
    click.echo(f"\n{_rank_line(standing)}")
    around = board.around(middle, 5)
    _show_entries(session, around, "Their neighbours", marked=middle)
    click.echo("\nSpread of scores")
    _show_histogram(board)
    return {
        "song": known.get("title"),
        "partition": dict(busiest.instance.partition),
        "song_players": busiest.entries,
        "top": [{"rank": e.rank, "player_id": e.player_id, "name": e.name, "score": e.score} for e in top],
        "player": {"player_id": middle, "rank": standing.entry.rank, "of": standing.total},
        "around": [{"rank": e.rank, "player_id": e.player_id, "score": e.score} for e in around],
    }


def _show_entries(session: Session, entries: list[Entry], title: str, marked: str | None = None) -> None:
    Session(session.store, None, None, json=False).show_entries(entries, title, marked)


def _rank_line(standing: Standing) -> str:
    entry = standing.entry
    return (
        f"{entry.name or entry.player_id} is number {entry.rank:,} of {standing.total:,}"
        f" with {entry.score:,}; {standing.percentile:.1f} % of the players stand at that rank or below"
    )


def _show_histogram(board: BoardInstance) -> None:
    buckets: list[Bucket] = board.histogram(12)
    most = max((bucket.count for bucket in buckets), default=1)
    for bucket in buckets:
        bar = "█" * round(BAR_WIDTH * bucket.count / most) or ("▏" if bucket.count else "")
        click.echo(f"{bucket.low:>12,} to {bucket.high:>12,}  {bar} {bucket.count:,}")


def _page_through(session: Session, game: Game) -> dict[str, Any]:
    """A thousand padded scores, each of which follows from its number, read page by page with cursors."""
    numbers = range(1, SCORES + 1)
    game.submit_many(
        [f"player-{n:04}" for n in numbers],
        [n * 7_919 % 10_007 * 10 for n in numbers],
        submission_ids=[f"padded-{n:04}" for n in numbers],
        dimensions={"country": [COUNTRIES[n % len(COUNTRIES)] for n in numbers]},
        metrics={"level": [1 + n % 50 for n in numbers]},
    )
    game.describe("player_id", {f"player-{n:04}": {"name": f"Player {n}"} for n in numbers})
    board = game.board("scores")
    page = board.page(PAGE)
    first, pages, entries = page.items[0], 1, list(page.items)
    while page.next:
        page = board.page(PAGE, page.next)
        pages += 1
        entries += page.items
    assert [entry.position for entry in entries] == list(range(1, SCORES + 1))
    last = entries[-1]
    click.echo(
        f"\nA game of {SCORES:,} scores, paged with cursors: {pages} pages of {PAGE}, from {first.name} with"
        f" {first.score:,} (number {first.rank}) to {last.name} with {last.score:,} (number {last.rank:,})"
    )
    return {"paged_scores": len(entries), "pages": pages}


def _summary(game: Game, report: ImportReport) -> dict[str, Any]:
    instances = {info.name: len(game.instances(info.name)) for info in game.boards()}
    return {
        "rows": report.rows,
        "submitted": report.submitted,
        "repeated": report.repeated,
        "left_out": report.left_out,
        "skipped": len(report.skipped),
        "board_instances": instances,
    }


def _show_summary(session: Session, report: ImportReport, summary: dict[str, Any]) -> None:
    rows: list[list[Any]] = [
        ["rows in the score file", report.rows],
        ["submissions accepted now", report.submitted],
        ["known already, nothing changed", report.repeated],
        *([f"left out: {reason}", count] for reason, count in report.left_out.items()),
        *([f"lists of board {name}", count] for name, count in summary["board_instances"].items()),
        ["seconds to import", f"{summary['import_seconds']:.1f}"],
        ["seconds in all", f"{summary['seconds']:.1f}"],
    ]
    click.echo()
    session.show_table(["What happened", ">"], rows)
    for note in report.notes:
        click.echo(f"note: {note}")


def _serve(store: str, config: Config, port: int | None, shown: dict[str, Any]) -> None:
    server = server_module()
    server.log_to_stderr("warning", as_json=False)
    settings = ServerSettings(port=port or server.free_port(ServerSettings().port))

    async def ready(laurels: AsyncLaurels, address: str) -> None:
        made = [key.key_id for key in laurels.keys() if key.role == "operator" and key.name == KEY_NAME]
        _, text = await (laurels.rotate_key(made[0]) if made else laurels.create_key("operator", name=KEY_NAME))
        query = "&".join(f"where.{name}={quote(_text(value))}" for name, value in shown["partition"].items())
        curl = f'  curl -H "Authorization: Bearer $LAURELS_KEY" \'{address}/v1/games'
        click.echo(
            f"\nServing on {address} until you press Ctrl-C. Its API to read: {address}/docs\n"
            f"A key for everything, good until the next demo:\n"
            f"  export LAURELS_KEY={text}\n"
            f"{curl}/game-leaderboard/boards/scores/top'\n"
            f"{curl}/yarg/boards/song/top?{query}'"
        )

    server.run(store, msgspec.structs.replace(config, server=settings), ready=ready)


def _text(value: Any) -> str:
    return ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)


def _show_next(store: str, shown: dict[str, Any]) -> None:
    where = " ".join(f"-w {name}={value}" for name, value in shown["partition"].items())
    player = shown["player"]["player_id"]
    click.echo(
        "\nTry next:\n"
        f"  export LAURELS_STORE={store} LAURELS_GAME=yarg\n"
        f"  laurels boards\n"
        f"  laurels top song {where}\n"
        f"  laurels around song {player} {where}\n"
        f"  laurels history {player}\n"
        f"  laurels verify"
    )
