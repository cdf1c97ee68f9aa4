"""schemathesis against the OpenAPI document: no 5xx, no status or content type that it does not name. And
what promtool says of /metrics."""
import os
import shutil
import subprocess
import sys

import pytest

from conftest import request


def test_no_request_gets_a_status_that_is_not_documented(echo_url, tmp_path):
    schemathesis = os.path.join(os.path.dirname(sys.executable), "schemathesis")
    checks = "not_a_server_error,status_code_conformance,content_type_conformance"
    run = subprocess.run([schemathesis, "run", echo_url + "/openapi.json", "--checks", checks, "--seed", "1",
                          "--max-examples", "5", "--max-time", "25", "--no-color"],
                         cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout[-8000:]
    assert request(echo_url, "GET", "/health")[0] == 200


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool (Debian: prometheus) is not installed")
def test_promtool_finds_only_the_names_that_are_fixed(echo_url):
    metrics = request(echo_url, "GET", "/metrics")[2]
    # What the engine of frontend_echo says of itself is no product of ours.
    ours = "".join(line + "\n" for line in metrics.splitlines() if "process_open_fds" not in line
                   and "gen_throughput" not in line)
    out = subprocess.run(["promtool", "check", "metrics"], input=ours, capture_output=True, text=True, timeout=60)
    wrong = [line for line in out.stderr.splitlines() if "should not contain ':'" not in line]
    assert wrong == []
