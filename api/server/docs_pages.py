"""Swagger UI and ReDoc, from files that are installed with the service: they work offline.

The package ``fastapi-offline`` brings the files; its pages would be FastAPI's with other addresses, as here.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles


def install_docs(app: FastAPI, prefix: str) -> None:
    """Add the pages ``docs`` and ``redoc`` and the files that they load.

    Args:
        app: The application; its own pages are turned off.
        prefix: Path that the pages are below.
    """
    assets, openapi = f"{prefix}/docs-assets", f"{prefix}/openapi.json"
    app.mount(assets, StaticFiles(directory=_assets()))

    @app.get(f"{prefix}/docs", include_in_schema=False)
    def swagger() -> HTMLResponse:
        return get_swagger_ui_html(
            openapi_url=openapi,
            title=f"{app.title} - Swagger UI",
            swagger_js_url=f"{assets}/swagger-ui-bundle.js",
            swagger_css_url=f"{assets}/swagger-ui.css",
            swagger_favicon_url=f"{assets}/favicon.png",
        )

    @app.get(f"{prefix}/redoc", include_in_schema=False)
    def redoc() -> HTMLResponse:
        return get_redoc_html(
            openapi_url=openapi,
            title=f"{app.title} - ReDoc",
            redoc_js_url=f"{assets}/redoc.standalone.js",
            redoc_favicon_url=f"{assets}/favicon.png",
            with_google_fonts=False,
        )


def _assets() -> Path:
    """Return the directory of the package's files; the package itself is not imported."""
    spec = importlib.util.find_spec("fastapi_offline")
    assert spec is not None  # a dependency of this package
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "static"
