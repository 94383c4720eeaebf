"""What Sluice remembers: values, their storage, migrations and the control log. Imports nothing."""
