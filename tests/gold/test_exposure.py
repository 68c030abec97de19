from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import exposure
from gold.exposure import AT_ONCE_NS
from tests.support.gold_rows import measure_rows

if TYPE_CHECKING:
    import polars as pl

    from tests.support.gold_rows import Rows
    from tests.support.silver_rows import Bench

US = 1000
# Where the step begins, by the rank's own clock.
T0 = 1_000_000_000


def step(duration_us: int = 10_000, **fields: Any) -> dict[str, Any]:
    return {"step_number": 7, "ts_ns": T0, "duration_ns": duration_us * US, **fields}


def crossing(place: int, start_us: int, duration_us: int | None, **fields: Any) -> dict[str, Any]:
    """The crossing of the hook at that place of the trace."""
    known = {"collective": "all_reduce", "path": "hook", "group_size": 2, "buffer_bytes": 4096, "step_number": 7}
    duration_ns = None if duration_us is None else duration_us * US
    return {"ordinal": place, **known, "ts_ns": T0 + start_us * US, "duration_ns": duration_ns, **fields}


def span(name: str, pattern: str, start_us: int, duration_us: int, **fields: Any) -> dict[str, Any]:
    known = {"name": name, "pattern": pattern, "thread_id": "ring"}
    return {**known, "ts_ns": T0 + start_us * US, "duration_ns": duration_us * US, **fields}


def hook(start_us: int, duration_us: int) -> dict[str, Any]:
    return span("tee::all_reduce#4096", "hook_collective", start_us, duration_us)


def copy(direction: str, launch_us: int, duration_us: int) -> dict[str, Any]:
    """A copy on the GPU's track; it may run later than it was launched."""
    launched = {"launch_ts_ns": T0 + launch_us * US, "thread_id": "7", "is_gpu": True, "direction": direction}
    return span("Memcpy", "gpu_copy", launch_us + 1, duration_us, **launched, kind="copy")


def measure_exposure(engine: Bench, crossings: Rows, spans: Rows, **of_step: Any) -> pl.DataFrame:
    return measure_rows(engine, exposure, crossings=crossings, spans=spans, steps=[step(**of_step)])


def test_waiting_for_other_ranks_is_taken_out_of_a_collectives_time(engine: Bench) -> None:
    spans = [
        hook(1000, 900),
        span("tee::recv#2048", "hook_receive", 1100, 300),
        span("tee::wait_for_room", "hook_wait", 1500, 100),
        span("tee::copy_in#2048", "hook_copy", 1600, 50),
        span("tee::send#2048", "hook_sized_transport", 1700, 20),
        span("tee::recv#2048", "hook_receive", 1950, 40),  # after the hook
        span("tee::recv#2048", "hook_receive", 1200, 70, thread_id="another"),
    ]
    found = measure_exposure(engine, [crossing(0, 1000, 900)], spans)
    assert found.select("start_ns", "end_ns", "wait_ns", "ready_ns", "host_copy_ns", "copy_ns").rows() == [
        (1000 * US, 1900 * US, 400 * US, 1400 * US, 70 * US, 0)
    ]


def test_room_that_an_older_send_waited_for_is_no_copying(engine: Bench) -> None:
    spans = [
        hook(1000, 900),
        span("tee::send#2048", "hook_sized_transport", 1100, 300),
        span("tee::wait_for_room", "hook_wait", 1150, 200),
        span("tee::send#2048", "hook_sized_transport", 1500, 30),
    ]
    found = measure_exposure(engine, [crossing(0, 1000, 900)], spans)
    assert found.select("wait_ns", "host_copy_ns").rows() == [(200 * US, 130 * US)]


def test_staging_waits_for_as_long_as_its_copy_does_not_explain(engine: Bench) -> None:
    spans = [
        hook(1000, 900),
        span("tee::d2h", "hook_other", 1010, 400),
        copy("gpu_to_host", 1020, 60),
        copy("host_to_gpu", 1800, 40),
        copy("gpu_to_host", 1950, 500),  # launched after the hook
        copy("gpu_to_gpu", 1020, 500),
    ]
    found = measure_exposure(engine, [crossing(0, 1000, 900)], spans)
    assert found.select("wait_ns", "copy_ns", "ready_ns").rows() == [(340 * US, 100 * US, 1340 * US)]


def test_staging_in_parts_waits_where_a_part_is_needed(engine: Bench) -> None:
    spans = [
        hook(1000, 900),
        span("tee::d2h", "hook_other", 1010, 20),
        copy("gpu_to_host", 1015, 30),
        copy("gpu_to_host", 1020, 30),
        span("tee::d2h_wait", "hook_other", 1030, 300),
        span("tee::d2h_wait", "hook_other", 1500, 40),
    ]
    assert measure_exposure(engine, [crossing(0, 1000, 900)], spans).select("wait_ns").rows() == [(300 * US,)]


def test_a_copy_longer_than_its_staging_is_no_negative_wait(engine: Bench) -> None:
    spans = [hook(1000, 900), span("tee::d2h", "hook_other", 1010, 400), copy("gpu_to_host", 1020, 600)]
    assert measure_exposure(engine, [crossing(0, 1000, 900)], spans).select("wait_ns").rows() == [(0,)]


