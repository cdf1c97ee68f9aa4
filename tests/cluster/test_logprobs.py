"""Logprobs of prompts: each is what the model gives for that token behind those before it."""
import json

import pytest

from harness import Server, goldens, write_pair

SHORT, LONG = goldens()


def generate(server, ids, start=-1, **more):
    status, text = server.request("POST", "/generate", {
        "input_ids": ids, "return_logprob": True, "logprob_start_len": start, "top_logprobs_num": 2,
        "sampling_params": {"temperature": 0, "max_new_tokens": 1, "ignore_eos": True}} | more)
    assert status == 200, f"{status} {text}\n{server.tail()}"
    return json.loads(text)["meta_info"]


def one_by_one(server, ids):
    """The same by asking for each token behind its prefix."""
    found = []
    for i in range(1, len(ids)):
        meta = generate(server, ids[:i], token_ids_logprob=[ids[i]])
        found.append(meta["output_token_ids_logprobs"][0][0][:2])
    return found


@pytest.mark.parametrize("separated", [True, False])
def test_they_are_what_each_prefix_gives(tmp_path, separated):
    settings = {"page_size": 16, "chunked_prefill_size": 32, "enable_mtp": separated}
    with Server(write_pair(tmp_path, separated=separated, settings=settings)) as server:
        ids = SHORT[0]["prompt_ids"] + SHORT[1]["prompt_ids"] + SHORT[2]["prompt_ids"] + SHORT[3]["prompt_ids"]
        expected = one_by_one(server, ids)
        for start in (0, 1, 20, len(ids) - 1):
            meta = generate(server, ids, start)
            told = meta["input_token_logprobs"]
            assert [entry[1] for entry in told] == ids[start:]
            if start == 0:
                assert told[0][0] is None and meta["input_top_logprobs"][0] is None
                told = told[1:]
            assert [entry[:2] for entry in told] == expected[max(start, 1) - 1:]
            assert len(meta["input_top_logprobs"]) == len(ids) - start
        assert generate(server, ids, len(ids) + 5)["input_token_logprobs"] == []
        assert generate(server, ids)["input_token_logprobs"] == []
        server.idle()


def test_they_survive_a_small_pool_and_other_ways(tmp_path):
    jobs = [SHORT[i]["prompt_ids"] + SHORT[i + 1]["prompt_ids"] for i in range(12)]
    with Server(write_pair(tmp_path / "roomy")) as server:
        expected = [generate(server, ids, 0)["input_token_logprobs"] for ids in jobs]
    settings = {"page_size": 16, "max_total_tokens": 320, "chunked_prefill_size": 16}
    for mode in ("active", "passive"):
        with Server(write_pair(tmp_path / mode, ae={"kv_transfer": mode}, settings=settings)) as server:
            sampling = {"sampling_params": {"temperature": 0, "max_new_tokens": 40, "ignore_eos": True}}
            for _ in range(2):  # and again, where the prefix is cached
                found = server.many(lambda ids: generate(server, ids, 0, **sampling), jobs)
                assert [meta["input_token_logprobs"] for meta in found] == expected
            server.idle()


def test_more_than_a_reply_may_hold_is_refused(tmp_path):
    settings = {"http_stream_buffer_mb": 0.0625}
    with Server(write_pair(tmp_path, separated=False, settings=settings)) as server:
        status, text = server.request("POST", "/generate", {
            "input_ids": LONG[0]["prompt_ids"], "return_logprob": True, "logprob_start_len": 0,
            "token_ids_logprob": list(range(1000)), "sampling_params": {"max_new_tokens": 1}})
        assert status == 400 and "prompts' logprobs must be at most 262144" in text
        body = {"model": "demo", "prompt": LONG[-1]["prompt_ids"], "max_tokens": 2, "echo": True,
                "logprobs": 20, "stream": True}
        status, text = server.request("POST", "/v1/completions", body)
        assert status == 200 and text.rstrip().endswith("[DONE]")


def test_an_echo_has_them_in_front(tmp_path):
    with Server(write_pair(tmp_path)) as server:
        ids = SHORT[0]["prompt_ids"]
        expected = generate(server, ids, 0)["input_token_logprobs"]
        body = {"model": "demo", "prompt": ids, "max_tokens": 4, "temperature": 0, "echo": True, "logprobs": 1}
        _, text = server.request("POST", "/v1/completions", body)
        choice = json.loads(text)["choices"][0]
        logprobs = choice["logprobs"]
        assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
        assert logprobs["token_logprobs"][:len(ids)] == [entry[0] for entry in expected]
        assert len(logprobs["tokens"]) == len(ids) + 4
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
            if not token.startswith("<") and "\ufffd" not in token:
                assert choice["text"][offset:].startswith(token), (token, offset)
        _, text = server.request("POST", "/v1/completions", body | {"stream": True})
        parts = [json.loads(line[6:])["choices"][0] for line in text.splitlines()
                 if line.startswith("data: {")]
        assert "".join(part["text"] for part in parts) == choice["text"]
        streamed = {key: sum((part["logprobs"][key] for part in parts if part["logprobs"]), [])
                    for key in logprobs}
        assert streamed == logprobs
