"""Starts aerie as its users do, with a config.toml and a settings.json, and asks it over HTTP.

AERIE_BIN names the binary (default build/cpu/aerie); AERIE_IN_PROCESS=1 adds --in-process to every
server, for sanitizers that see one process only."""
import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import time
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = os.environ.get("AERIE_BIN", str(ROOT / "build" / "cpu" / "aerie"))
MODEL = str(ROOT / "models" / "demo")
SLOW = float(os.environ.get("AERIE_SLOWDOWN", "1"))  # sanitizers: every time limit times this


def goldens():
    short = json.loads((ROOT / "models/demo/golden/golden_greedy.json").read_text())
    long = json.loads((ROOT / "models/demo/golden/golden_long.json").read_text())
    return short, long


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def toml_value(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    return json.dumps(value)


def write_pair(folder, separated=True, nodes=3, cards=1, tp=1, cp=1, ep=1, expert_dp=1, dp=1,
               prefill=("node-0",), attention=("node-1",), decode=("node-2",), ae=None, model=None,
               settings=None):
    """One pair of files; `ae`, `model`, `settings` add keys to their sections."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sections = {
        "cluster": {"name": "test", "nodes": nodes, "gpus_per_node": cards, "network": "tcp"},
        "parallel": {"attention_tp": tp, "attention_cp": cp, "expert_ep": ep,
                     "expert_dp": expert_dp, "global_dp": dp},
        "ae_separation": {"enabled": separated, "comm_backend": "ucx", "kv_transfer": "active"},
        "model": {"path": MODEL, "dtype": "bfloat16"} | (model or {}),
    }
    if separated:
        sections["ae_separation"] |= {"prefill_nodes": list(prefill), "decode_nodes": list(decode)}
        if attention:
            sections["ae_separation"]["decode_attention_nodes"] = list(attention)
    sections["ae_separation"] |= ae or {}
    text = "".join(f"[{name}]\n" + "".join(f"{k} = {toml_value(v)}\n" for k, v in keys.items()) + "\n"
                   for name, keys in sections.items())
    (folder / "config.toml").write_text(text)
    (folder / "settings.json").write_text(json.dumps({
        "model_path": MODEL, "tp_size": tp, "cp_size": cp, "ep_size": ep, "dp_size": dp,
        "enable_ae_separation": separated} | (settings or {}), indent=1))
    return folder


class Server:
    def __init__(self, pair, *arguments, env=None, wait=True):
        self.port = free_port()
        self.log_path = Path(pair) / f"server-{self.port}.log"
        self.log = open(self.log_path, "w+")
        command = [BINARY, "serve", "--config", str(Path(pair) / "settings.json"), "--ae-config",
                   str(Path(pair) / "config.toml"), "--port", str(self.port), "--device", "cpu",
                   *map(str, arguments)]
        if os.environ.get("AERIE_IN_PROCESS") == "1" and "--in-process" not in command:
            command.append("--in-process")
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=self.log, stderr=subprocess.STDOUT,
                                        env=os.environ | (env or {}))
        self.pool = concurrent.futures.ThreadPoolExecutor(64)
        if wait:
            self.wait_healthy()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            status = self.stop()
            if kind is None:
                assert status == 0, f"exit status {status}\n{self.tail()}"
        self.log.close()

    def output(self):
        return self.log_path.read_text(errors="replace")

    def tail(self, lines=40):
        return "\n".join(self.output().splitlines()[-lines:])

    def wait_healthy(self, limit=60):
        deadline = time.time() + limit * SLOW
        while time.time() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"aerie ended with {self.process.returncode}\n{self.tail()}")
            try:
                if self.get("/health")[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise AssertionError(f"not healthy after {limit * SLOW} s\n{self.tail()}")

    def request(self, method, path, body=None, timeout=300):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout * SLOW)
        try:
            connection.request(method, path, None if body is None else json.dumps(body),
                               {"Content-Type": "application/json"})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def get(self, path, timeout=30):
        return self.request("GET", path, timeout=timeout)

    def ask(self, prompt, max_tokens=64, **fields):
        """A completion of token ids. Returns (status, body as JSON)."""
        body = {"model": "demo", "prompt": prompt, "max_tokens": max_tokens, "temperature": 0,
                "return_token_ids": True} | fields
        status, text = self.request("POST", "/v1/completions", body)
        return status, json.loads(text)

    def tokens(self, prompt, max_tokens=64, **fields):
        status, body = self.ask(prompt, max_tokens, **fields)
        assert status == 200, f"{status} {body}\n{self.tail()}"
        return body["choices"][0]["token_ids"]

    def hashes(self, prompt, max_tokens=64, **fields):
        """(token ids, hashes of the logits at every position). The salt of its own keeps it from
        finding a prefix in the cache, which would have no hashes."""
        fields = {"cache_salt": uuid.uuid4().hex} | fields
        status, body = self.ask(prompt, max_tokens, logits_hash=True, **fields)
        assert status == 200, f"{status} {body}\n{self.tail()}"
        choice = body["choices"][0]
        return choice["token_ids"], choice["logits_hashes"]

    def many(self, function, items, at_once=16):
        """function(item) of all items, at_once at a time, in order."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            return list(pool.map(function, items))

    def metrics(self):
        """{(name, ((label, value), ...)): value}"""
        status, text = self.get("/metrics")
        assert status == 200
        found = {}
        for line in text.splitlines():
            match = re.match(r"([^\s{]+)(?:\{(.*)\})? (\S+)$", line)
            if match and not line.startswith("#"):
                labels = tuple(sorted(re.findall(r'(\w+)="([^"]*)"', match.group(2) or "")))
                found[(match.group(1), labels)] = float(match.group(3))
        return found

    def metric(self, name, **labels):
        """The sum of the series of that name that have these labels."""
        wanted = set(labels.items())
        return sum(v for (n, ls), v in self.metrics().items() if n == name and wanted <= set(ls))

    def hosts(self):
        """{node: pid} of the host processes."""
        found = {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                parent = int(re.search(r"PPid:\s+(\d+)", (entry / "status").read_text()).group(1))
            except (OSError, AttributeError):
                continue
            if parent == self.process.pid and len(words) > 1 and words[1] == "host":
                found[int(words[words.index("--node") + 1])] = int(entry.name)
        return found

    def idle(self, limit=20):
        """Waits until nothing runs and all blocks are free."""
        deadline = time.time() + limit * SLOW
        while True:
            running = self.metric("sglang:num_running_reqs") + self.metric("sglang:num_queue_reqs")
            used = self.metric("sglang:num_used_tokens")
            if running == 0 and used == 0:
                return
            assert time.time() < deadline, f"still {running} requests, {used} tokens\n{self.tail()}"
            time.sleep(0.1)

    def stop(self, limit=60):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(limit * SLOW)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"no exit {limit * SLOW} s after SIGTERM\n{self.tail()}")
