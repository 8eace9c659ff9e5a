"""`routines prune`."""

from routines.cli.call import Call
from routines.cli.call import command as make


@make("prune", short_help="Apply retention now.")
def command(call: Call) -> None:
    """Remove records and outputs that are older than `retention` keeps them."""
    from routines.operations import state_folder

    found = state_folder.prune(call.context)
    if call.json:
        call.answer(
            {
                "claims": found.claims,
                "missed": found.missed,
                "outputs": found.outputs,
                "drafts": found.drafts,
                "bytes": found.bytes,
            }
        )
    else:
        size = f"{found.bytes / 2**20:.1f} MiB"
        call.print([f"removed {found.claims} records and {found.outputs} outputs, {size}"])
