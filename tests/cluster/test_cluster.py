"""The cluster as its operators meet it: shipped configurations, stop, kill, cancel, pressure."""
import os
import random
import signal
import time
from pathlib import Path

import pytest

from harness import ROOT, SLOW, Server, goldens, write_pair

SHORT, LONG = goldens()
PROCESSES_ONLY = pytest.mark.skipif(os.environ.get("AERIE_IN_PROCESS") == "1",
                                    reason="needs host processes")


def memory_of(pids):
    """Proportional set size, bytes."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


@PROCESSES_ONLY
@pytest.mark.parametrize("name", ["four-node", "two-node"])
def test_shipped_configurations_start_and_answer(tmp_path, name):
    for file in ("settings.json", "config.toml"):
        (tmp_path / file).write_text((ROOT / "configs" / name / file).read_text())
    begin = time.time()
    with Server(tmp_path) as server:
        assert time.time() - begin < 60 * SLOW
        for case in SHORT:
            server.tokens(case["prompt_ids"], 16)
        used = memory_of([server.process.pid, *server.hosts().values()])
        assert used < 8 << 30, f"{used >> 20} MiB"
        for metric in ("sglang:ae_sep_attention_forward_time_sum", "sglang:ae_sep_expert_forward_time_sum",
                       "sglang:ae_sep_dispatch_bytes", "sglang:ae_sep_combine_bytes",
                       "sglang:ae_sep_kv_transfer_bytes", "sglang:ae_sep_active_transfer_count"):
            assert server.metric(metric) > 0, metric
        output = server.output()
        for line in ("[AE-SEP] Initializing AE separation framework...", "[AE-SEP] Attention group: tp=",
                     "[AE-SEP] Expert group: ep=", "[AE-SEP] AE separation enabled successfully.",
                     "The server is fired up and ready to roll!"):
            assert line in output


def test_separation_is_real(tmp_path):
    with Server(write_pair(tmp_path)) as server:
        prompts = [case["prompt_ids"] for case in SHORT + LONG]
        for i, prompt in enumerate(prompts):
            server.tokens(prompt, 4, ignore_eos=True, cache_salt=str(i))
        # 576 values of 2 bytes for each prompt token and each of the 6 layers, once.
        assert server.metric("sglang:ae_sep_kv_transfer_bytes") == sum(map(len, prompts)) * 1152 * 6
        assert server.metric("sglang:ae_sep_active_transfer_count") == len(prompts)
        # Each token is computed once in each of the 5 MoE layers: the prompt, and three fed outputs.
        assert server.metric("sglang:ae_sep_expert_tokens_total") == 5 * (sum(map(len, prompts)) + 3 * len(prompts))
        log = server.output()
        if os.environ.get("AERIE_IN_PROCESS") != "1":
            for node, has in (("node-0", False), ("node-1", False), ("node-2", True)):
                lines = [line for line in log.splitlines() if f"[{node}]" in line]
                assert any("experts 0..31: weights loaded" in line for line in lines) == has, node
                assert any("attention tp 0/1: weights loaded" in line for line in lines) != has, node


# Each network backend for each kind of message; where they differ a host has two fabrics.
@PROCESSES_ONLY
@pytest.mark.parametrize("comm, kv", [("gloo", "gloo"), ("gloo", "ucx"), ("ucx", "gloo")])
def test_network_backends_answer_alike(tmp_path, comm, kv):
    pair = write_pair(tmp_path, ae={"comm_backend": comm, "kv_backend": kv})
    with Server(pair) as server:
        for case in SHORT + LONG:
            expected = case["output_ids"][:16]
            assert server.tokens(case["prompt_ids"], len(expected)) == expected
        assert "Gloo over TCP" in server.output()
        server.idle()


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


@PROCESSES_ONLY
def test_sigterm_drains_and_leaves_no_process(tmp_path):
    server = Server(write_pair(tmp_path))
    hosts = server.hosts()
    assert sorted(hosts) == [0, 1, 2]
    running = server.pool.submit(server.tokens, SHORT[0]["prompt_ids"], 200, ignore_eos=True)
    time.sleep(0.3)
    assert server.stop() == 0
    assert len(running.result()) == 200  # what ran has finished
    assert not any(alive(pid) for pid in hosts.values())
    server.log.close()


@PROCESSES_ONLY
def test_hosts_get_the_device_that_auto_came_to(tmp_path):
    with Server(write_pair(tmp_path), "--device", "auto") as server:
        assert server.tokens(SHORT[0]["prompt_ids"], 4) == SHORT[0]["output_ids"][:4]


@PROCESSES_ONLY
def test_a_killed_launcher_takes_its_hosts_with_it(tmp_path):
    server = Server(write_pair(tmp_path))
    hosts = server.hosts()
    server.process.kill()
    server.process.wait()
    deadline = time.time() + 5 * SLOW
    while any(alive(pid) for pid in hosts.values()):
        assert time.time() < deadline, hosts
        time.sleep(0.05)
    server.log.close()


def load(server, seconds, at_once=8):
    """Greedy golden requests, at_once at a time, for a while. [(golden, status, body, duration)]"""
    until = time.time() + seconds

    def client(index):
        results, rng = [], random.Random(index)
        while time.time() < until:
            case = rng.choice(SHORT)
            begin = time.time()
            status, body = server.ask(case["prompt_ids"], len(case["output_ids"]))
            results.append((case, status, body, time.time() - begin))
            if status != 200:
                time.sleep(0.05)
        return results

    return [r for results in server.many(client, range(at_once), at_once) for r in results]


@PROCESSES_ONLY
@pytest.mark.parametrize("victim", ["node-0", "node-1", "node-2"], ids=["prefill", "decode", "experts"])
def test_kill_of_each_host_under_load(tmp_path, victim):
    pair = write_pair(tmp_path, model={"dtype": "float32"})  # every token is known
    node = int(victim[-1])
    with Server(pair) as server:
        before = server.hosts()[node]
        running = server.pool.submit(load, server, 12 * SLOW)
        time.sleep(2 * SLOW)
        os.kill(before, signal.SIGKILL)
        killed = time.time()
        if node != 2:
            while server.get("/health")[0] == 200 and time.time() - killed < 5:
                time.sleep(0.02)
            assert server.get("/health")[0] == 503
        server.wait_healthy(10)
        assert time.time() - killed < 10 * SLOW
        results = running.result()
        assert server.hosts()[node] != before
        failed = [r for r in results if r[1] != 200]
        for case, status, body, _ in results:
            if status == 200:
                assert body["choices"][0]["token_ids"] == case["output_ids"]
        if node == 2:  # experts hold no request
            assert not failed, failed[0]
            assert server.metric("sglang:ae_sep_replays_total") > 0
        else:
            assert failed
            for _, status, body, duration in failed:
                message = body["error"]["message"]
                assert status == 503 and (victim in message or "host is live" in message), body
                assert duration < 10 * SLOW
        assert f"{victim} (" in server.output() and "was killed by signal 9" in server.output()
        assert server.tokens(SHORT[0]["prompt_ids"], 64) == SHORT[0]["output_ids"]
        server.idle()


def test_random_cancels_under_pressure(tmp_path):
    """200 requests, 16 at a time, pools so small that requests wait and are retracted."""
    pair = write_pair(tmp_path, nodes=4, attention=("node-1",), decode=("node-2", "node-3"), ep=2,
                      model={"dtype": "float32"},
                      settings={"max_total_tokens": 1536, "page_size": 64, "chunked_prefill_size": 64})
    with Server(pair) as server:
        def one(seed):
            rng = random.Random(seed)
            case = rng.choice(SHORT)
            if rng.random() < 0.4:
                # Longer than it will be let run: the client goes away in the middle.
                try:
                    server.request("POST", "/v1/completions",
                                   {"model": "demo", "prompt": case["prompt_ids"], "max_tokens": 900,
                                    "ignore_eos": True, "temperature": 0}, timeout=rng.uniform(0.01, 1.5) / SLOW)
                except OSError:
                    pass
                return None
            return server.tokens(case["prompt_ids"], len(case["output_ids"])) == case["output_ids"]

        results = server.many(one, range(200))
        assert all(r is not False for r in results)
        assert any(r is None for r in results) and any(r for r in results)
        server.idle()


@pytest.mark.parametrize("separated", [True, False])
def test_what_can_never_fit_fails_alone_with_the_numbers(tmp_path, separated):
    pair = write_pair(tmp_path, separated=separated,
                      settings={"max_total_tokens": 640, "page_size": 64})
    with Server(pair) as server:
        def ask(case):
            return server.ask(case["prompt_ids"], len(case["output_ids"]))
        too_long = max(LONG, key=lambda case: len(case["prompt_ids"]))
        replies = server.many(ask, [*SHORT[:8], too_long, *SHORT[8:]])
        status, body = replies.pop(8)
        assert status == 400, body
        assert f"({len(too_long['prompt_ids'])} tokens)" in body["message"]
        assert "576 tokens" in body["message"], body
        assert [status for status, _ in replies] == [200] * len(SHORT)
        # One that fits and asks for more than there is ends where the cache ends.
        tokens = server.tokens(SHORT[0]["prompt_ids"], 2000, ignore_eos=True)
        assert len(SHORT[0]["prompt_ids"]) + len(tokens) == 576
        server.idle()


def test_prefixes_are_cached_and_flushed(tmp_path):
    pair = write_pair(tmp_path, separated=False, nodes=1, settings={"schedule_policy": "lpm"})
    with Server(pair) as server:
        prompt = max(LONG, key=lambda case: len(case["prompt_ids"]))["prompt_ids"]

        def cached(**fields):
            status, body = server.ask(prompt, 4, **fields)
            assert status == 200, body
            return body["usage"]["prompt_tokens_details"]["cached_tokens"]

        pages = (len(prompt) - 1) // 64 * 64
        assert cached() == 0
        assert cached() == pages
        assert cached(cache_salt="other") == 0
        assert server.metric("sglang:cached_tokens_total") == pages
        server.idle()
        assert server.metric("sglang:kv_evictable_tokens") >= 2 * pages
        assert f"#cached-token: {pages}" in server.output()
        status, text = server.request("POST", "/flush_cache")
        assert status == 200, text
        assert cached() == 0
        # Three choices of one prompt, and of three that begin alike, compute it once.
        status, body = server.ask(prompt[:1000], 4, n=3, cache_salt="choices")
        assert status == 200, body
        assert server.metric("sglang:cached_tokens_total") == pages + 2 * (999 // 64 * 64)
        running = server.pool.submit(server.tokens, SHORT[0]["prompt_ids"], 400, ignore_eos=True)
        while server.metric("sglang:num_running_reqs") == 0:
            time.sleep(0.01)
        status, text = server.get("/flush_cache")
        assert status == 400 and "1 requests are in flight" in text
        running.result()


def test_a_conversation_stays_where_its_prefix_is(tmp_path):
    """Eight conversations at a time over 2 P × 2 D. Those with short turns are computed on D, which
    holds what it has said; those with turns of more than a chunk on P, which holds the prompts."""
    page, chunk, said = 16, 32, 16
    pair = write_pair(tmp_path, nodes=5, dp=2, prefill=("node-0", "node-1"), attention=("node-2", "node-3"),
                      decode=("node-4",), settings={"page_size": page, "chunked_prefill_size": chunk})
    rng = random.Random(5)

    def words(count):
        return [rng.randrange(300, 2000) for _ in range(count)]

    with Server(pair) as server:
        lengths = [8, 8, 8, 8, 40, 40, 40, 40]  # of a turn; a prefix outweighs what all others add
        prompts = [words(500) for _ in lengths]
        expected = [0] * len(lengths)
        for turn in range(4):
            replies = server.many(lambda prompt: server.ask(prompt, said, ignore_eos=True), prompts)
            assert [status for status, _ in replies] == [200] * len(prompts)
            cached = [body["usage"]["prompt_tokens_details"]["cached_tokens"] for _, body in replies]
            assert cached == expected, f"turn {turn}"
            expected = [(len(prompt) + (said - 1 if length < chunk else 0)) // page * page
                        for prompt, length in zip(prompts, lengths)]
            prompts = [prompt + body["choices"][0]["token_ids"] + words(length)
                       for prompt, (_, body), length in zip(prompts, replies, lengths)]
        # Which replica a conversation began on is chance, so that one of a role may have none of a kind.
        for role in ("prefill", "decode"):
            assert sum(server.metric("sglang:ae_sep_prefix_hit_tokens", engine_type=role, dp_rank=replica)
                       for replica in ("0", "1")) > 0, role
        server.idle()


def test_two_by_two_replicas_with_room_for_two_each(tmp_path, capsys):
    pair = write_pair(tmp_path, nodes=5, dp=2, ep=1, prefill=("node-0", "node-1"),
                      attention=("node-2", "node-3"), decode=("node-4",), model={"dtype": "float32"},
                      settings={"max_total_tokens": 1280, "page_size": 64})
    with Server(pair) as server:
        cases = [SHORT[i % 16] for i in range(64)]
        results = server.many(lambda c: server.tokens(c["prompt_ids"], len(c["output_ids"])), cases, 64)
        assert results == [c["output_ids"] for c in cases]
        server.idle()
        waits = {}  # bound: observations of both decode replicas
        for (name, labels), value in server.metrics().items():
            if name == "sglang:ae_sep_combine_wait_time_bucket" and dict(labels)["engine_type"] == "decode":
                waits[float(dict(labels)["le"])] = waits.get(float(dict(labels)["le"]), 0) + value
        assert waits[float("inf")] > 0
        worst = min(bound for bound, count in waits.items() if count == waits[float("inf")])
        with capsys.disabled():
            print(f"\nworst decode wait at the experts under prefill load: at most {worst} s")
