"""The id of the machine's boot: writes from before a reboot that were not synced may be lost."""

from __future__ import annotations

from pathlib import Path


def boot_id() -> str:
    """Return the id of this boot, empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:  # not Linux
        return ""
