"""What securing a run cost, told in the terminal: a verdict per pair, and the waterfall of where it was paid."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import step_overhead, throughput_overhead, toll_breakdown
from report.colours import WORDS
from report.sentences import describe_other_source, dominant, lead, ms, tell_verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake.store import Lake

_BAR = 24


def told(lake: Lake, run_ids: Sequence[str]) -> Iterator[str]:
    """Per pair: the verdict by the best evidence, where most is paid, and every part that changed, in ms per step."""
    answers = lake.scan(step_overhead.TABLE, run_ids).sort("run_id").collect().to_dicts()
    tolls = lake.scan(toll_breakdown.TABLE, run_ids).sort("run_id", "part_ordinal").collect().to_dicts()
    logs = lake.scan(throughput_overhead.TABLE, run_ids).collect().to_dicts()
    logged = {row["run_id"]: row for row in logs}
    for answer in answers:
        yield ""
        yield f"{answer['run_id']} ({answer['regime']}) against {answer['baseline_run_id']}"
        log = logged.get(answer["run_id"])
        leading = lead(answer, log)
        yield f"  {tell_verdict(leading)}"
        other = describe_other_source(answer, leading)
        yield from [f"  {other}"] if other else []
        if log is not None:
            yield from (f"  {log[name]}" for name in ("caveat", "unobservable") if log[name])
        parts = [row for row in tolls if row["run_id"] == answer["run_id"]]
        where = dominant(answer, parts)
        if where is not None:
            yield f"  {where}"
        if parts:
            yield from _waterfall(parts)


def _waterfall(parts: list[dict[str, Any]]) -> Iterator[str]:
    """One line per part that takes time on either side; bars are drawn to the largest change."""
    shown = [row for row in parts if row["reason"] or row["step_ns"] or row["baseline_step_ns"]]
    largest = max((abs(row["delta_ns"] or 0) for row in shown), default=0) or 1
    yield f"    {'ms a step, measured':<22} {'twin':>9} {'TEE':>9} {'change':>9}"
    for row in shown:
        if row["delta_ns"] is None:
            yield f"    {WORDS[row['part']]:<22} {row['reason']}"
            continue
        bar = ("█" if row["delta_ns"] > 0 else "░") * round(_BAR * abs(row["delta_ns"]) / largest)
        numbers = f"{row['baseline_step_ns'] / 1e6:>9.1f} {row['step_ns'] / 1e6:>9.1f} {ms(row['delta_ns']):>9}"
        yield f"    {WORDS[row['part']]:<22} {numbers}  {bar}".rstrip()
    known = [row for row in shown if row["delta_ns"] is not None]
    twin, tee, delta = (sum(row[name] for row in known) for name in ("baseline_step_ns", "step_ns", "delta_ns"))
    yield f"    {'step (mean)':<22} {twin / 1e6:>9.1f} {tee / 1e6:>9.1f} {ms(delta):>9}"
