"""`koff help`: the help of a command, and the lists that commands refer to."""

from collections.abc import Iterator

import click

from koff.cli.text_table import wrap_text

_WIDTH = 100
EXIT_CODES = {
    0: "all was printed; or the reader of the pipe has ended; or a command that Ctrl-C or SIGTERM ends in"
    " order (`koff monitor`, `koff demo`, `koff pipeline run`)",
    1: "koff cannot reach Kafka, or may not read what it needs; a file cannot be read. One line says why, and"
    " what to check."
    " `koff notify test`: a request was not accepted",
    2: "the options, the configuration or a property are wrong",
    3: "`koff lag --fail-above N`: the lag of a group is above N. `koff group NAME`: there is no such group. "
    "`koff doctor`: a warning. `koff pipeline check`: a check failed. `koff offsets`: there is no such "
    "group, topic or partition",
    4: "a lag could not be found out within `--timeout`. With `--fail-above`: a lag is not known for any"
    " reason, or no group matches. `koff unused`: something is not known. `koff offsets`: the group has"
    " members",
    5: "`koff offsets`: something has moved since the plan was made, or it was carried out before",
    130: "Ctrl-C ended the command before it was done (`koff lag --watch`, `koff printer`, ...)",
}
"""By exit code, when a command ends with it; also in docs/output.md."""


def _list_exit_codes() -> Iterator[tuple[str, str]]:
    yield from ((str(code), text) for code, text in EXIT_CODES.items())


def _list_metrics() -> Iterator[tuple[str, str]]:
    from koff.serve.metrics.families import FAMILIES

    yield from ((family.name, f"{family.text} Example: {family.query}") for family in FAMILIES)


def _list_settings() -> Iterator[tuple[str, str]]:
    from koff.config.settings import SETTINGS

    yield from ((each.name, each.help) for each in SETTINGS.values())


TOPICS = {
    "exit-codes": ("What the exit codes mean.", _list_exit_codes),
    "metrics": ("The metrics of koff monitor.", _list_metrics),
    "settings": ("The keys of koff.yaml.", _list_settings),
}


@click.command()
@click.argument("topic", nargs=-1)
@click.pass_context
def help(ctx: click.Context, topic: tuple[str, ...]) -> None:
    """Print the help of a command, or a list: exit-codes, metrics or settings.

    \b
    Examples:
      koff help lag
      koff help config check
      koff help metrics
    """
    root = ctx.find_root()
    if len(topic) == 1 and topic[0] in TOPICS:
        title, list_entries = TOPICS[topic[0]]
        click.echo(title)
        for name, text in list_entries():
            click.echo("\n".join(["", name, *(f"    {line}" for line in wrap_text(text, _WIDTH))]))
        return
    click.echo(_find_context(root, topic).get_help())
    if not topic:
        click.echo("\nTopics of koff help:")
        for name, (title, _) in TOPICS.items():
            click.echo(f"  {name:<12}{title}")


def _find_context(ctx: click.Context, names: tuple[str, ...]) -> click.Context:
    """The context of the command of these names. Raises click's `UsageError`."""
    for name in names:
        command = ctx.command.get_command(ctx, name) if isinstance(ctx.command, click.Group) else None
        if command is None:
            raise click.UsageError(
                f"there is no command or topic {' '.join(names)!r}: `koff help` lists them", ctx
            )
        ctx = click.Context(command, info_name=name, parent=ctx)
    return ctx
