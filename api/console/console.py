"""The console at ``/console/``: static files, and a redirect of browsers from ``/``.

The directory ``static`` contains ES modules, a style sheet and a page, which are served unchanged: there is
no build step, and nothing is loaded from other hosts. The files use the public API like any other client, and
send a key if the API requires one. The service keeps no session of a user, so any replica can serve the next
request.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from api.errors import RouteNotFound

if TYPE_CHECKING:
    from os import PathLike, stat_result

    from starlette.types import Scope

STATIC = Path(__file__).parent / "static"

#: The page loads only its own files and calls only its own service. It has no inline script or style.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": CONTENT_POLICY,
    # Browsers revalidate the files at each use and get 304 if the ETag matches, so a new version is used
    # immediately.
    "Cache-Control": "no-cache",
}


class _Files(StaticFiles):
    """Files with the headers of the console."""

    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        """Answer with a file, or with 304."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


def install_console(app: FastAPI) -> None:
    """Add the console, and redirect browsers that request ``/`` to it.

    Args:
        app: The application.
    """

    @app.get("/", include_in_schema=False)
    def root(request: Request) -> Response:
        # Browsers accept HTML and are redirected; API clients do not accept it and get the same problem as
        # for any unknown path.
        if "text/html" not in request.headers.get("accept", ""):
            raise RouteNotFound(
                'path "/" does not exist',
                hint="GET /api/v1/openapi.json lists all existing paths; the console is at /console/.",
            )
        return RedirectResponse("console/", 307, {"Vary": "Accept"})

    @app.get("/console", include_in_schema=False)
    def without_slash() -> Response:
        return RedirectResponse("console/", 307)

    app.mount("/console", _Files(directory=STATIC, html=True))
