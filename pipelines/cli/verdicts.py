"""What securing or changing a run cost, in the terminal: a verdict per pair, and the waterfall of where it was paid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import overhead_breakdown, pairs, step_overhead, throughput_overhead
from gold.overhead_breakdown import GROUPS
from gold.pairs import is_tee_overhead
from report.colours import GROUP_WORDS, WORDS
from report.sentences import describe_other_source, dominant, lead, ms, name_pair, name_regimes, tell_verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from lake.store import Lake

    Row = dict[str, Any]

_BAR = 24
_SENTENCES = 12
_KEPT = (
    *("run_id", "baseline_run_id", "regime", "baseline_regime", "verdict_class"),
    *("slowdown_ratio", "slowdown_low_ratio", "slowdown_high_ratio", "interval_over"),
    *("runs_count", "baseline_runs_count", "verdict", "caveat", "evidence"),
)


def format_verdicts(lake: Lake, run_ids: Sequence[str]) -> Iterator[str]:
    """Per pair: the verdict by the best evidence, where most is paid, and every part that changed, in ms per step."""
    for answer, log, parts in read_answers(lake, run_ids):
        yield ""
        is_tee = is_tee_overhead(answer)
        named = f"{answer['run_id']} ({answer['regime']}) against {answer['baseline_run_id']}"
        yield named if is_tee else f"{name_pair(answer)} ({name_regimes(answer)})"
        yield from format_answer(answer, log, parts, ("baseline", "TEE" if is_tee else "run"))


def read_answers(lake: Lake, run_ids: Sequence[str] | None) -> Iterator[tuple[Row, Row | None, list[Row]]]:
    """Per pair: what its steps say, what its training log says, and the parts of its overhead."""
    answers = lake.scan(step_overhead.TABLE, run_ids).sort("run_id").collect().to_dicts()
    overheads = lake.scan(overhead_breakdown.TABLE, run_ids).sort("run_id", "part_ordinal").collect().to_dicts()
    logs = lake.scan(throughput_overhead.TABLE, run_ids).collect().to_dicts()
    logged = {row["run_id"]: row for row in logs}
    for answer in answers:
        parts = [row for row in overheads if row["run_id"] == answer["run_id"]]
        yield answer, logged.get(answer["run_id"]), parts


def make_table(answers: Iterable[tuple[Row, Row | None, list[Row]]]) -> pa.Table:
    """The same for programs: one row per pair, with the numbers of the source that leads and its sentences."""
    import pyarrow as pa

    fields = [step_overhead.TABLE.arrow_schema.field(name) for name in _KEPT]
    rows = []
    for answer, log, parts in answers:
        leading = lead(answer, log)
        said = {"verdict": tell_verdict(leading), "mostly_paid_for": dominant(answer, parts)}
        rows.append({name: leading[name] for name in _KEPT} | said)
    return pa.Table.from_pylist(rows, pa.schema([*fields, pa.field("mostly_paid_for", pa.string())]))


def summarise_run(lake: Lake, run_ids: Sequence[str]) -> Iterator[str]:
    """What the runs just built answer: a sentence per pair, the reason where there is none, and what to type next."""
    found = lake.scan(pairs.TABLE).sort("run_id").collect().to_dicts()
    mine = [row for row in found if not {row["run_id"], row["baseline_run_id"]}.isdisjoint(run_ids)]
    paired = [row["run_id"] for row in mine if row["baseline_run_id"] is not None]
    sentences = [
        f"{name_pair(answer)}: {tell_verdict(lead(answer, log))}"
        for answer, log, _ in (read_answers(lake, paired) if paired else ())
    ]
    sentences += [f"{row['run_id']}: no pair: {row['reason']}" for row in mine if row["baseline_run_id"] is None]
    yield from ["", *sentences[:_SENTENCES]] if sentences else []
    if len(sentences) > _SENTENCES:
        yield f"and {len(sentences) - _SENTENCES} more: teetotal show gold.step_overhead"
    yield f"next: teetotal report; teetotal what-if {(paired or list(run_ids))[0]}"


def format_answer(
    answer: Row,
    log: Row | None,
    parts: list[Row],
    names: tuple[str, str],
) -> Iterator[str]:
    """The verdict by the best evidence, then where it is paid, with a column for each side."""
    leading = lead(answer, log)
    yield f"  {tell_verdict(leading)}"
    other = describe_other_source(answer, leading)
    yield from [f"  {other}"] if other else []
    if log is not None:
        yield from (f"  {log[name]}" for name in ("caveat", "unobservable") if log[name])
    where = dominant(answer, parts)
    if where is not None:
        yield f"  {where}"
    if parts:
        yield from _waterfall(parts, names)


def _waterfall(parts: list[dict[str, Any]], names: tuple[str, str]) -> Iterator[str]:
    """One line per group of parts, and under it its parts; only a group is compared, so only groups have bars."""
    shown = [row for row in parts if row["reason"] or row["step_ns"] or row["baseline_step_ns"]]
    largest = max((abs(row["group_overhead_ns"] or 0) for row in shown), default=0) or 1
    yield f"    {'ms per step, measured':<26} {names[0]:>9} {names[1]:>9} {'change':>9}"
    for group in GROUPS:
        rows = [row for row in shown if row["part_group"] == group]
        known = [row for row in rows if row["overhead_ns"] is not None]
        if len(known) > 1 and known[0]["group_overhead_ns"] is not None:
            yield f"{_line(GROUP_WORDS[group], known)}  {_bar(known[0]['group_overhead_ns'], largest)}".rstrip()
        indent = "  " if len(known) > 1 else ""
        for row in rows:
            if row["overhead_ns"] is None:
                yield f"    {indent + WORDS[row['part']]:<26} {row['reason']}"
                continue
            bar = "" if indent else _bar(row["overhead_ns"], largest)
            yield f"{_line(indent + WORDS[row['part']], [row])}  {bar}".rstrip()
    yield _line("step (mean)", [row for row in shown if row["overhead_ns"] is not None])


def _line(name: str, rows: list[dict[str, Any]]) -> str:
    """A name, and the sums of both sides and of what was added."""
    baseline, tee, added = (sum(row[of] for row in rows) for of in ("baseline_step_ns", "step_ns", "overhead_ns"))
    return f"    {name:<26} {baseline / 1e6:>9.1f} {tee / 1e6:>9.1f} {ms(added):>9}"


def _bar(added: int, largest: int) -> str:
    """Drawn to the largest change."""
    return ("█" if added > 0 else "░") * min(_BAR, round(_BAR * abs(added) / largest))
