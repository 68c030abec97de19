"""Which cycles of an open run count."""

from __future__ import annotations

from bronze.file_report import FileReport
from bronze.open_cycles import find_earlier_cycles


def make_trace(name: str, rank: int | None, first_ns: int | None, **said: str) -> FileReport:
    made = {"format": "kineto", "outcome": "kept", "sha256": name, **said}
    return FileReport(name, 1, rank=rank, first_ns=first_ns, **made)  # type: ignore[arg-type]


def test_the_traces_that_began_last_count_rank_by_rank() -> None:
    traces = [make_trace(f"{rank}-{start}", rank, start) for rank in (0, 1) for start in (30, 10, 20)]
    late = make_trace("2-10", 2, 10)  # a rank that joined late
    assert find_earlier_cycles([*traces, late], 2) == {"0-10", "1-10"}
    assert find_earlier_cycles([*traces, late], 1) == {"0-10", "0-20", "1-10", "1-20"}
    assert find_earlier_cycles([*traces, late], 3) == set()


def test_a_trace_without_a_time_is_the_earliest_and_of_equal_times_the_digest_decides() -> None:
    traces = [make_trace("b", 0, 10), make_trace("a", 0, 10), make_trace("empty", 0, None), make_trace("z", None, -5)]
    assert find_earlier_cycles(traces, 3) == {"empty"}
    assert find_earlier_cycles(reversed(traces), 1) == {"empty", "z", "a"}


def test_what_is_no_trace_or_was_not_kept_always_counts() -> None:
    others = [
        make_trace("log", 0, 1, format="nccl_log"),
        make_trace("export", 0, 2, format="nsys_sqlite"),
        make_trace("again", 0, 3, outcome="merged"),
        make_trace("refused", 0, 4, outcome="rejected"),
    ]
    assert find_earlier_cycles([*others, make_trace("trace", 0, 5)], 1) == set()
