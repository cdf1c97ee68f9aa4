"""The real OpenAI client against a running server.

AERIE_URL names it (http://127.0.0.1:30000); AERIE_API_KEY is its key, where it has one. The answers
are not compared with a golden: what is tested is that the client understands every reply."""
import json
import socket
import time
import urllib.parse

import openai
import pytest

from conftest import KEY, URL, openai_client, request

HELLO = [{"role": "user", "content": "What is a mixture-of-experts model?"}]


@pytest.fixture(scope="module")
def client():
    return openai_client(URL)


@pytest.fixture(scope="module")
def model(client):
    return client.models.list().data[0].id


def chat(client, model, **fields):
    return client.chat.completions.create(
        **({"model": model, "messages": HELLO, "max_tokens": 24, "temperature": 0} | fields))


def raw(method, path, body=None, headers=None):
    return request(URL, method, path, body, headers)


def test_models(client, model):
    assert client.models.retrieve(model).id == model
    with pytest.raises(openai.NotFoundError) as error:
        client.models.retrieve("absent")
    assert error.value.code == "model_not_found"


def test_chat(client, model):
    reply = chat(client, model)
    choice = reply.choices[0]
    assert reply.object == "chat.completion" and reply.id.startswith("chatcmpl-")
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    assert reply.usage.completion_tokens <= 24
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens


def test_stream_equals_whole(client, model):
    whole = chat(client, model)
    text, roles, ends, usage = "", 0, [], None
    for chunk in chat(client, model, stream=True, stream_options={"include_usage": True}):
        if not chunk.choices:
            usage = chunk.usage
            continue
        delta = chunk.choices[0].delta
        roles += delta.role == "assistant"
        text += delta.content or ""
        if chunk.choices[0].finish_reason:
            ends.append(chunk.choices[0].finish_reason)
    assert text == whole.choices[0].message.content
    assert roles == 1 and ends == [whole.choices[0].finish_reason]
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_choices(client, model):
    reply = chat(client, model, n=3, temperature=1.5, seed=1)
    assert [c.index for c in reply.choices] == [0, 1, 2]
    again = chat(client, model, n=3, temperature=1.5, seed=1)
    assert [c.message.content for c in reply.choices] == [c.message.content for c in again.choices]
    texts = {0: "", 1: "", 2: ""}
    for chunk in chat(client, model, n=3, temperature=1.5, seed=1, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {c.index: c.message.content for c in reply.choices}


def test_stop(client, model):
    text = chat(client, model, max_tokens=40).choices[0].message.content
    middle = text[len(text) // 2:len(text) // 2 + 3]
    reply = chat(client, model, max_tokens=40, stop=[middle, "\0never"])
    assert reply.choices[0].finish_reason == "stop"
    assert reply.choices[0].message.content == text[:text.index(middle)]
    assert reply.choices[0].matched_stop == middle
    streamed = "".join(c.choices[0].delta.content or ""
                       for c in chat(client, model, max_tokens=40, stop=middle, stream=True))
    assert streamed == reply.choices[0].message.content


def test_length(client, model):
    reply = chat(client, model, max_tokens=3, extra_body={"ignore_eos": True})
    assert reply.choices[0].finish_reason == "length" and reply.usage.completion_tokens == 3


def test_completions(client, model):
    reply = client.completions.create(model=model, prompt=["One two", "Three"], max_tokens=5, n=2,
                                      temperature=0, echo=True)
    assert [c.index for c in reply.choices] == [0, 1, 2, 3]
    assert all(c.text.startswith("One two") for c in reply.choices[:2])
    assert all(c.text.startswith("Three") for c in reply.choices[2:])
    whole = client.completions.create(model=model, prompt=[5, 6, 7], max_tokens=8, temperature=0)
    parts = client.completions.create(model=model, prompt=[5, 6, 7], max_tokens=8, temperature=0,
                                      stream=True)
    assert "".join(p.choices[0].text for p in parts) == whole.choices[0].text


@pytest.mark.parametrize("fields, param", [
    ({"temperature": -1}, "temperature"), ({"top_p": 0}, "top_p"), ({"n": 0}, "n"),
    ({"messages": []}, "messages"), ({"max_tokens": 0}, "max_tokens"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"max_tokens": 10_000_000}, "max_tokens")])
def test_bad_requests(client, model, fields, param):
    with pytest.raises(openai.BadRequestError) as error:
        chat(client, model, **fields)
    assert error.value.param == param
    assert error.value.body["message"]


def test_paths_and_bodies():
    status, _, text = raw("GET", "/v1/chat/completion")
    assert status == 404 and "/v1/chat/completions" in json.loads(text)["error"]["message"]
    status, headers, _ = raw("GET", "/v1/chat/completions")
    assert status == 405 and "POST" in headers["Allow"]
    assert raw("POST", "/v1/chat/completions", "{}", {"Content-Type": "text/plain"})[0] == 415
    status, _, text = raw("POST", "/v1/chat/completions", '{"messages": oops}')
    assert status == 400 and "byte" in json.loads(text)["message"]


def test_a_client_that_ends_its_side():
    where = urllib.parse.urlsplit(URL)
    body = json.dumps({"prompt": "One two", "max_tokens": 8, "ignore_eos": True})
    with socket.create_connection((where.hostname, where.port), timeout=60) as half:
        half.sendall((f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
                      f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                      + body).encode())
        half.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: half.recv(4096), b""))
    assert b"HTTP/1.1 200 OK" in answer and b'"finish_reason":"length"' in answer


def test_document():
    document = json.loads(raw("GET", "/openapi.json")[2])
    assert "post" in document["paths"]["/v1/chat/completions"]
    assert "/v1/messages" in raw("GET", "/docs")[2]


def test_logprobs(client, model):
    reply = chat(client, model, max_tokens=4, logprobs=True, top_logprobs=3)
    content = reply.choices[0].logprobs.content
    assert len(content) == reply.usage.completion_tokens
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 3 for token in content)
    assert all(token.token == token.top_logprobs[0].token for token in content)  # greedy


def test_health_and_metrics():
    begin = time.time()
    assert raw("GET", "/health")[0] == 200
    assert time.time() - begin < 5  # it asks no model
    status, _, text = raw("GET", "/metrics")
    assert status == 200 and "sglang:num_requests_total" in text


def test_a_client_that_leaves(client, model):
    where = urllib.parse.urlsplit(URL)

    def aborted():
        return sum(float(line.split()[-1]) for line in raw("GET", "/metrics")[2].splitlines()
                   if line.startswith("sglang:num_aborted_requests_total"))

    before = aborted()
    body = json.dumps({"messages": HELLO, "max_tokens": 2000, "ignore_eos": True, "stream": True})
    with socket.create_connection((where.hostname, where.port)) as leaver:
        leaver.sendall((f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}"
                        f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
                        + body).encode())
        assert leaver.recv(100)
    deadline = time.time() + 20
    while aborted() == before and time.time() < deadline:
        time.sleep(0.1)
    assert aborted() == before + 1
