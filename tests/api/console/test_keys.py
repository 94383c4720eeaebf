"""The console of a service that asks for keys, in a browser."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.api.running_service import RunningService, default_settings, free_port
from tests.sluice_run import command

pytestmark = pytest.mark.slow


def test_a_key_is_asked_for_and_what_it_does_not_allow_is_said(browser: Browser, tmp_path: Path) -> None:
    log = tmp_path / "x" / "log.txt"
    log.parent.mkdir()
    settings = default_settings(log) | {"SLUICE_REQUIRE_KEYS": "1"}
    with RunningService(tmp_path / "data", log, free_port(), settings=settings, part="api") as service:
        created = command("key", "create", "ann", "--scope", "read", "--data-dir", str(tmp_path / "data"))
        key = subprocess.run(
            created, capture_output=True, text=True, check=True, env=os.environ
        ).stdout.split()[0]
        page = browser.new_page(base_url=service.root)
        page.goto("/")

        dialog = page.get_by_role("dialog", name="Key of this service")
        expect(dialog).to_be_visible()
        dialog.get_by_label("Key", exact=True).fill(key)
        dialog.get_by_role("button", name="Use this key").click()
        expect(page.get_by_text("No query runs yet")).to_be_visible()
        expect(page.get_by_role("status").filter(has_text="engine stopped")).to_be_visible()

        page.goto("/console/#/engine")
        expect(page.get_by_text("No process runs the engine")).to_be_visible()
        page.get_by_role("button", name="Pause").click()
        expect(page.get_by_role("alert").filter(has_text='key of "ann" does not allow this')).to_be_visible()

        page.reload()
        expect(page.get_by_text("No process runs the engine")).to_be_visible()
        page.get_by_role("button", name="Key", exact=True).click()
        dialog.get_by_role("button", name="Use no key").click()
        expect(dialog).to_be_visible()
        page.close()
