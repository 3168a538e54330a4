-- The figures, computed from single packets by SQL. The search path is the schema that they are made in.
-- A condition on run_id reaches the tables through all of them: run_id is in every PARTITION BY and GROUP BY.

CREATE VIEW packet AS
SELECT run_id, type, ts, hdr, min(ts) OVER (PARTITION BY run_id, type) AS first_ns,
    trim_ns, window_ns, bucket_ns
FROM run JOIN capture USING (run_id) JOIN pkt USING (capture_id);
COMMENT ON VIEW packet IS 'Packets with their run and side. ts and first_ns, when their capture begins: Unix times in ns.';

CREATE VIEW kept AS
SELECT run_id, type, ts, bucket_ns FROM packet WHERE trim_ns = 0 OR ts > first_ns + trim_ns;
COMMENT ON VIEW kept IS 'Packets within the trimmed interval of their own capture. ts: Unix time in ns.';

CREATE VIEW once AS
SELECT run_id, ts, hdr, trim_ns, window_ns
FROM (
    SELECT run_id, ts, hdr, trim_ns, window_ns,
        ts - lag(ts) OVER same AS since_ns, lead(ts) OVER same - ts AS until_ns
    FROM packet WHERE type = 'pre' AND hdr IS NOT NULL
    WINDOW same AS (PARTITION BY run_id, hdr ORDER BY ts)
) AS seen
WHERE coalesce(since_ns >= window_ns, true) AND coalesce(until_ns >= window_ns, true);
COMMENT ON VIEW once IS 'Packets before the device whose key no other one has within the window; the others are matched by their order, if at all. ts: Unix time in ns.';

-- Where the papers join, a window over both sides looks ahead: of a join the planner knows too little, once
-- many runs lie in one table, and may compare each packet with every other one.
CREATE VIEW match AS
SELECT run_id, ts AS pre_ns, post_ns - ts AS latency_ns, post_ns, hdr
FROM (
    SELECT run_id, type, ts, hdr, trim_ns, window_ns,
        min(ts) FILTER (WHERE type = 'post') OVER later AS post_ns, min(first_ns) OVER later AS first_ns
    FROM (
        SELECT run_id, 'pre' AS type, ts, hdr, NULL AS first_ns, trim_ns, window_ns FROM once
        UNION ALL
        SELECT run_id, type, ts, hdr, first_ns, trim_ns, window_ns
        FROM packet WHERE type = 'post' AND hdr IS NOT NULL
    ) AS both_sides
    WINDOW later AS (
        PARTITION BY run_id, hdr
        ORDER BY ts DESC RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
) AS seen
WHERE type = 'pre' AND post_ns < ts + window_ns AND (trim_ns = 0 OR post_ns > first_ns + trim_ns);
COMMENT ON VIEW match IS 'The first packet behind the device with the same key, within the window: what the papers'' join finds. Packets alike, which table latency may hold matched in order, are left out. pre_ns, post_ns: Unix times in ns.';

CREATE VIEW sample AS
SELECT run_id, pre_ns, latency_ns, post_ns, hdr FROM match
UNION ALL
SELECT run_id, pre_ns, latency_ns, pre_ns + latency_ns, NULL FROM latency
WHERE NOT EXISTS (SELECT FROM capture WHERE capture.run_id = latency.run_id);
COMMENT ON VIEW sample IS 'The packets that percentiles, histogram and worst speak of: matches of captures that are here, otherwise table latency.';

CREATE VIEW step AS
SELECT run_id, is_least, latency_ns, packets,
    sum(packets) OVER (PARTITION BY run_id, is_least ORDER BY latency_ns) AS up_to,
    sum(packets) OVER (PARTITION BY run_id, is_least) AS total
FROM (
    SELECT run_id, false AS is_least, latency_ns, count(*) AS packets
    FROM sample GROUP BY run_id, latency_ns
    UNION ALL
    SELECT run_id, true, latency_ns - coalesce(instrument_stall_ns, 0) AS least_ns, count(*)
    FROM latency GROUP BY run_id, least_ns
) AS counted;
COMMENT ON VIEW step IS 'The distribution of the latency: how many packets have, and have at most, each latency in ns; and with is_least, of the least that they can have taken.';

CREATE VIEW percentiles AS
SELECT run_id, quantile, step.latency_ns, total - greatest(ceil(quantile * total), 1) AS beyond
FROM percentile JOIN step USING (run_id)
WHERE NOT is_least
    AND greatest(quantile * total, 1) > up_to - packets AND greatest(quantile * total, 1) <= up_to;
COMMENT ON VIEW percentiles IS 'Percentiles of the latency.';
COMMENT ON COLUMN percentiles.quantile IS 'From 0 to 1: those of table percentile.';
COMMENT ON COLUMN percentiles.latency_ns IS 'The smallest latency with at least that share of the packets at or below it, in ns.';
COMMENT ON COLUMN percentiles.beyond IS 'Packets of higher rank.';

CREATE VIEW least_percentiles AS
SELECT run_id, quantile, step.latency_ns, total - greatest(ceil(quantile * total), 1) AS beyond
FROM percentile JOIN step USING (run_id)
WHERE is_least
    AND greatest(quantile * total, 1) > up_to - packets AND greatest(quantile * total, 1) <= up_to;
COMMENT ON VIEW least_percentiles IS 'Percentiles of the least that packets can have taken: of their latency without the stalls of the instrument meanwhile; of captures, which do not tell, those of the latency.';
COMMENT ON COLUMN least_percentiles.quantile IS 'From 0 to 1: those of table percentile.';
COMMENT ON COLUMN least_percentiles.latency_ns IS 'The smallest latency with at least that share of the packets at or below it, in ns.';
COMMENT ON COLUMN least_percentiles.beyond IS 'Packets of higher rank.';

CREATE VIEW histogram AS
SELECT run_id, latency_ns / run.bucket_ns * run.bucket_ns AS bucket_ns, count(*) AS packets
FROM sample JOIN run USING (run_id) GROUP BY 1, 2;
COMMENT ON VIEW histogram IS 'Histogram of the latency.';
COMMENT ON COLUMN histogram.bucket_ns IS 'Lower edge of the bucket, in ns; its width is bucket_ns of the run.';
COMMENT ON COLUMN histogram.packets IS 'Packets in it; empty buckets are left out.';

CREATE VIEW worst AS
SELECT run_id, place, latency_ns, pre_ns, post_ns, hdr
FROM (
    SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY latency_ns DESC, pre_ns) AS place
    FROM sample
) AS ordered JOIN run USING (run_id)
WHERE place <= worst_kept;
COMMENT ON VIEW worst IS 'The worst packets.';
COMMENT ON COLUMN worst.place IS '1 is the worst; of equal latencies the earlier packet comes first.';
COMMENT ON COLUMN worst.latency_ns IS 'Latency in ns.';
COMMENT ON COLUMN worst.pre_ns IS 'When the packet was seen before the device: Unix time in ns.';
COMMENT ON COLUMN worst.post_ns IS 'When it was seen behind the device: Unix time in ns.';
COMMENT ON COLUMN worst.hdr IS 'What it is recognised by; null without captures.';

