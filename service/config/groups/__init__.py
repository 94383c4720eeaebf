"""Groups of settings that have rules of their own.

Doors: access_settings, batch_size, setting_group.
"""
