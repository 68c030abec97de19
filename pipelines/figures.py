"""The figures in the web interface: a picture that an event carries, under an address short enough to be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
from starlette.responses import PlainTextResponse, Response

from assets.build.catalogue import TABLES
from assets.specs import asset_key
from report.markdown import read_image

if TYPE_CHECKING:
    from starlette.requests import Request

_DATA_VERSION = "dagster/data_version"
# Of so many events of a partition, the newest ones, a picture is looked for.
_MOST_EVENTS = 50
# A picture may be opened by itself: no script, and nothing fetched.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, max-age=3600",
}


def answer_figure(instance: dg.DagsterInstance, request: Request) -> Response:
    """The picture of a partition, or of a table without partitions, as an event of that version carries it."""
    tier, table, run_id = (request.path_params.get(name) for name in ("tier", "table", "run_id"))
    name = f"{tier}.{table}"
    version = request.query_params.get("version", "")
    found = _find_picture(instance, name, run_id, version) if name in TABLES and version else None
    if found is None:
        return PlainTextResponse("no event of this version carries a picture\n", 404, headers=_HEADERS)
    return Response(found, media_type="image/svg+xml", headers=_HEADERS)


def _find_picture(instance: dg.DagsterInstance, name: str, run_id: str | None, version: str) -> str | None:
    asked = dg.AssetRecordsFilter(asset_key(name), asset_partitions=None if run_id is None else [run_id])
    for record in instance.fetch_materializations(asked, limit=_MOST_EVENTS).records:
        made = record.asset_materialization
        if made is None or not (made.tags or {}).get(_DATA_VERSION, "").startswith(version):
            continue
        carried = made.metadata.get("picture")
        if isinstance(carried, dg.MarkdownMetadataValue):
            return read_image(str(carried.value))
    return None
