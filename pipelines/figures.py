"""The figures in the web interface, drawn when asked for, under an address short enough to be shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import dagster as dg
from starlette.responses import PlainTextResponse, Response

from assets.build.catalogue import TABLES
from assets.specs import asset_key
from lake.errors import ContractBroken
from report.drawing import svg

if TYPE_CHECKING:
    from starlette.requests import Request

_DATA_VERSION = "dagster/data_version"
# Of so many events of a partition, the newest ones, a specification is looked for.
_MOST_EVENTS = 50
# A picture may be opened by itself: no script, and nothing fetched.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "private, max-age=3600",
}


def answer_figure(instance: dg.DagsterInstance, request: Request) -> Response:
    """The picture of a partition, or of a table without partitions, as an event of that version specifies it."""
    tier, table, run_id = (request.path_params.get(name) for name in ("tier", "table", "run_id"))
    name = f"{tier}.{table}"
    version = request.query_params.get("version", "")
    found = _find_specification(instance, name, run_id, version) if name in TABLES and version else None
    if found is None:
        return PlainTextResponse("no event of this version has a figure\n", 404, headers=_HEADERS)
    try:
        return Response(svg(found), media_type="image/svg+xml", headers=_HEADERS)
    except ContractBroken as error:
        return PlainTextResponse(f"{error}\n", 503, headers=_HEADERS)


def _find_specification(
    instance: dg.DagsterInstance, name: str, run_id: str | None, version: str
) -> dict[str, Any] | None:
    asked = dg.AssetRecordsFilter(asset_key(name), asset_partitions=None if run_id is None else [run_id])
    for record in instance.fetch_materializations(asked, limit=_MOST_EVENTS).records:
        made = record.asset_materialization
        if made is None or not (made.tags or {}).get(_DATA_VERSION, "").startswith(version):
            continue
        carried = made.metadata.get("vega_lite")
        if isinstance(carried, dg.JsonMetadataValue) and isinstance(carried.data, dict):
            return carried.data
    return None