def test_a_collective_waits_no_longer_than_it_lasts(engine: Bench) -> None:
    spans = [hook(1000, 900), span("tee::recv#1", "hook_receive", 1100, 2000)]
    assert measure_exposure(engine, [crossing(0, 1000, 900)], spans).select("wait_ns", "ready_ns").rows() == [
        (900 * US, 1900 * US)
    ]


def test_a_collective_that_follows_at_once_may_have_been_ready_earlier(engine: Bench) -> None:
    soon, late = 1200 + AT_ONCE_NS // US - 1, 5000
    crossings = [crossing(0, 1000, 200), crossing(1, soon, 300), crossing(2, late, 300)]
    spans = [hook(1000, 200), hook(soon, 300), hook(late, 300)]
    found = measure_exposure(engine, crossings, spans)
    assert found.select("collective_number", "is_ready_censored").rows() == [(1, False), (2, True), (3, False)]
    answer = "it waited for the collective before it, so its data may have been ready earlier"
    assert [answer in reason for reason in found["reason"]] == [False, True, False]


def test_a_collective_that_waited_for_its_data_was_not_ready_earlier(engine: Bench) -> None:
    spans = [hook(1000, 200), hook(1210, 900), span("tee::d2h", "hook_other", 1220, 500)]
    found = measure_exposure(engine, [crossing(0, 1000, 200), crossing(1, 1210, 900)], spans)
    assert found.select("ready_ns", "is_ready_censored").rows() == [(1000 * US, False), (1710 * US, False)]


def test_collectives_are_numbered_by_their_start_in_each_step_and_rank(engine: Bench) -> None:
    crossings = [
        crossing(0, 5000, 100),
        crossing(1, 1000, 100),
        crossing(2, 3000, 100),
        crossing(3, 3000, 100, rank=1),
        crossing(4, 11_000, 100, step_number=8),
    ]
    steps = [step(), step(rank=1), step(ts_ns=T0 + 10_000 * US, step_number=8)]
    found = measure_rows(engine, exposure, crossings=crossings, spans=[], steps=steps)
    assert found.select("rank", "step_number", "collective_number", "ordinal", "start_ns").rows() == [
        (0, 7, 1, 1, 1000 * US),
        (0, 7, 2, 2, 3000 * US),
        (0, 7, 3, 0, 5000 * US),
        (0, 8, 1, 4, 1000 * US),
        (1, 7, 1, 3, 3000 * US),
    ]


def test_only_the_last_collective_of_a_step_has_a_tail(engine: Bench) -> None:
    found = measure_exposure(engine, [crossing(0, 1000, 200), crossing(1, 5000, 700)], [])
    assert found.select("step_ns", "tail_ns").rows() == [(10_000 * US, None), (10_000 * US, 4300 * US)]


def test_what_was_hidden_is_null_without_gpu_rows(engine: Bench) -> None:
    crossings = [crossing(0, 1000, 200, exposed_ns=50 * US), crossing(1, 5000, 700)]
    found = measure_exposure(engine, crossings, [])
    assert found.select("hidden_ns", "evidence", "reason").rows() == [
        (150 * US, "measured", None),
        (None, "measured", "no GPU rows were recorded, so what was hidden cannot be told"),
    ]


def test_a_kernel_does_not_say_what_it_waited_for(engine: Bench) -> None:
    found = measure_exposure(engine, [crossing(0, 1000, 200, path="nccl", exposed_ns=0)], [])
    assert found.select("wait_ns", "ready_ns", "crypto_ns", "reason").rows() == [
        (None, 1000 * US, None, "a kernel does not say how much of it was waiting for other ranks")
    ]


def test_sealing_and_opening_are_crypto_and_null_where_no_span_shows_them(engine: Bench) -> None:
    crossings = [crossing(0, 1000, 200, seal_ns=30, open_ns=12), crossing(1, 5000, 700)]
    assert measure_exposure(engine, crossings, []).select("crypto_ns").rows() == [(42,), (None,)]


def test_a_warmup_step_says_so(engine: Bench) -> None:
    steps = [step(is_warmup=True), step(ts_ns=T0 + 10_000 * US, step_number=8)]
    crossings = [crossing(0, 1000, 200), crossing(1, 11_000, 200, step_number=8)]
    found = measure_rows(engine, exposure, crossings=crossings, spans=[], steps=steps)
    assert found.select("step_number", "is_warmup").rows() == [(7, True), (8, False)]


def test_copies_untimed_collectives_and_those_outside_of_steps_have_no_rows(engine: Bench) -> None:
    crossings = [
        crossing(0, 1000, 200, collective=None, path="pinned"),
        crossing(1, 2000, None),
        crossing(2, 3000, 200, step_number=None),
        crossing(3, 3000, 200, step_number=8),
    ]
    assert measure_exposure(engine, crossings, [hook(1000, 200)]).rows() == []
