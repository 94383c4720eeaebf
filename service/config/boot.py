"""Id of the machine's boot; a new id means that writes not synced before the reboot may be lost."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Return the id of this boot; empty on a system without one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""
