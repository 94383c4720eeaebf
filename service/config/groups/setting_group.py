"""Base class of groups of settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SettingGroup(BaseModel):
    """A group of settings. Python code constructs it with field names, `load_settings` with flat names."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)
