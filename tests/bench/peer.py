"""The same join and statistics in DuckDB, on one thread.

peer.py load OUT.parquet < records.csv       from `ntp-bench csv`; not measured
peer.py report FOLDER exact|approximate      a JSON object for each group

Records of a command have the connection, the command id and the block in
common. Where these repeat, the pair is the one that is nested in time: the
target has the command while the host waits. For that the clocks' difference
is taken from a part of the commands, and moves with their drift within SLACK.
"""

import json
import os
import sys

import duckdb

SLACK_NS = 2_000_000
WAYS = {
    "latency": "h.block_done - h.block_start",
    "host_block": "h.driver_start - h.block_start",
    "host_driver": "h.send_begin - h.driver_start",
    # Of an R2T's two round trips each has its own.
    "wire": "CASE WHEN h.r2t_arrived IS NULL THEN"
            " (h.resp_arrived - h.send_begin) - (t.send_begin - t.arrived) END",
    "target_receive": "t.received - t.arrived",
    "handoff": "t.bio_submit - t.execute",
    "target_block": "t.drive_issue - t.bio_submit",
    "drive": "t.drive_done - t.drive_issue",
    "response_wait": "t.send_begin - t.resp_queued",
    "host_receive": "h.resp_read - h.resp_arrived",
}
QUANTILES = {
    "exact": "quantile_cont({0}, [0.5, 0.99, 0.999])",
    "approximate": "approx_quantile({0}, [0.5, 0.99, 0.999])",
}


def load(connection, out):
    # Unbuffered: what follows the first line is the database's.
    header = "".join(iter(lambda: os.read(0, 1).decode(), "\n")).split(",")
    columns = {name: "BIGINT" for name in header}
    connection.execute(
        f"COPY (SELECT * FROM read_csv('/dev/stdin', header=false, auto_detect=false,"
        f" columns={columns})) TO '{out}' (FORMAT parquet)"
    )


def report(connection, folder, quantiles):
    host, target = (f"read_parquet('{folder}/{side}.parquet')" for side in ("host", "target"))
    # The middle of all differences of the two clocks is nearly that of the pairs.
    connection.execute(f"""SET VARIABLE theta = (SELECT median(t.arrived - h.send_begin)::BIGINT
        FROM (SELECT * FROM {host} LIMIT 10000) h
        JOIN (SELECT * FROM {target} LIMIT 20000) t USING (connection, cid, slba))""")
    ways = ", ".join(f"{way} AS {name}" for name, way in WAYS.items())
    figures = ", ".join(
        f"count({name}) AS {name}_n, avg({name}) AS {name}_mean,"
        f" {QUANTILES[quantiles].format(name)} AS {name}_quantiles"
        for name in WAYS
    )
    rows = connection.execute(f"""
        WITH pairs AS (
            SELECT h.opcode, h.bytes, h.dev, {ways}
            FROM {host} h JOIN {target} t USING (connection, cid, slba)
            WHERE t.arrived - getvariable('theta') > h.send_begin - {SLACK_NS}
              AND t.send_begin - getvariable('theta') < h.resp_arrived + {SLACK_NS}
        )
        SELECT opcode, bytes, dev, {figures} FROM pairs GROUP BY opcode, bytes, dev""")
    names = [column[0] for column in rows.description]
    for row in rows.fetchall():
        print(json.dumps(dict(zip(names, row))))


def main():
    connection = duckdb.connect(config={"threads": 1})
    if sys.argv[1] == "load":
        load(connection, sys.argv[2])
    else:
        report(connection, sys.argv[2], sys.argv[3])


main()
