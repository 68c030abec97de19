"""The group of all commands: how they are listed, found and ended."""

from __future__ import annotations

import sys
from typing import Any

import click

from lake.errors import LakeError
from pipelines.cli import places, stopping
from pipelines.cli.failures import require_resources, tell_failure

# What a newcomer types first stands first, in the order in which it is typed.
SECTIONS = {
    "From recordings to answers": ("demo", "land", "close", "watch", "run", "status", "report", "ui"),
    "Questions": (
        *("show", "query", "compare", "gate", "baseline", "history"),
        *("what-if", "validate", "plan", "export", "release"),
    ),
    "Proof, keys and removal": ("verify", "anchor", "evidence", "signing", "keys", "forget"),
}
_WHOLE = 400


class SectionedGroup(click.Group):
    """Turns every error into one line and an exit status, and lists its commands by purpose.

    They take the options that choose places.
    """

    def add_command(self, cmd: click.Command, name: str | None = None) -> None:
        """Add a command."""
        super().add_command(places.accept_places(cmd), name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """List the commands by purpose, each with its whole first sentence, wrapped and not cut."""
        for section, names in SECTIONS.items():
            with formatter.section(section):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(_WHOLE)) for name in names])

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; an error that we can explain is told, not traced."""
        try:
            require_resources()
            return super().invoke(ctx)
        except LakeError as error:
            ctx.exit(tell_failure(error))
        except BrokenPipeError:
            sys.stderr.close()  # the reader of our output has seen enough
            ctx.exit(0)
        except KeyboardInterrupt:
            stopping.tell_stop()
            ctx.exit(stopping.INTERRUPTED)

    def make_context(self, *arguments: Any, **named: Any) -> click.Context:
        """Read the options; who stops that is answered as at work, where click would say "Aborted!"."""
        try:
            return super().make_context(*arguments, **named)
        except KeyboardInterrupt:
            stopping.tell_stop()
            sys.exit(stopping.INTERRUPTED)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, and remember its name."""
        found = super().resolve_command(ctx, args)
        stopping.name_command(found[0] or "")
        return found

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Run the command line; whatever click and we did not expect is told as well, with the next step."""
        try:
            with stopping.watch_interrupts():
                return super().main(*arguments, **named)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - a panic of an engine written in Rust is no Exception
            sys.exit(tell_failure(error))
