"""`holdfast completion`."""

from __future__ import annotations

import click

from holdfast.cli import streams
from holdfast.cli.command import command
from holdfast.cli.context import App, pass_app

_SHELLS = ("bash", "zsh", "fish")


@command()
@click.argument("shell", type=click.Choice(_SHELLS))
@pass_app
@click.pass_context
def completion(ctx: click.Context, app: App, *, shell: str) -> None:
    """Print a script for completion in your shell.

    \b
    eval "$(holdfast completion bash)"                                   in ~/.bashrc
    eval "$(holdfast completion zsh)"                                    in ~/.zshrc, after compinit
    holdfast completion fish > ~/.config/fish/completions/holdfast.fish
    """
    from click.shell_completion import ShellComplete, get_completion_class

    made = get_completion_class(shell)
    if made is None:
        raise click.UsageError(f"there is no completion for {shell}")
    script = ShellComplete.source(made(ctx.find_root().command, {}, "holdfast", "_HOLDFAST_COMPLETE"))
    if app.json:
        app.document({"shell": shell, "script": script})
    else:
        streams.answer(script)
