"""The shared plan over HTTP."""
