"""An open lake: the questions that commands ask of it, by the same functions, with the same errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.errors import EvidenceRejected
from pipelines.api.rows import Rows, keep_rows
from pipelines.cli import session

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

    from pipelines.settings import Settings

_QUERY_S = 60.0


@dataclass(frozen=True)
class Comparison:
    """Two runs, or groups of repeats, side by side, as `teetotal compare` has them."""

    baseline: list[str]
    candidate: list[str]
    # The verdict as a sentence, by the source with the best evidence.
    verdict: str
    # What differs in software, hardware and settings.
    differences: Rows
    # One row like one of gold.step_overhead.
    step: dict[str, Any]
    parts: Rows
    kernels: Rows
    operations: Rows
    collectives: Rows
    # Peak memory of a GPU; None where a side was not sampled.
    memory: dict[str, Any] | None
    notes: list[str]


class Lake:
    """A lake that holds tables; nothing here writes to it."""

    def __init__(self, chosen: Settings, timeout_s: float | None) -> None:
        self._chosen = chosen
        self._timeout_s = timeout_s
        self._lake = session.open_built_lake(chosen)

    def __repr__(self) -> str:
        return f"teetotal.open({str(self._chosen.lake)!r})"

    def list_tables(self) -> list[str]:
        """The names of all tables, from bronze to gold."""
        from assets.build.catalogue import TABLES

        return list(TABLES)

    def list_runs(self) -> list[str]:
        """The ids of the runs in the lake."""
        from bronze import runs

        return sorted(self._lake.snapshot(runs.TABLE).run_ids)

    def table(
        self,
        name: str,
        *,
        runs: str | Sequence[str] = (),
        columns: str | Sequence[str] = (),
        limit: int | None = None,
        reveal: bool = False,
    ) -> Rows:
        """A table, or some runs and columns of it, in the order of its key; `reveal` opens its sealed columns."""
        from assets.build import catalogue
        from bronze.runs import TABLE
        from pipelines.cli import show

        wanted, kept = _list_names(runs), _list_names(columns)
        if limit is not None and limit < 0:
            raise EvidenceRejected(f"limit is {limit}", "expected a number of rows, or None for all")
        declared = catalogue.table(name)
        session.require_runs(self._lake, wanted, [TABLE, declared])
        show.require_columns(declared, kept)
        shown = kept or declared.column_names
        sealed = () if reveal else tuple(column.name for column in declared.sealed if column.name in shown)

        def read(most: int | None) -> Any:
            limits = [one for one in (limit, most) if one is not None]
            return show.read_rows(self._lake, declared, wanted, kept, min(limits, default=None), reveal=reveal)

        return Rows(read, sealed)

    def query(self, sql: str, /, **values: str | float | bool) -> Rows:
        """The answer to one read-only statement over all tables; `$name` in it is the value of that name."""
        from pipelines.cli.query import query
        from pipelines.settings import query_environment

        for name, value in values.items():
            if not isinstance(value, str | int | float):
                kind = type(value).__name__
                raise EvidenceRejected(f"${name} is a {kind}", "expected a text, a number, True or False")
        memory_bytes, variables = self._chosen.query_memory_bytes, query_environment()
        with query(
            self._chosen.lake, sql, values, self._timeout_s, memory_bytes=memory_bytes, environment=variables
        ) as answer:
            return keep_rows(answer.rows().read_all(), tuple(answer.sealed))

    def verdicts(self, runs: str | Sequence[str] = ()) -> Rows:
        """How much slower each run is than its baseline, one row per pair, by the source with the best evidence."""
        from gold import step_overhead
        from pipelines.cli import verdicts

        wanted = _list_names(runs)
        session.require_runs(self._lake, wanted, [step_overhead.TABLE])
        return keep_rows(verdicts.make_table(verdicts.read_answers(self._lake, wanted or None)))

    def what_if(self, run: str | None = None, *, regime: str | None = None, **changes: str | float | bool) -> Rows:
        """The step of a run predicted under a regime or with other settings; without a run, the best of each run."""
        from pipelines.cli import forecasts

        given = [f"{name}={_format_value(value)}" for name, value in changes.items()]
        rows = forecasts.answer_question(self._lake, run, forecasts.read_change(regime, given))
        return keep_rows(forecasts.make_reader(rows).read_all())

    def compare(self, baseline: str | Sequence[str], candidate: str | Sequence[str]) -> Comparison:
        """Any two runs compared, each with its repeats, or two lists of runs."""
        from assets.build.run_comparison import compare_runs_of
        from gold.overhead_breakdown import TABLE
        from pipelines.cli import comparing, verdicts

        first, second = (",".join(_list_names(side)) for side in (baseline, candidate))
        answer = comparing.describe_comparison(compare_runs_of(self._lake, first, second, self._chosen.margin))
        frames = {name: _make_rows(answer[name]) for name in ("differences", "kernels", "operations", "collectives")}
        said = next(verdicts.format_answer(answer["step"], answer["log"], [], ("A", "B"))).strip()
        return Comparison(
            baseline=answer["baseline"],
            candidate=answer["candidate"],
            verdict=said,
            step=answer["step"],
            parts=_make_rows(answer["parts"], TABLE.arrow_schema),
            memory=answer["memory"],
            notes=answer["notes"],
            **frames,
        )


def open_lake(
    lake: str | PathLike[str] | None = None,
    *,
    keyring: str | PathLike[str] | None = None,
    margin: float | None = None,
    timeout_s: float | None = _QUERY_S,
) -> Lake:
    """A lake by its path or URL, else by the environment, as commands choose it; `timeout_s` bounds each query."""
    from pipelines.settings import settings

    typed = [None if one is None else str(one) for one in (lake, keyring, margin)]
    return Lake(settings(typed[0], None, typed[1], margin=typed[2]), timeout_s)


def _list_names(given: str | Sequence[str]) -> list[str]:
    """Several names, or one."""
    return [given] if isinstance(given, str) else list(given)


def _format_value(value: str | float | bool) -> str:
    """A value as it would be typed."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _make_rows(rows: list[dict[str, Any]], schema: Any = None) -> Rows:
    import pyarrow as pa

    return keep_rows(pa.Table.from_pylist(rows, schema=schema))
