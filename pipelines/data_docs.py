"""The Data Docs in the web interface: the pages of a directory, which are shown and can do nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

if TYPE_CHECKING:
    from starlette.responses import Response
    from starlette.types import Scope

# No script, no request and no form: a page is of the interface's own origin, whose pages may launch runs.
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'self'; sandbox allow-popups"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem;overflow-wrap:anywhere}"
)


class DataDocs(StaticFiles):
    """Serves finished pages of the directory, and a list of them; nothing else that lies there."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory=directory, check_dir=False)
        self._directory = directory

    async def get_response(self, path: str, scope: Scope) -> Response:
        """A page, the list of all, or a sentence that says how a page comes to be."""
        if path in {"", "."}:
            return HTMLResponse(self._list_pages(), headers=_HEADERS)
        parts = PurePosixPath(path).parts
        is_page = path.endswith(".html") and not any(part.startswith(".") for part in parts)
        if not is_page or not self.lookup_path(path)[0]:
            return HTMLResponse(_make_document("No such page", _NO_PAGE), 404, headers=_HEADERS)
        response = await super().get_response(path, scope)
        response.headers.update(_HEADERS)
        return response

    def _list_pages(self) -> str:
        found = sorted(self._directory.glob("*/*/*.html"))
        lines = [
            f'<li><a href="{"/".join(map(escape, page.parts[-3:]))}">{escape(_name_page(page))}</a>, '
            f"{datetime.fromtimestamp(page.stat().st_mtime, UTC):%Y-%m-%d %H:%M} UTC</li>"
            for page in found
            if not page.name.startswith(".")
        ]
        return _make_document("Data Docs", f"<ul>{''.join(lines)}</ul>" if lines else _NO_PAGE)


_NO_PAGE = (
    "<p>There is no page here yet. Great Expectations writes the page of a table where a check of it fails, and the "
    'pages of all tables in the job <a href="/locations/pipelines.definitions/jobs/data_docs">data_docs</a>, on '
    "Sundays or by hand.</p>"
)


def _name_page(page: Path) -> str:
    tier, table = page.parts[-3:-1]
    of = {"_all": "all runs", "_several": "several runs"}.get(page.stem, page.stem)
    return f"{tier}.{table}: {of}"


def _make_document(title: str, body: str) -> str:
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{title}</title>'
    head += f"<style>{_STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body><h1>{title}</h1>{body}</body></html>'
