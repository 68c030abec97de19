-- Event texts in, rows out: one parse for the event, one for its arguments.
--
-- Time. `ts` and `dur` are microseconds with three decimals. Below 2^43 us a double holds such a number to better
-- than half a nanosecond, so whole and fraction, scaled apart, give the exact nanosecond. Whatever is not below it, or
-- is no number, is null here and marked as coarse: trace_event_digits.sql has another look at it. A yes or no is no
-- time, though it converts to one.
SELECT
    e.ph AS phase,
    e.cat AS category,
    e.name AS name,
    e.pid AS process_id,
    e.tid AS thread_id,
    CASE
        WHEN e.ts IN (0, 1) AND regexp_matches(text, '"ts"\s*:\s*(true|false)')
            THEN NULL
        WHEN abs(e.ts) < 8796093022208
            THEN floor(e.ts)::BIGINT * 1000 + round((e.ts - floor(e.ts)) * 1000)::BIGINT + $base_ns
    END AS ts_ns,
    CASE
        WHEN e.dur IN (0, 1) AND regexp_matches(text, '"dur"\s*:\s*(true|false)')
            THEN NULL
        WHEN abs(e.dur) < 8796093022208
            THEN floor(e.dur)::BIGINT * 1000 + round((e.dur - floor(e.dur)) * 1000)::BIGINT
    END AS duration_ns,
    e.id AS flow_id,
    e.bp AS binding_point,
    e.s AS scope,
    e.args AS args,
    json_transform(e.args, $common) AS common,
    regexp_matches(e.args, $rare) AS has_rare,
    NOT (abs(e.ts) < 8796093022208 AND coalesce(abs(e.dur), 0) < 8796093022208) AS is_coarse
FROM (SELECT text, json_transform(text, $event) AS e FROM events)
