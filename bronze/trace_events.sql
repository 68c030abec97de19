-- Event texts in, rows out: one parse for the event, one for its arguments.
--
-- Time. `ts` and `dur` are microseconds with three decimals. Below 2^43 us a double holds such a number to better
-- than half a nanosecond, so whole and fraction, scaled apart, give the exact nanosecond. Above it (traces without
-- baseTimeNanoseconds count from 1970) the double is too coarse and the digits are taken from the text, provided
-- that the text found is the number that was parsed. A yes or no is no time, though it converts to one. What fits
-- neither way is null, and the event keeps its text.
WITH parsed AS (
    SELECT text, json_transform(text, $event) AS e
    FROM events
),
digits AS (
    SELECT
        text,
        e,
        CASE
            WHEN abs(e.ts) >= 8796093022208 AND len(regexp_extract_all(text, '"ts"\s*:')) = 1
                THEN regexp_extract(text, $ts_number, ['number', 'whole', 'fraction'])
        END AS ts,
        CASE
            WHEN abs(e.dur) >= 8796093022208 AND len(regexp_extract_all(text, '"dur"\s*:')) = 1
                THEN regexp_extract(text, $dur_number, ['number', 'whole', 'fraction'])
        END AS dur
    FROM parsed
),
timed AS (
    SELECT
        e,
        CASE
            WHEN e.ts IN (0, 1) AND regexp_matches(text, '"ts"\s*:\s*(true|false)')
                THEN NULL
            WHEN abs(e.ts) < 8796093022208
                THEN floor(e.ts)::BIGINT * 1000 + round((e.ts - floor(e.ts)) * 1000)::BIGINT
            WHEN try_cast(ts.number AS DOUBLE) = e.ts
                THEN try_cast(
                    try_cast(ts.whole AS HUGEINT) * 1000
                    + CASE WHEN e.ts < 0 THEN -1 ELSE 1 END
                    * ((try_cast(rpad(left(ts.fraction, 4), 4, '0') AS BIGINT) + 5) // 10)
                    AS BIGINT
                )
        END AS ts_ns,
        CASE
            WHEN e.dur IN (0, 1) AND regexp_matches(text, '"dur"\s*:\s*(true|false)')
                THEN NULL
            WHEN abs(e.dur) < 8796093022208
                THEN floor(e.dur)::BIGINT * 1000 + round((e.dur - floor(e.dur)) * 1000)::BIGINT
            WHEN try_cast(dur.number AS DOUBLE) = e.dur
                THEN try_cast(
                    try_cast(dur.whole AS HUGEINT) * 1000
                    + CASE WHEN e.dur < 0 THEN -1 ELSE 1 END
                    * ((try_cast(rpad(left(dur.fraction, 4), 4, '0') AS BIGINT) + 5) // 10)
                    AS BIGINT
                )
        END AS duration_ns
    FROM digits
)
SELECT
    e.ph AS phase,
    e.cat AS category,
    e.name AS name,
    e.pid AS process_id,
    e.tid AS thread_id,
    CASE
        WHEN abs(ts_ns) < 4611686018427387904 THEN ts_ns + $base_ns
        ELSE try_cast(ts_ns::HUGEINT + $base_ns AS BIGINT)
    END AS ts_ns,
    duration_ns,
    e.id AS flow_id,
    e.bp AS binding_point,
    e.s AS scope,
    e.args AS args,
    json_transform(e.args, $arguments) AS known
FROM timed
