"""SGLang's native API against the model."""
import json

import pytest

from conftest import URL, request


def generate(**body):
    status, _, text = request(URL, "POST", "/generate", json.dumps(body))
    return status, text


def answer(**body):
    status, text = generate(**body)
    assert status == 200, text
    return json.loads(text)


def test_stream_equals_whole():
    body = {"text": "The history of", "return_logprob": True, "top_logprobs_num": 2,
            "sampling_params": {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}}
    whole = answer(**body)
    meta = whole["meta_info"]
    assert meta["completion_tokens"] == 12 == len(whole["output_ids"])
    assert meta["finish_reason"] == {"type": "length", "length": 12}
    status, text = generate(**body, stream=True)
    assert status == 200
    events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    last = json.loads(events[-2])
    assert last["text"] == whole["text"] and last["output_ids"] == whole["output_ids"]
    assert last["meta_info"]["output_token_logprobs"] == meta["output_token_logprobs"]
    # Greedy: each token is the most probable one, and what is told of it agrees.
    for (logprob, token, _), top in zip(meta["output_token_logprobs"], meta["output_top_logprobs"]):
        assert (top[0][0], top[0][1]) == (logprob, token) and top[0][0] >= top[1][0]


def test_penalties_change_what_is_said():
    params = {"max_new_tokens": 40, "temperature": 0, "ignore_eos": True}
    plain = answer(text="a a a a a a", sampling_params=params)["output_ids"]
    once = answer(text="a a a a a a",
                  sampling_params=params | {"frequency_penalty": 2, "presence_penalty": 2,
                                            "repetition_penalty": 2})["output_ids"]
    assert len(set(once)) > len(set(plain)) or len(set(plain)) == len(plain)
    # Decode counts the tokens before, the first too: the two that the bias leaves take turns.
    biased = params | {"max_new_tokens": 40, "logit_bias": {"1000": 100, "1001": 100}}
    assert len(set(answer(text="x", sampling_params=biased)["output_ids"]) - {1000, 1001}) == 0
    turns = answer(text="x", sampling_params=biased | {"frequency_penalty": 2})["output_ids"]
    assert set(turns) == {1000, 1001}


def test_a_batch():
    replies = answer(text=["One", "Two"], sampling_params={"max_new_tokens": 3, "ignore_eos": True})
    assert [len(reply["output_ids"]) for reply in replies] == [3, 3]


@pytest.mark.parametrize("body", [{}, {"text": 5}, {"text": "x", "sampling_params": {"top_p": 0}}])
def test_errors(body):
    status, text = generate(**body)
    assert status == 400 and json.loads(text)["error"]["message"]
