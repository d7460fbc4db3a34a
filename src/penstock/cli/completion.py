"""`penstock completion`: the script that makes a shell complete commands, options and topic names."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from penstock.cli.failure import CommandFailed


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    Topic names are completed from the cluster at $PENSTOCK_BOOTSTRAP or --bootstrap.

    \b
      eval "$(penstock completion bash)"    in ~/.bashrc
      eval "$(penstock completion zsh)"     in ~/.zshrc
      penstock completion fish > ~/.config/fish/completions/penstock.fish
    """
    from penstock.cli.main import COMPLETION_VARIABLE, PROGRAM, cli

    kind = get_completion_class(shell)
    if kind is None:
        raise CommandFailed(f"click has no completion for {shell}")
    script = kind(cli, {}, PROGRAM, COMPLETION_VARIABLE)
    # Not .source(): for bash that starts another bash at each login, to check its version.
    click.echo(script.source_template % script.source_vars())
