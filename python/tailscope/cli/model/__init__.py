"""``tailscope model``: what follows from the figures of a run."""

from __future__ import annotations

import typer

from tailscope.cli.model import aliasing, energy, overload, tail

__all__ = ["app"]

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def model_command() -> None:
    """What follows from the figures of a run."""


app.command("aliasing")(aliasing.command)
app.command("energy")(energy.command)
app.command("overload")(overload.command)
app.command("tail")(tail.command)
