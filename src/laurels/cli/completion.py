"""`laurels completion`."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for SHELL.

    \b
    bash: laurels completion bash > ~/.local/share/bash-completion/completions/laurels
    zsh:  laurels completion zsh > "${fpath[1]}/_laurels"
    fish: laurels completion fish > ~/.config/fish/completions/laurels.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "laurels", "_LAURELS_COMPLETE").source())
