"""Free space of a real, small file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.inputs.limits.disk_space import LOOK_S, DiskSpace
from tests.crash.disks import tmpfs

MB = 1 << 20


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        self.now_s += LOOK_S
        return self.now_s


@pytest.mark.mounts
@pytest.mark.parametrize(("least_mb", "least"), [(None, 5 * MB), (8, 8 * MB), (0, 0)])
def test_input_waits_below_half_of_what_requests_need(
    tmp_path: Path, least_mb: int | None, least: int
) -> None:
    with tmpfs(tmp_path / "disk", 100) as disk:
        space = DiskSpace(disk.root, least_mb, Clock())
        assert space.least_bytes == least
        seen = []
        for leave in (50 * MB, least + MB, least - MB, least // 2 - MB, 0):
            disk.fill(max(leave, 0))
            seen.append((space.is_low, space.is_out))
        disk.clear()
        assert (space.is_low, space.is_out) == (False, False)
    none = (False, False)
    low, out = (bool(least), False), (bool(least), bool(least))
    assert seen == [none, none, low, out, out]


@pytest.mark.mounts
def test_the_file_system_is_looked_at_once_a_second(tmp_path: Path) -> None:
    now_s = [10.0]
    with tmpfs(tmp_path / "disk", 100) as disk:
        space = DiskSpace(disk.root, 8, lambda: now_s[0])
        assert not space.is_low
        disk.fill(0)
        now_s[0] += LOOK_S / 2
        assert not space.is_low
        now_s[0] += LOOK_S / 2
        assert space.is_low
        assert "0 bytes free" in space.told(space.least_bytes)


@pytest.mark.mounts
def test_a_large_file_system_keeps_a_gigabyte(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 100_000) as disk:
        assert DiskSpace(disk.root, None).least_bytes == 1 << 30
