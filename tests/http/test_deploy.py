"""What deploy/ asks of Prometheus is what the server's /metrics has."""
import json
import re
from pathlib import Path

import pytest

from conftest import URL, request

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


@pytest.mark.parametrize("name", ["grafana_dashboard.json", "prometheus_rules.yml"])
def test_metrics_exist(name):
    text = (DEPLOY / name).read_text()
    if name.endswith("json"):
        json.loads(text)
    known = set(re.findall(r"^(sglang:\w+)", request(URL, "GET", "/metrics")[2], re.MULTILINE))
    asked = set(re.findall(r"sglang:\w+", text))
    assert len(asked) >= 5 and asked <= known
