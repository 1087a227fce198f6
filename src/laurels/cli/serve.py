"""`laurels serve`."""

import sys
from pathlib import Path
from types import ModuleType

import click
import msgspec

from laurels import config as configuration
from laurels.cli.session import DEFAULT_STORE, config_path
from laurels.config import Config
from laurels.errors import StoreUnavailable
from laurels.service import Laurels


@click.command()
@click.option("--store", envvar="LAURELS_STORE", default=DEFAULT_STORE, show_default=True, metavar="URL")
@click.option(
    "--config",
    envvar="LAURELS_CONFIG",
    type=click.Path(path_type=Path),
    help="TOML file with games, boards and the section [server]  [default: laurels.toml, if there is one]",
)
@click.option("--host", help="Where to listen; beyond this machine only if you say so  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(1, 65_535), help="[default: 8080]")
@click.option("--access-log", is_flag=True, help="Log each request.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info")
@click.option("--log-format", type=click.Choice(["auto", "json", "text"]), default="auto", show_default=True)
def serve(
    store: str,
    config: Path | None,
    host: str | None,
    port: int | None,
    access_log: bool,
    log_level: str,
    log_format: str,
) -> None:
    """Serve a store over HTTP: the API under /v1, its reference at /docs.

    It listens on this machine only, unless told otherwise. A store without keys gets one for an operator, which is
    shown once; with it, make keys for your games. Ends in order on Ctrl-C or SIGTERM.
    """
    server = server_module()
    server.log_to_stderr(log_level, as_json=log_format == "json" or (log_format == "auto" and not sys.stderr.isatty()))
    path = config_path(config)
    loaded = Config() if path is None else configuration.load(path)
    changes = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    if access_log:
        changes["access_log"] = True
    settings = msgspec.structs.replace(loaded.server, **changes)
    server.run(store, msgspec.structs.replace(loaded, server=settings), ready=say_hello)


def server_module() -> ModuleType:
    """The server, which needs the extra `server`."""
    try:
        from laurels import server
    except ImportError as error:
        raise StoreUnavailable(f"the server needs more packages: pip install 'laurels[server]' ({error})") from error
    return server


async def say_hello(laurels: Laurels, address: str) -> None:
    """The address, and the first key of a store that has none."""
    click.echo(f"Laurels serves {', '.join(laurels.games()) or 'no games yet'} on {address}")
    click.echo(f"  reference: {address}/docs")
    if not len(laurels.keyring):
        _, text = await laurels.create_key("operator", name="first operator")
        click.echo(f"  an operator's key, shown this once: {text}")
