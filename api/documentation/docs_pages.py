"""Swagger UI and ReDoc, served from files installed with the service, so they work offline.

The files are in the package ``fastapi-offline``. The pages of this package are not used: like the pages here,
they are FastAPI's own with other file addresses. Each page has its own content security policy, because the
policy of all other answers forbids pages to load anything.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from pathlib import Path

from fastapi import FastAPI
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

#: Both pages set inline styles and embed pictures; ReDoc searches in a worker.
_CONTENT_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; connect-src 'self'; worker-src blob:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_INLINE_SCRIPT = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def install_docs(app: FastAPI, prefix: str) -> None:
    """Add the pages ``docs`` and ``redoc`` and the files that they load.

    Args:
        app: The application; FastAPI's own documentation pages must be turned off.
        prefix: Path under which the pages are served.
    """
    assets, openapi = f"{prefix}/docs-assets", f"{prefix}/openapi.json"
    app.mount(assets, StaticFiles(directory=_assets()))

    @app.get(f"{prefix}/docs", include_in_schema=False)
    def swagger() -> HTMLResponse:
        return _with_policy(
            get_swagger_ui_html(
                openapi_url=openapi,
                title=f"{app.title} - Swagger UI",
                swagger_js_url=f"{assets}/swagger-ui-bundle.js",
                swagger_css_url=f"{assets}/swagger-ui.css",
                swagger_favicon_url=f"{assets}/favicon.png",
            )
        )

    @app.get(f"{prefix}/redoc", include_in_schema=False)
    def redoc() -> HTMLResponse:
        return _with_policy(
            get_redoc_html(
                openapi_url=openapi,
                title=f"{app.title} - ReDoc",
                redoc_js_url=f"{assets}/redoc.standalone.js",
                redoc_favicon_url=f"{assets}/favicon.png",
                with_google_fonts=False,
            )
        )


def _with_policy(page: HTMLResponse) -> HTMLResponse:
    """Let a page load the service's own files and run only its present inline scripts."""
    hashes = (hashlib.sha256(script).digest() for script in _INLINE_SCRIPT.findall(bytes(page.body)))
    scripts = ("'self'", *(f"'sha256-{base64.b64encode(found).decode()}'" for found in hashes))
    page.headers["Content-Security-Policy"] = _CONTENT_POLICY.format(scripts=" ".join(scripts))
    return page


def _assets() -> Path:
    """Return the directory of the package's files; the package itself is not imported."""
    spec = importlib.util.find_spec("fastapi_offline")
    assert spec is not None  # a dependency of this package
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "static"
