"""Requests that are nearly right: each mutation of a good request is answered, never with a 5xx, and
the server serves on. AERIE_MUTATIONS is how many there are; the seed is in the failure's text."""
import copy
import http.client
import json
import os
import random
import urllib.parse

import pytest

from conftest import KEY, request

COUNT = int(os.environ.get("AERIE_MUTATIONS", "2000"))
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CHAT = [{"role": "system", "content": "s"}, {"role": "user", "content": [{"type": "text", "text": "a"}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}]},
        {"role": "tool", "tool_call_id": "1", "content": "r"}, {"role": "user", "content": "b <think>"}]
GOOD = {
    "/v1/chat/completions": {
        "messages": CHAT, "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "n": 2, "stop": ["x"],
        "seed": 1, "tools": [TOOL], "tool_choice": "auto", "logprobs": True, "top_logprobs": 2,
        "logit_bias": {"5": 1}, "frequency_penalty": 0.5, "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"thinking": True}, "stop_regex": "a+b", "stream": True},
    "/v1/completions": {"prompt": ["a", "b"], "max_tokens": 5, "echo": True, "stop_token_ids": [7],
                        "min_tokens": 1, "repetition_penalty": 1.1, "logprobs": None},
    "/generate": {"input_ids": [[5, 6], [7]], "return_logprob": True, "top_logprobs_num": 1,
                  "token_ids_logprob": [3], "sampling_params": {"max_new_tokens": 3, "n": 1}},
    "/v1/messages": {
        "model": "m", "max_tokens": 5, "system": [{"type": "text", "text": "s"}],
        "messages": [{"role": "user", "content": "a"},
                     {"role": "assistant", "content": [
                         {"type": "thinking", "thinking": "t", "signature": "s"},
                         {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}}]},
                     {"role": "user", "content": [
                         {"type": "tool_result", "tool_use_id": "1", "content": "r"}]}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}], "stop_sequences": ["x"],
        "thinking": {"type": "enabled", "budget_tokens": 1024}, "tool_choice": {"type": "auto"}},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/responses": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]},
                  {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "1", "output": "r"}],
        "instructions": "i", "max_output_tokens": 5, "tools": [{"type": "function", "name": "f"}],
        "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}}, "stream": True},
    "/tokenize": {"messages": CHAT, "add_special_tokens": True},
    "/detokenize": {"tokens": [5, 6], "skip_special_tokens": False},
    "/parse_function_call": {"text": "<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}", "tools": [TOOL]},
    "/separate_reasoning": {"text": "a</think>b", "reasoning_parser": "deepseek-r1"},
}
WEIRD = [None, True, False, 0, -1, 1, 3.5, 1e308, -1e-320, 2**31, 2**63, 2**64, -2**63, 10**400, "", "x",
         "\x00", "\ud800", "�", "<｜Assistant｜>", "a" * 3000, "🦅" * 500, [], {}, [[]], {"": None},
         float("nan"), float("inf"), [None], {"type": "text"}, ["a", 1], "(" * 50, "(a+)+$", "auto"]


def places(value, path=()):
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, path + (key,))


def mutated(good, rng):
    """The bytes of a body that differs from a good one in one to three places."""
    body = json.loads(json.dumps(good))
    for _ in range(rng.randint(1, 3)):
        path = rng.choice(list(places(body)))
        if not path:
            continue
        holder = body
        for key in path[:-1]:
            holder = holder[key]
        if rng.random() < 0.2:
            del holder[path[-1]]
        elif rng.random() < 0.1:
            holder[path[-1]] = [copy.deepcopy(holder[path[-1]])] * rng.choice([2, 300])
        else:
            holder[path[-1]] = copy.deepcopy(rng.choice(WEIRD))
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.25:  # then in bytes
        data = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            choice = rng.random()
            if choice < 0.4:
                data[at] = rng.randrange(256)
            elif choice < 0.7:
                del data[at:at + rng.randint(1, 20)]
            else:
                data[at:at] = rng.choice([b"[" * 500, b"{", b"\xff", b"\x00", b"1e999", b",,", b"\\u"])
            if not data:
                break
        data = bytes(data)
    return data


@pytest.mark.parametrize("path", sorted(GOOD))
def test_mutated_requests_are_answered(echo_url, path):
    where = urllib.parse.urlsplit(echo_url)
    connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    assert request(echo_url, "POST", path, json.dumps(GOOD[path]))[0] == 200
    for seed in range(COUNT // len(GOOD)):
        body = mutated(GOOD[path], random.Random(f"{path} {seed}"))
        connection.request("POST", path, body, headers)
        reply = connection.getresponse()
        text = reply.read()
        assert reply.status < 500, f"seed {seed}: {reply.status} {text[:300]} to {body[:1000]}"
        if reply.status == 200 and b"text/event-stream" not in reply.headers["Content-Type"].encode():
            json.loads(text)  # valid JSON: no NaN, no broken UTF-8
            assert b"NaN" not in text and b"Infinity" not in text
    connection.close()
    assert request(echo_url, "GET", "/health")[0] == 200
