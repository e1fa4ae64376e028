"""`koff completion`: the script that completes koff's commands in a shell."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_KOFF_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script with which SHELL completes commands, options and their choices.

    \b
    Put one line into the file that your shell reads at its start:
      bash, ~/.bashrc:                         eval "$(koff completion bash)"
      zsh, ~/.zshrc:                           eval "$(koff completion zsh)"
      fish, ~/.config/fish/config.fish:        koff completion fish | source

    \b
    Examples:
      koff completion bash
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(ctx.find_root().command, {}, "koff", _VARIABLE).source())
