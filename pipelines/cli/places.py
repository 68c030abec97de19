"""The options that choose places: they may stand before a command or after it."""

from __future__ import annotations

import click

_HELP = {
    "lake": ("PLACE", "Where the tables are (TEETOTAL_LAKE, default data/lake): a path or s3://…"),
    "landing": ("PLACE", "Where runs are landed (TEETOTAL_LANDING, default data/landing)."),
    "keyring": ("PATH", "The keys of sealed columns (TEETOTAL_KEYRING, default beside the lake)."),
    "margin": ("FRACTION", "Largest difference that counts as none (TEETOTAL_MARGIN, 0.02)."),
}
_CHOSEN = "teetotal.places"


def _choose_place(ctx: click.Context, option: click.Parameter, value: str | None) -> None:
    """Keep what was typed; what stands last on the command line counts."""
    from pipelines.settings import settings

    places = ctx.meta.setdefault(_CHOSEN, dict.fromkeys(_HELP))
    if value is not None and option.name is not None:
        places[option.name] = value
        ctx.obj = settings(**places)


def _make_option(name: str, *, is_hidden: bool) -> click.Option:
    metavar, text = _HELP[name]
    return click.Option(
        [f"--{name}"], metavar=metavar, help=text, hidden=is_hidden, expose_value=False, callback=_choose_place
    )


def list_options() -> list[click.Parameter]:
    """The options of the whole program."""
    return [_make_option(name, is_hidden=False) for name in _HELP]


def accept_places(command: click.Command) -> click.Command:
    """A command that takes these options too; one of its own with the same name stays what it is."""
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        accept_places(inner)
    own = {name for parameter in command.params for name in parameter.opts}
    command.params += [_make_option(name, is_hidden=True) for name in _HELP if f"--{name}" not in own]
    return command
