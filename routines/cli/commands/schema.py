"""`routines schema`."""

import json

import click

from routines.cli.call import Call
from routines.cli.call import command as make


@make("schema", short_help="JSON Schema of the files.")
@click.argument("what", type=click.Choice(["routine", "workspace"]), default="routine")
def command(call: Call, *, what: str) -> None:  # noqa: ARG001 - every command is called with it
    """Print the JSON Schema of routines/NAME.yaml, or of routines.yaml (workspace)."""
    from routines.operations.making import schema

    # JSON either way; `--json` is taken since every command that prints a result takes it.
    click.echo(json.dumps(schema(what), indent=2, ensure_ascii=False))
