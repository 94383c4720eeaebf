"""Pages of the site that are generated when it is built, and links that lead out of docs/.

`rest.md` comes from the OpenAPI document, `cli.md` from the commands, `deploy.md` from deploy/README.md. What
reads the code is in `reference.py` beside this file.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # MkDocs loads this file alone

from mkdocs.structure.files import File, Files
from reference import cli_page, rest_page

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages."""
    deploy = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8")
    pages = {"rest.md": rest_page(), "cli.md": cli_page(), "deploy.md": inside(deploy, "deploy")}
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let links stay on the site."""
    folder = Path("docs", page.file.src_uri).parent
    return markdown if page.file.generated_by else inside(markdown, folder.as_posix())


def inside(markdown: str, folder: str) -> str:
    """Return a page whose links lead to pages of the site; one to another file of the repository is its name.

    Args:
        markdown: The page.
        folder: Folder of the page in the repository.
    """

    def linked(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        if "://" in path or path.startswith("mailto:"):
            return match[0]
        target = (ROOT / folder / path).resolve()
        if target == ROOT / "deploy" / "README.md":
            return f"[{text}]({'../' * folder.count('/')}deploy.md{anchor})"
        if target == ROOT / "deploy":
            return f"[{text}]({'../' * folder.count('/')}deploy.md)"
        if target.is_relative_to(ROOT / "docs"):
            if folder.startswith("docs"):
                return match[0]
            return f"[{text}]({target.relative_to(ROOT / 'docs').as_posix()}{anchor})"
        return f"`{target.relative_to(ROOT).as_posix()}`" if text.strip("`") == path else text

    return _LINK.sub(linked, markdown)
