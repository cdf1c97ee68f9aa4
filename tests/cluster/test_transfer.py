"""The KV transfer between processes: kills in the middle of it, pressure, and what the metrics say."""
import os
import random
import signal
import time

import pytest

from harness import SLOW, Server, goldens, write_pair

SHORT, LONG = goldens()
PROCESSES_ONLY = pytest.mark.skipif(os.environ.get("AERIE_IN_PROCESS") == "1",
                                    reason="needs host processes")


def bytes_of(prompts):
    """576 values of 4 bytes for each token and each of the 6 layers."""
    return sum(map(len, prompts)) * 576 * 4 * 6


@pytest.mark.parametrize("mode", ["active", "passive", "active_passive"])
def test_each_mode_moves_every_byte_once(tmp_path, mode):
    pair = write_pair(tmp_path, model={"dtype": "float32"}, ae={"kv_transfer": mode},
                      settings={"disable_radix_cache": True})
    with Server(pair) as server:
        cases = SHORT + LONG
        for case in cases:
            assert server.tokens(case["prompt_ids"], len(case["output_ids"])) == case["output_ids"]
        moved = {m: server.metric("sglang:ae_sep_kv_transfer_bytes", mode=m) for m in ("active", "passive")}
        assert sum(moved.values()) == bytes_of([case["prompt_ids"] for case in cases])
        pushed = server.metric("sglang:ae_sep_active_transfer_count")
        pulled = server.metric("sglang:ae_sep_passive_transfer_count")
        assert pushed + pulled == len(cases)
        if mode != "active_passive":
            assert (pulled if mode == "active" else pushed) == 0
        assert server.metric("sglang:ae_sep_kv_policy_total") == len(cases)
        server.idle()


@PROCESSES_ONLY
@pytest.mark.parametrize("mode,victim", [("active", "node-0"), ("active", "node-1"), ("passive", "node-0"),
                                         ("passive", "node-1")])
def test_a_kill_in_the_middle_of_a_transfer(tmp_path, mode, victim):
    """Each layer of a transfer takes 0.1 s longer, so that the kill meets it."""
    pair = write_pair(tmp_path, model={"dtype": "float32"}, ae={"kv_transfer": mode},
                      settings={"disable_radix_cache": True})
    node = int(victim[-1])
    with Server(pair, env={"AERIE_TEST_FAULT": "kv_transfer_slowed"}) as server:
        before = server.hosts()[node]
        running = [server.pool.submit(server.ask, case["prompt_ids"], len(case["output_ids"]))
                   for case in SHORT[:8]]
        time.sleep(0.35 * SLOW)
        os.kill(before, signal.SIGKILL)
        killed = time.time()
        for case, result in zip(SHORT, running):
            status, body = result.result()
            if status == 200:
                assert body["choices"][0]["token_ids"] == case["output_ids"]
            else:
                assert status == 503 and victim in body["error"]["message"], body
        assert any(result.result()[0] != 200 for result in running)
        assert time.time() - killed < 30 * SLOW
        server.wait_healthy(10)  # only now: the death was noticed, since it has ended requests
        for case in SHORT[:4]:
            assert server.tokens(case["prompt_ids"], len(case["output_ids"])) == case["output_ids"]
        server.idle()


def test_pools_for_six_bear_many_requests_and_cancels(tmp_path):
    """Pushed and pulled, as each request is chosen; transfer_test.cc does it in each mode."""
    count = 1000 if os.environ.get("AERIE_SLOWDOWN") is None else 200
    pair = write_pair(tmp_path, model={"dtype": "float32"}, ae={"kv_transfer": "active_passive"},
                      settings={"max_total_tokens": 640, "page_size": 16, "chunked_prefill_size": 64})
    cases = [case for case in SHORT if len(case["prompt_ids"]) <= 64]
    with Server(pair) as server:
        def one(seed):
            rng = random.Random(seed)
            case = rng.choice(cases)
            if rng.random() < 0.2:
                try:
                    server.request("POST", "/v1/completions",
                                   {"model": "demo", "prompt": case["prompt_ids"], "max_tokens": 400,
                                    "ignore_eos": True, "temperature": 0}, timeout=rng.uniform(0.01, 1) / SLOW)
                except OSError:
                    pass
                return None
            wanted = case["output_ids"][:24]
            return server.tokens(case["prompt_ids"], len(wanted)) == wanted

        results = server.many(one, range(count), 32)
        assert all(r is not False for r in results)
        assert any(r is None for r in results) and any(results)
        server.idle()
