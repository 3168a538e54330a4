-- The tables. The search path is the schema that they are made in.
-- Rows of pkt and latency have no foreign keys: the server would keep a note of each until the end of COPY.

CREATE TABLE store_version (version int NOT NULL);
COMMENT ON TABLE store_version IS 'Version of these tables and views; one row.';

CREATE TABLE run (
    run_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    label text NOT NULL,
    sha256 text NOT NULL UNIQUE,
    summary_sha256 text NOT NULL,
    exported timestamptz NOT NULL DEFAULT now(),
    tailscope_version text,
    match_on text NOT NULL,
    trim_ns bigint NOT NULL,
    window_ns bigint NOT NULL,
    bucket_ns bigint NOT NULL,
    worst_kept int NOT NULL,
    warnings json NOT NULL,
    info json NOT NULL
);
COMMENT ON TABLE run IS 'Runs: pairs of captures that were analysed, and measurements.';
COMMENT ON COLUMN run.name IS 'Host and directory that the run was exported from; also the name of its captures.';
COMMENT ON COLUMN run.label IS 'What the run is called in reports.';
COMMENT ON COLUMN run.sha256 IS 'Checksum of run.json: the same run has the same one.';
COMMENT ON COLUMN run.summary_sha256 IS 'Checksum of summary.json.';
COMMENT ON COLUMN run.exported IS 'When it was exported.';
COMMENT ON COLUMN run.tailscope_version IS 'The tailscope that wrote the run.';
COMMENT ON COLUMN run.match_on IS 'What packets are recognised by.';
COMMENT ON COLUMN run.trim_ns IS 'How much of the beginning is left out, in ns.';
COMMENT ON COLUMN run.window_ns IS 'How long a packet may take, in ns.';
COMMENT ON COLUMN run.bucket_ns IS 'Bucket of the histograms, in ns.';
COMMENT ON COLUMN run.worst_kept IS 'How many of the worst packets are listed.';
COMMENT ON COLUMN run.warnings IS 'What a reader of the figures must know.';
COMMENT ON COLUMN run.info IS 'run.json: plan, inputs, clock, floor, host, versions, checksums.';

CREATE TABLE summary (
    run_id int NOT NULL REFERENCES run ON DELETE CASCADE,
    figure text NOT NULL,
    value numeric,
    text text,
    PRIMARY KEY (run_id, figure)
);
COMMENT ON TABLE summary IS 'Every figure of summary.json, as tailscope computed it.';
COMMENT ON COLUMN summary.figure IS 'Its name; the unit is at the end of the name.';
COMMENT ON COLUMN summary.value IS 'A number; null where there is no such value.';
COMMENT ON COLUMN summary.text IS 'A figure that is no number: a name, true or false.';

CREATE TABLE percentile (
    run_id int NOT NULL REFERENCES run ON DELETE CASCADE,
    quantile numeric NOT NULL,
    latency_ns bigint NOT NULL,
    ci_low_ns bigint,
    ci_high_ns bigint,
    beyond bigint NOT NULL,
    supported boolean NOT NULL,
    PRIMARY KEY (run_id, quantile)
);
COMMENT ON TABLE percentile IS 'Percentiles of the latency with their intervals, as tailscope computed them.';
COMMENT ON COLUMN percentile.quantile IS 'From 0 to 1.';
COMMENT ON COLUMN percentile.latency_ns IS 'The smallest latency with at least that share of the packets at or below it, in ns.';
COMMENT ON COLUMN percentile.ci_low_ns IS 'Lower end of the interval of 95 %, in ns; null where the samples give none.';
COMMENT ON COLUMN percentile.ci_high_ns IS 'Upper end of the interval of 95 %, in ns; null where the samples give none.';
COMMENT ON COLUMN percentile.beyond IS 'Packets of higher rank.';
COMMENT ON COLUMN percentile.supported IS 'Whether at least 10 packets lie beyond.';

CREATE TABLE latency (
    run_id int NOT NULL,
    seq bigint NOT NULL,
    pre_ns bigint NOT NULL,
    latency_ns bigint NOT NULL,
    intended_ns bigint,
    tainted boolean,
    instrument_stall_ns bigint
);
CREATE INDEX latency_run ON latency USING brin (run_id) WITH (autosummarize = on);
COMMENT ON TABLE latency IS 'Every match, as tailscope found it.';
COMMENT ON COLUMN latency.run_id IS 'Of table run.';
COMMENT ON COLUMN latency.seq IS 'Place of the packet before the device, in order of time; 0 is the first.';
COMMENT ON COLUMN latency.pre_ns IS 'When it was seen before the device: Unix time in ns.';
COMMENT ON COLUMN latency.latency_ns IS 'How much later it was seen behind the device, in ns.';
COMMENT ON COLUMN latency.intended_ns IS 'When it was meant to leave: Unix time in ns; null for captures, which do not tell.';
COMMENT ON COLUMN latency.tainted IS 'Whether the instrument''s stalls could change the first four digits of its latency; null for captures, which do not tell.';
COMMENT ON COLUMN latency.instrument_stall_ns IS 'How long the instrument stalled while it was under way: at most this much of its latency is the instrument''s; null for captures.';

CREATE TABLE capture (
    capture_id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL,
    type text NOT NULL CHECK (type IN ('pre', 'post')),
    run_id int NOT NULL REFERENCES run ON DELETE CASCADE,
    file text NOT NULL,
    UNIQUE (name, type),
    UNIQUE (run_id, type)
);
COMMENT ON TABLE capture IS 'Captures whose packets are in pkt; none where a run was measured without captures, or they are gone.';
COMMENT ON COLUMN capture.name IS 'Of the run: both captures of a pair have the same one.';
COMMENT ON COLUMN capture.type IS 'pre, before the device, or post, behind it.';
COMMENT ON COLUMN capture.run_id IS 'Of table run.';
COMMENT ON COLUMN capture.file IS 'The file that was read.';

CREATE TABLE pkt (
    capture_id int NOT NULL,
    ts bigint NOT NULL,
    hdr bytea
);
CREATE INDEX pkt_capture ON pkt USING brin (capture_id) WITH (autosummarize = on);
COMMENT ON TABLE pkt IS 'Every packet of every capture.';
COMMENT ON COLUMN pkt.capture_id IS 'Of table capture.';
COMMENT ON COLUMN pkt.ts IS 'When it was captured: Unix time in ns.';
COMMENT ON COLUMN pkt.hdr IS 'What it is recognised by, the same before and behind the device: bytes of the frame, by match_on of the run; null where it has none.';
