"""The web server of `teetotal ui`: Dagster's own, behind a guard against what other websites may send."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import click
import dagster as dg
import uvicorn
from dagster._core.workspace.context import WorkspaceProcessContext, WorkspaceRequestContext
from dagster._core.workspace.load_target import WorkspaceFileTarget
from dagster._utils.interrupts import setup_interrupt_handlers
from dagster._utils.log import configure_loggers
from dagster_webserver.version import __version__
from dagster_webserver.webserver import DagsterWebserver
from graphql import GraphQLError, OperationDefinitionNode, OperationType, parse
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Mount, Route

from assets.addresses import DATA_DOCS, FIGURES
from pipelines.data_docs import DataDocs
from pipelines.hosts import HOST
from pipelines.request_guard import LOG, RequestGuard
from pipelines.settings import settings

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.requests import Request
    from starlette.responses import JSONResponse, Response
    from starlette.routing import BaseRoute

# What Dagster's own command sets, all of them its defaults.
_POLL_MS = 2000
_STATEMENT_TIMEOUT_MS = 15_000
_POOL_RECYCLE_S = 3600
_POOL_OVERFLOW = 20


class GuardedWebserver(DagsterWebserver[WorkspaceProcessContext, WorkspaceRequestContext]):
    """Dagster's server, where every request passes the guard and only a POST can change anything.

    A GraphQL document is judged where it would be executed, so nothing can be read there in another way than here.
    """

    def __init__(self, context: WorkspaceProcessContext, hosts: tuple[str, ...], docs: Path) -> None:
        self._hosts = hosts
        self._docs = docs
        self._instance = context.instance
        super().__init__(context, live_data_poll_rate=_POLL_MS)

    def build_middleware(self) -> list[Middleware]:
        """Put the guard before everything else."""
        return [Middleware(RequestGuard, hosts=self._hosts), *super().build_middleware()]

    def build_routes(self) -> list[BaseRoute]:
        """Serve Data Docs and figures beside the interface; a path that is nobody's would show the interface itself."""

        def show_figure(request: Request) -> Response:
            from pipelines.figures import answer_figure  # which knows every table

            return answer_figure(self._instance, request)

        own = [
            Mount(DATA_DOCS, DataDocs(self._docs)),
            Route(f"{FIGURES}/{{tier}}/{{table}}/{{run_id}}.svg", show_figure),
            Route(f"{FIGURES}/{{tier}}/{{table}}.svg", show_figure),
        ]
        return [*own, *super().build_routes()]  # type: ignore[no-untyped-call]  # it is not annotated

    async def execute_graphql_request(
        self, request: Request, query: str, variables: dict[str, Any] | None, operation_name: str | None
    ) -> JSONResponse:
        """Execute a document: one that changes something only if it was sent by POST."""
        if request.method != "POST" and not _holds_only_queries(query):
            reason = f"a {request.method} may hold queries only: send mutations by POST"
            LOG.warning("refused %s /graphql: %s", request.method, reason)
            raise HTTPException(403, reason)
        return await super().execute_graphql_request(request, query, variables, operation_name)


def _holds_only_queries(document: str) -> bool:
    """Whether nothing in a document could change anything; of one that cannot be parsed Dagster itself complains."""
    try:
        definitions = parse(document).definitions
    except GraphQLError:
        return True
    operations = [one.operation for one in definitions if isinstance(one, OperationDefinitionNode)]
    return all(operation is OperationType.QUERY for operation in operations)


@click.command()
@click.option("--port", type=int, required=True)
@click.option("--workspace", required=True, help="The file that says where the code server is.")
def main(port: int, workspace: str) -> None:
    """Serve until a signal comes, with the records in DAGSTER_HOME."""
    configure_loggers(log_level="WARNING")
    lines = logging.StreamHandler()
    lines.setFormatter(logging.Formatter("%(asctime)s - %(name)s - %(levelname)s - %(message)s"))
    LOG.addHandler(lines)
    setup_interrupt_handlers()
    with dg.DagsterInstance.get() as instance:
        instance.optimize_for_webserver(_STATEMENT_TIMEOUT_MS, _POOL_RECYCLE_S, _POOL_OVERFLOW)
        target = WorkspaceFileTarget([workspace])
        with WorkspaceProcessContext(instance, target, version=__version__) as context:
            chosen = settings()
            app = GuardedWebserver(context, chosen.ui_hosts, chosen.docs).create_asgi_app()
            uvicorn.run(app, host=HOST, port=port, log_level="warning")


if __name__ == "__main__":
    main()