CREATE VIEW packet_rate AS
SELECT run_id, type, start_ns, count(*) AS packets
FROM (
    SELECT run_id, type, ts - (ts - min(ts) OVER (PARTITION BY run_id, type)) % 1000000000 AS start_ns
    FROM kept
) AS placed
GROUP BY run_id, type, start_ns;
COMMENT ON VIEW packet_rate IS 'Packets per second of both sides; seconds count from the first packet that was kept.';

CREATE VIEW packet_rate_pre AS
SELECT run_id, start_ns, packets FROM packet_rate WHERE type = 'pre';
COMMENT ON VIEW packet_rate_pre IS 'Packets per second before the device.';
COMMENT ON COLUMN packet_rate_pre.start_ns IS 'Begin of the second: Unix time in ns.';
COMMENT ON COLUMN packet_rate_pre.packets IS 'Packets within it; empty seconds are left out.';

CREATE VIEW packet_rate_post AS
SELECT run_id, start_ns, packets FROM packet_rate WHERE type = 'post';
COMMENT ON VIEW packet_rate_post IS 'Packets per second behind the device.';
COMMENT ON COLUMN packet_rate_post.start_ns IS 'Begin of the second: Unix time in ns.';
COMMENT ON COLUMN packet_rate_post.packets IS 'Packets within it; empty seconds are left out.';

CREATE VIEW transfer_rate AS
SELECT run_id,
    coalesce(sum(packets) FILTER (WHERE type = 'pre'), 0) AS pre_packets,
    coalesce(sum(packets) FILTER (WHERE type = 'post'), 0) AS post_packets,
    coalesce(sum(packets) FILTER (WHERE type = 'post'), 0)::float8
        / sum(packets) FILTER (WHERE type = 'pre')::float8 AS transfer_rate,
    sum(packets) FILTER (WHERE type = 'pre')::float8
        / count(*) FILTER (WHERE type = 'pre')::float8 AS pre_second_mean_pps,
    sum(packets) FILTER (WHERE type = 'post')::float8
        / nullif(count(*) FILTER (WHERE type = 'post'), 0)::float8 AS post_second_mean_pps
FROM packet_rate GROUP BY run_id;
COMMENT ON VIEW transfer_rate IS 'What came out of what went in.';
COMMENT ON COLUMN transfer_rate.pre_packets IS 'Packets before the device, within the trimmed interval.';
COMMENT ON COLUMN transfer_rate.post_packets IS 'Packets behind the device, within theirs.';
COMMENT ON COLUMN transfer_rate.transfer_rate IS 'post_packets / pre_packets.';
COMMENT ON COLUMN transfer_rate.pre_second_mean_pps IS 'Mean of the packets per second over the seconds that had any, before the device.';
COMMENT ON COLUMN transfer_rate.post_second_mean_pps IS 'The same behind the device.';

CREATE VIEW gap AS
SELECT run_id, type, gap_ns / width_ns * width_ns AS bucket_ns, count(*) AS packets
FROM (
    SELECT run_id, type, bucket_ns AS width_ns,
        ts - lag(ts) OVER (PARTITION BY run_id, type ORDER BY ts) AS gap_ns
    FROM kept
) AS between_packets
WHERE gap_ns IS NOT NULL
GROUP BY 1, 2, 3;
COMMENT ON VIEW gap IS 'Histogram of the time between a packet and the one before it, of both sides.';

CREATE VIEW gaps_pre AS
SELECT run_id, bucket_ns, packets FROM gap WHERE type = 'pre';
COMMENT ON VIEW gaps_pre IS 'Histogram of the gaps before the device.';
COMMENT ON COLUMN gaps_pre.bucket_ns IS 'Lower edge of the bucket, in ns; its width is bucket_ns of the run.';
COMMENT ON COLUMN gaps_pre.packets IS 'Packets that came so long after the one before; empty buckets are left out.';

CREATE VIEW gaps_post AS
SELECT run_id, bucket_ns, packets FROM gap WHERE type = 'post';
COMMENT ON VIEW gaps_post IS 'Histogram of the gaps behind the device.';
COMMENT ON COLUMN gaps_post.bucket_ns IS 'Lower edge of the bucket, in ns; its width is bucket_ns of the run.';
COMMENT ON COLUMN gaps_post.packets IS 'Packets that came so long after the one before; empty buckets are left out.';
