"""What it means that no zone is set while the machine has one of its own (DESIGN 7)."""

import os
from zoneinfo import ZoneInfo

from routines.domain.zones import offset_text, zone
from routines.errors import InvalidZone
from routines.operations.context import Context

_LOCALTIME = "/etc/localtime"
_ZONEINFO = "/zoneinfo/"


def zone_note(context: Context) -> str | None:
    """Return what UTC means here and the line to write; None where a zone is set, or is UTC."""
    settings = context.workspace.settings
    # A file that can't be used may well set one.
    if settings.tz_is_set or not settings.is_whole:
        return None
    if not any(not r.zone_is_set and r.schedule for r in context.workspace.routines.values()):
        return None
    own = machine_zone(context)
    if own is None:
        return None
    local = context.clock.now().astimezone(own)
    if not local.utcoffset() and own.key in ("UTC", "Etc/UTC"):
        return None
    nine = local.replace(hour=9, minute=0).astimezone(zone("UTC"))
    there = nine.replace(hour=9).astimezone(own)
    return (
        f"no zone is set, so times are UTC: 09:00 is {there:%H:%M} here"
        f" ({own.key}, {offset_text(local)}). Write in routines.yaml: tz: {own.key}"
    )


def machine_zone(context: Context) -> ZoneInfo | None:
    """Return the zone that the machine is set to; None if it is not known by name."""
    key = context.environ.get("TZ", "").removeprefix(":") or _localtime_key()
    try:
        return zone(key) if key else None
    except InvalidZone:
        return None


def _localtime_key() -> str:
    target = os.path.realpath(_LOCALTIME)
    return target.partition(_ZONEINFO)[2].removeprefix("posix/")
