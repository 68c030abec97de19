"""What gold's tables promise of each other and of silver: parts sum to wholes, and pairs are pairs of runs."""

from __future__ import annotations

from assets.build.catalogue import select, table
from assets.checks.relation import Relation
from lake.tables import Scope

RELATIONS = (
    Relation(
        name="parts_sum_to_the_step",
        sentence="the parts of a step sum to its duration, to the nanosecond",
        table=table("gold.time_breakdown"),
        query="""
            WITH summed AS (
                SELECT run_id, rank, step_number, duration_ns,
                    coalesce(compute_ns, 0) + coalesce(collective_ns, 0) + coalesce(copy_ns, 0) + coalesce(memset_ns, 0)
                    + coalesce(crypto_ns, 0) + coalesce(transport_ns, 0) + coalesce(wait_ns, 0)
                    + coalesce(blocking_copy_ns, 0) + coalesce(launch_ns, 0) + coalesce(sync_ns, 0)
                    + coalesce(host_ns, 0) + coalesce(idle_ns, 0) + unattributed_ns AS parts_ns
                FROM checked)
            SELECT * FROM summed WHERE duration_ns <> parts_ns
            ORDER BY run_id, rank, step_number""",
    ),
    Relation(
        name="steps_are_those_of_silver",
        sentence="the steps are those of silver.steps, each with its duration",
        table=table("gold.time_breakdown"),
        reads=(table("silver.steps"),),
        query="""
            SELECT run_id, rank, step_number, c.duration_ns, s.duration_ns AS step_duration_ns
            FROM checked c FULL JOIN silver.steps s USING (run_id, rank, step_number)
            WHERE (c.duration_ns, c.is_warmup) IS DISTINCT FROM (s.duration_ns, s.is_warmup)
            ORDER BY run_id, rank, step_number""",
    ),
    Relation(
        name="kernels_are_the_gpu_spans",
        sentence="count and time of a run's kernels are those of its GPU rows in silver.spans",
        table=table("gold.kernel_breakdown"),
        reads=(table("silver.spans"),),
        query="""
            WITH found AS (
                SELECT run_id, count(*) AS found_count, sum(duration_ns) AS found_ns FROM silver.spans
                WHERE is_gpu GROUP BY run_id),
            reported AS (
                SELECT run_id, sum(kernels_count) AS kernels_count, sum(total_ns) AS total_ns
                FROM checked GROUP BY run_id)
            SELECT run_id, kernels_count, found_count, total_ns, found_ns
            FROM reported FULL JOIN found USING (run_id)
            WHERE (kernels_count, total_ns) IS DISTINCT FROM (found_count, found_ns)
            ORDER BY run_id""",
    ),
    Relation(
        name="idle_parts_sum_to_the_whole",
        sentence="busy and idle time sum to the whole, parts to the idle time, and a lone GPU is gold.trace_summary's",
        table=table("gold.idle_breakdown"),
        reads=(table("gold.trace_summary"),),
        is_of_rows=True,
        query="""
            WITH found AS (
                SELECT *, count(*) FILTER (stream = 'all') OVER (PARTITION BY run_id, rank) AS gpus_count FROM checked)
            SELECT run_id, rank, device_id, stream, f.total_ns, f.busy_ns, f.idle_ns
            FROM found f LEFT JOIN gold.trace_summary s USING (run_id, rank)
            WHERE f.total_ns <> f.busy_ns + f.idle_ns OR f.idle_ns <> host_wait_ns + kernel_wait_ns + other_ns
            OR (stream = 'all' AND gpus_count = 1
                AND (f.total_ns, f.busy_ns, f.work_count) IS DISTINCT FROM (s.total_ns, s.busy_ns, s.gpu_events))
            ORDER BY run_id, rank, device_id, stream""",
    ),
    Relation(
        name="waits_are_those_of_the_queues",
        sentence="the slices of a GPU have the waits of gold.queue_length and their time, and each that began ended",
        table=table("gold.queue_timeline"),
        reads=(table("gold.queue_length"),),
        query="""
            WITH summed AS (
                SELECT run_id, rank, device_id, sum(launched_count) AS launched_count,
                    sum(started_count) AS started_count, sum(queued_ns) AS queued_ns
                FROM checked GROUP BY ALL),
            queues AS (SELECT * FROM gold.queue_length WHERE stream = 'all')
            SELECT run_id, rank, device_id, launched_count, started_count, queued_count, s.queued_ns,
                q.queued_ns AS queue_ns
            FROM summed s FULL JOIN queues q USING (run_id, rank, device_id)
            WHERE coalesce(launched_count, 0) <> coalesce(queued_count, 0)
            OR coalesce(started_count, 0) <> coalesce(queued_count, 0)
            OR coalesce(s.queued_ns, 0) <> coalesce(q.queued_ns, 0)
            ORDER BY run_id, rank, device_id""",
    ),
    Relation(
        name="memory_is_that_of_silver",
        sentence="the whole and its slices have the events of silver.memory_events, and the same peak",
        table=table("gold.memory_timeline"),
        reads=(table("silver.memory_events"),),
        query="""
            WITH found AS (
                SELECT run_id, rank, count(*) AS events_count,
                    CASE device_type WHEN 'cuda' THEN concat('cuda:', device_id) ELSE device_type END AS device,
                    max(greatest(allocated_bytes, allocated_bytes - block_bytes)) AS found_bytes
                FROM silver.memory_events GROUP BY ALL),
            summed AS (
                SELECT run_id, rank, device, period, sum(allocations_count + frees_count) AS changes_count,
                    max(peak_allocated_bytes) AS peak_bytes
                FROM checked GROUP BY ALL)
            SELECT run_id, rank, device, period, changes_count, events_count, peak_bytes, found_bytes
            FROM summed FULL JOIN found USING (run_id, rank, device)
            WHERE (changes_count, peak_bytes) IS DISTINCT FROM (coalesce(events_count, 0), found_bytes)
            ORDER BY run_id, rank, device, period""",
    ),
    Relation(
        name="copies_are_the_gpu_spans",
        sentence="the whole and its slices have the copies and memsets of silver.spans, and their bytes",
        table=table("gold.copy_bandwidth"),
        reads=(table("silver.spans"),),
        query="""
            WITH found AS (
                SELECT run_id, rank, count(*) AS found_count FROM silver.spans
                WHERE is_gpu AND kind IN ('copy', 'memset') GROUP BY run_id, rank),
            summed AS (
                SELECT run_id, rank, sum(copies_count) FILTER (period = 'trace') AS copies_count,
                    coalesce(sum(copies_count) FILTER (period = 'slice'), 0) AS sliced_count,
                    sum(payload_bytes) FILTER (period = 'trace') AS payload_bytes,
                    sum(payload_bytes) FILTER (period = 'slice') AS sliced_bytes,
                    sum(busy_ns) FILTER (period = 'trace') AS busy_ns,
                    sum(busy_ns) FILTER (period = 'slice') AS sliced_ns
                FROM checked GROUP BY run_id, rank)
            SELECT run_id, rank, copies_count, sliced_count, found_count, payload_bytes, sliced_bytes
            FROM summed FULL JOIN found USING (run_id, rank)
            WHERE copies_count IS DISTINCT FROM coalesce(found_count, 0) OR copies_count <> sliced_count
            OR payload_bytes IS DISTINCT FROM sliced_bytes OR busy_ns > sliced_ns
            ORDER BY run_id, rank""",
    ),
    Relation(
        name="sequences_are_of_the_gpu_spans",
        sentence="a rank has two sequences fewer than each of its streams has work, and no more are listed",
        table=table("gold.kernel_sequences"),
        reads=(table("silver.spans"),),
        is_of_rows=True,
        query="""
            WITH streams AS (
                SELECT run_id, rank, greatest(count(*) - 2, 0) AS sequences_count FROM silver.spans
                WHERE is_gpu AND stream_id IS NOT NULL GROUP BY run_id, rank, coalesce(device_id, 0), stream_id),
            found AS (SELECT run_id, rank, sum(sequences_count) AS found_count FROM streams GROUP BY run_id, rank)
            SELECT run_id, rank, place_number, c.sequences_count, share_fraction, found_count
            FROM checked c LEFT JOIN found USING (run_id, rank)
            WHERE abs(coalesce(share_fraction, 0) * coalesce(found_count, 0) - c.sequences_count) > 0.01
            ORDER BY run_id, rank, place_number""",
    ),
    Relation(
        name="chains_sum_to_the_step",
        sentence="the steps are those of silver.steps, and the parts of a chain sum to its step, to the nanosecond",
        table=table("gold.critical_path"),
        reads=(table("silver.steps"),),
        query="""
            WITH summed AS (
                SELECT *, compute_ns + collective_ns + copy_ns + memset_ns + crypto_ns + transport_ns + wait_ns
                    + blocking_copy_ns + launch_ns + sync_ns + host_ns + delay_ns + idle_ns AS parts_ns
                FROM checked)
            SELECT run_id, rank, step_number, c.duration_ns, s.duration_ns AS step_duration_ns, parts_ns
            FROM summed c FULL JOIN silver.steps s USING (run_id, rank, step_number)
            WHERE c.duration_ns IS DISTINCT FROM s.duration_ns OR coalesce(parts_ns, c.duration_ns) <> c.duration_ns
            ORDER BY run_id, rank, step_number""",
    ),
    Relation(
        name="modules_are_those_of_silver",
        sentence="calls, their time and, where modules were recorded, GPU work with a launch are those of silver.spans",
        table=table("gold.module_time"),
        reads=(table("silver.spans"),),
        is_of_rows=True,
        query="""
            WITH found AS (
                SELECT run_id, rank,
                    count(*) FILTER (pattern IN ('torch_module', 'own_module')) AS found_count,
                    sum(duration_ns) FILTER (pattern IN ('torch_module', 'own_module')) AS found_ns,
                    count(*) FILTER (is_gpu AND NOT is_orphan) AS work_count
                FROM silver.spans GROUP BY run_id, rank),
            summed AS (
                SELECT run_id, rank, sum(calls_count) AS calls_count, sum(total_ns) AS total_ns,
                    sum(launched_count) AS launched_count, bool_or(self_ns > total_ns) AS is_more
                FROM checked GROUP BY run_id, rank)
            SELECT run_id, rank, calls_count, found_count, total_ns, found_ns, launched_count, work_count
            FROM summed LEFT JOIN found USING (run_id, rank)
            WHERE (calls_count, total_ns) IS DISTINCT FROM (coalesce(found_count, 0), coalesce(found_ns, 0))
            OR launched_count <> CASE WHEN found_count > 0 THEN work_count ELSE 0 END OR is_more
            ORDER BY run_id, rank""",
    ),
    Relation(
        name="operators_are_those_of_silver",
        sentence="calls, their time and the GPU work that has a launch are those of silver.spans",
        table=table("gold.operator_time"),
        reads=(table("silver.spans"),),
        is_of_rows=True,
        query="""
            WITH found AS (
                SELECT run_id, rank,
                    count(*) FILTER (category IN ('cpu_op', 'cuda_runtime', 'cuda_driver')) AS found_count,
                    sum(duration_ns) FILTER (category IN ('cpu_op', 'cuda_runtime', 'cuda_driver')) AS found_ns,
                    count(*) FILTER (is_gpu AND NOT is_orphan) AS work_count
                FROM silver.spans GROUP BY run_id, rank),
            summed AS (
                SELECT run_id, rank, sum(calls_count) AS calls_count, sum(total_ns) AS total_ns,
                    sum(launched_count) AS launched_count, bool_or(self_ns > total_ns) AS is_more
                FROM checked GROUP BY run_id, rank)
            SELECT run_id, rank, calls_count, found_count, total_ns, found_ns, launched_count, work_count
            FROM summed LEFT JOIN found USING (run_id, rank)
            WHERE (calls_count, total_ns, launched_count)
                IS DISTINCT FROM (coalesce(found_count, 0), coalesce(found_ns, 0), coalesce(work_count, 0)) OR is_more
            ORDER BY run_id, rank""",
    ),
    Relation(
        name="crossings_are_those_of_silver",
        sentence="crossings and violations of a boundary are as many as in silver.crossings",
        table=table("gold.sealing_coverage"),
        reads=(table("silver.crossings"),),
        query="""
            WITH found AS (
                SELECT run_id, boundary, count(*) AS found_count, count(violation) AS found_violations_count
                FROM silver.crossings GROUP BY run_id, boundary)
            SELECT run_id, boundary, crossings_count, found_count, violations_count, found_violations_count
            FROM checked FULL JOIN found USING (run_id, boundary)
            WHERE (crossings_count, violations_count) IS DISTINCT FROM (found_count, found_violations_count)
            ORDER BY run_id, boundary""",
    ),
    Relation(
        name="promises_have_one_fate",
        sentence="promised = sealed + claimed + contradicted + plain + unknown, in messages and in bytes",
        table=table("gold.sealing_coverage"),
        query="""
            SELECT run_id, boundary, promised_message_count, promised_bytes FROM checked
            WHERE promised_message_count
                <> sealed_message_count + claimed_message_count + contradicted_message_count + plain_message_count
                + unknown_message_count
            OR promised_bytes <> sealed_bytes + claimed_bytes + contradicted_bytes + plain_bytes + unknown_bytes
            ORDER BY run_id, boundary""",
    ),
    Relation(
        name="collectives_are_those_of_silver",
        sentence="every collective is one of silver.collectives",
        table=table("gold.stragglers"),
        reads=(table("silver.collectives"),),
        is_of_rows=True,
        query="""
            SELECT run_id, match_id FROM checked ANTI JOIN silver.collectives USING (run_id, match_id)
            ORDER BY run_id, match_id""",
    ),
    Relation(
        name="steps_are_those_of_their_clock",
        sentence="every step is one of silver.steps or silver.throughput, with its start and duration",
        table=table("gold.step_energy"),
        reads=(
            table("silver.steps"),
            table("silver.throughput"),
        ),
        is_of_rows=True,
        query="""
            WITH timed AS (
                SELECT run_id, 'profile' AS timed_by, rank, 'step' AS period, step_number, ts_ns, duration_ns
                FROM silver.steps
                UNION ALL
                SELECT run_id, 'log' AS timed_by, rank, period, period_number AS step_number, ts_ns, duration_ns
                FROM silver.throughput)
            SELECT run_id, timed_by, rank, period, step_number, device_id, ts_ns, duration_ns FROM checked
            ANTI JOIN timed USING (run_id, timed_by, rank, period, step_number, ts_ns, duration_ns)
            ORDER BY run_id, timed_by, rank, period, step_number, device_id""",
    ),
    Relation(
        name="steps_are_timed_or_explained",
        sentence=(
            "every source of steps has a row, with a time of no more steps than it has, "
            "or with a reason why there is none"
        ),
        table=table("gold.step_times"),
        reads=(
            table("silver.steps"),
            table("silver.throughput"),
        ),
        query="""
            WITH found AS (
                SELECT run_id, 'trace' AS source, count(*) AS found_count FROM silver.steps GROUP BY run_id
                UNION ALL
                SELECT run_id, 'log' AS source, count(*) AS found_count FROM silver.throughput GROUP BY run_id)
            SELECT run_id, source, step_ns, steps_count, found_count
            FROM checked FULL JOIN found USING (run_id, source)
            WHERE found_count IS NULL OR steps_count IS NULL OR steps_count > found_count
            OR (step_ns IS NULL) <> (evidence = 'unobservable') OR (step_ns IS NULL AND reason IS NULL)
            ORDER BY run_id, source""",
    ),
    *(
        Relation(
            name="runs_of_the_pair_exist",
            sentence="the run is in silver.runs, and so is its baseline, each with its regime",
            table=each,
            reads=(table("silver.runs"),),
            partners=("baseline_run_id",),
            is_of_rows=True,
            query="""
                SELECT c.run_id, c.baseline_run_id FROM checked c
                LEFT JOIN silver.runs ours ON ours.run_id = c.run_id
                LEFT JOIN silver.runs theirs ON theirs.run_id = c.baseline_run_id
                WHERE ours.run_id IS NULL OR ours.regime IS DISTINCT FROM c.regime
                OR (c.baseline_run_id IS NOT NULL AND theirs.run_id IS NULL)
                OR theirs.regime IS DISTINCT FROM c.baseline_regime
                ORDER BY c.run_id""",
        )
        for each in select("gold", Scope.PAIR)
    ),
    Relation(
        name="overhead_is_that_of_the_steps",
        sentence="overhead_ns is step_ns less baseline_step_ns, and null only where nothing is concluded",
        table=table("gold.step_overhead"),
        query="""
            SELECT run_id, baseline_run_id, step_ns, baseline_step_ns, overhead_ns, verdict_class FROM checked
            WHERE overhead_ns IS DISTINCT FROM
                CASE WHEN time_increase_fraction IS NOT NULL OR verdict_class <> 'inconclusive'
                THEN step_ns - baseline_step_ns END
            ORDER BY run_id""",
    ),
    Relation(
        name="parts_sum_to_the_overhead",
        sentence="the deltas sum to the difference of the mean steps, which lie among those of gold.time_breakdown",
        table=table("gold.overhead_breakdown"),
        reads=(table("gold.time_breakdown"),),
        partners=("baseline_run_id",),
        is_of_rows=True,
        query="""
            WITH means AS (
                SELECT run_id, baseline_run_id, sum(overhead_ns) AS parts_ns,
                    sum(step_ns) - sum(baseline_step_ns) AS overhead_ns,
                    sum(step_ns) AS step_ns, sum(baseline_step_ns) AS baseline_step_ns
                FROM checked GROUP BY run_id, baseline_run_id),
            bounds AS (
                SELECT run_id, min(duration_ns) AS least_ns, max(duration_ns) AS most_ns FROM gold.time_breakdown
                WHERE NOT is_warmup GROUP BY run_id)
            SELECT m.run_id, m.baseline_run_id, parts_ns, overhead_ns, step_ns, baseline_step_ns
            FROM means m
            LEFT JOIN bounds ours ON ours.run_id = m.run_id
            LEFT JOIN bounds baselines ON baselines.run_id = m.baseline_run_id
            WHERE parts_ns IS DISTINCT FROM overhead_ns
            OR (step_ns BETWEEN ours.least_ns AND ours.most_ns) IS NOT TRUE
            OR (baseline_step_ns BETWEEN baselines.least_ns AND baselines.most_ns) IS NOT TRUE
            ORDER BY m.run_id""",
    ),
    Relation(
        name="overheads_are_those_of_the_pairs",
        sentence="the overhead of every point is that of its pair in gold.step_overhead, of a TEE with a plain run",
        table=table("gold.scaling"),
        reads=(table("gold.step_overhead"),),
        partners=("tee_run_id",),
        is_of_rows=True,
        query="""
            SELECT c.family_id, c.tee_run_id, c.axis, c.overhead_ns, s.overhead_ns
            FROM checked c LEFT JOIN gold.step_overhead s
            ON s.run_id = c.tee_run_id AND s.baseline_run_id = c.baseline_run_id
            AND s.regime <> 'cc_off' AND s.baseline_regime = 'cc_off'
            WHERE c.overhead_ns IS DISTINCT FROM s.overhead_ns
            ORDER BY c.family_id, c.tee_run_id, c.axis""",
    ),
    Relation(
        name="steps_are_those_of_the_runs",
        sentence="the step of every run is one of gold.step_times, by the source that the history goes by",
        table=table("gold.history"),
        reads=(table("gold.step_times"),),
        partners=("run_id",),
        is_of_rows=True,
        query="""
            SELECT c.workload_id, c.run_id, c.source, c.step_ns FROM checked c
            WHERE c.step_ns IS NOT NULL AND NOT EXISTS (
                SELECT 1 FROM gold.step_times s
                WHERE s.run_id = c.run_id AND s.source = c.source AND s.step_ns = c.step_ns)
            ORDER BY c.workload_id, c.run_id""",
    ),
)
