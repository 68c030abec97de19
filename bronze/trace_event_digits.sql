-- The times of events whose `ts` or `dur` is too large for a double to be exact: traces without baseTimeNanoseconds
-- count from 1970. The digits are taken from the text, provided that they are the number that was parsed and that the
-- key stands there once. What fits neither way is null, and the event keeps its text.
WITH parsed AS (
    SELECT text, json_transform(text, '{"ts": "DOUBLE", "dur": "DOUBLE"}') AS e
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
)
SELECT
    CASE
        WHEN try_cast(ts.number AS DOUBLE) = e.ts
            THEN try_cast(
                try_cast(ts.whole AS HUGEINT) * 1000
                + CASE WHEN e.ts < 0 THEN -1 ELSE 1 END
                * ((try_cast(rpad(left(ts.fraction, 4), 4, '0') AS BIGINT) + 5) // 10)
                + $base_ns
                AS BIGINT
            )
    END AS ts_ns,
    CASE
        WHEN try_cast(dur.number AS DOUBLE) = e.dur
            THEN try_cast(
                try_cast(dur.whole AS HUGEINT) * 1000
                + CASE WHEN e.dur < 0 THEN -1 ELSE 1 END
                * ((try_cast(rpad(left(dur.fraction, 4), 4, '0') AS BIGINT) + 5) // 10)
                AS BIGINT
            )
    END AS duration_ns
FROM digits
