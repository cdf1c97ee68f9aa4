"""schemathesis against the OpenAPI document: no 5xx, no status, content type or answer that it does not name.
And what promtool says of /metrics."""
import collections
import json
import os
import shutil
import subprocess
import sys

import pytest

from conftest import URL, request


def statuses_of(report):
    """{operation: [status of each of its requests]}"""
    statuses = collections.defaultdict(list)
    for line in report.read_text().splitlines():
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder") or {}
        for interaction in recorder.get("interactions", {}).values():
            statuses[recorder["label"]].append((interaction.get("response") or {}).get("status_code"))
    return statuses


def run_schemathesis(url, folder, mode, phases):
    """What it asks depends on the seed and not on how fast the machine is: the limit is for what hangs."""
    schemathesis = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    run = subprocess.run([schemathesis, "run", url + "/openapi.json", "--checks", checks, "--seed", "1",
                          "--max-examples", "5", "--mode", mode, "--phases", phases, "--no-color",
                          "--report", "ndjson", "--report-ndjson-path", "report.ndjson"],
                         cwd=folder, capture_output=True, text=True, timeout=1200)
    assert run.returncode == 0, run.stdout[-8000:]
    assert request(url, "GET", "/health")[0] == 200
    return {operation: got for operation, got in statuses_of(folder / "report.ndjson").items()
            if operation.startswith("POST ")}


def test_bodies_that_the_document_describes_are_mostly_right_ones(echo_url, tmp_path):
    posts = run_schemathesis(echo_url, tmp_path, "positive", "examples,coverage,fuzzing")
    assert len(posts) > 10
    never = [operation for operation, got in posts.items() if 200 not in got]
    assert never == [], never
    all_statuses = sum(posts.values(), [])
    assert all_statuses.count(200) >= 0.8 * len(all_statuses), collections.Counter(all_statuses)


def test_what_the_document_excludes_gets_answers_that_it_names(echo_url, tmp_path):
    posts = run_schemathesis(echo_url, tmp_path, "negative", "coverage")
    assert len(posts) > 10
    assert 400 in sum(posts.values(), [])


PROMTOOL = shutil.which("promtool", path=os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"])


# Names that existing dashboards ask for. Those with a colon, which promtool does not like either, are all SGLang's.
FIXED = {f"sglang:ae_sep_{name}" for name in (
    "active_transfer_count", "passive_transfer_count", "kv_transfer_bytes", "dispatch_bytes", "combine_bytes",
    "prefix_hit_tokens")}


def what_promtool_says(metrics):
    out = subprocess.run([PROMTOOL, "check", "metrics"], input=metrics, capture_output=True, text=True, timeout=60)
    return [line for line in out.stderr.splitlines()
            if "should not contain ':'" not in line and line.split()[0] not in FIXED]


@pytest.mark.skipif(not PROMTOOL, reason="promtool (Debian: prometheus) is not installed")
def test_promtool_finds_only_the_names_that_are_fixed(echo_url):
    metrics = request(echo_url, "GET", "/metrics")[2]
    # What the engine of frontend_echo says of itself is no product of ours.
    ours = "".join(line + "\n" for line in metrics.splitlines() if "process_open_fds" not in line
                   and "gen_throughput" not in line)
    assert what_promtool_says(ours) == []


@pytest.mark.skipif(not PROMTOOL, reason="promtool (Debian: prometheus) is not installed")
def test_promtool_finds_no_more_in_those_of_a_whole_server():
    metrics = request(URL, "GET", "/metrics")[2]
    assert "sglang:num_running_reqs" in metrics
    assert what_promtool_says(metrics) == []
