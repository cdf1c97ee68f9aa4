"""With MTP every reply is what it is without: text, reasons, logprobs, usage, each stream's sum."""
import json
import os
import re
import signal

import pytest

from harness import MODEL, Server, goldens, write_pair

SHORT, LONG = goldens()
DRAFTS = {"enable_mtp": True, "mtp_num_steps": 3}


def chat(server, content, **fields):
    status, text = server.request("POST", "/v1/chat/completions", {
        "messages": [{"role": "user", "content": content}], "temperature": 0, "max_tokens": 40} | fields)
    assert status == 200, f"{status} {text}\n{server.tail()}"
    return text


def streamed(text):
    """The choices of a stream, put together."""
    choices = {}
    for line in text.splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            whole = choices.setdefault(choice["index"], {"content": "", "reason": None, "logprobs": []})
            whole["content"] += choice["delta"].get("content") or ""
            whole["reason"] = choice["finish_reason"] or whole["reason"]
            whole["logprobs"] += ((choice.get("logprobs") or {}).get("content") or [])
    return choices


CASES = [
    {},
    {"stop": ["。"]},
    {"stop": ["，", "专家"], "max_tokens": 60},
    {"stop_regex": "[，。]", "max_tokens": 60},
    {"max_tokens": 1},
    {"max_tokens": 2},
    {"min_tokens": 12, "max_tokens": 14, "ignore_eos": True},
    {"logprobs": True, "top_logprobs": 2, "max_tokens": 20},
    {"temperature": 0.9, "seed": 7, "n": 3},
    {"temperature": 1.0, "seed": 8, "frequency_penalty": 0.7, "presence_penalty": 0.2},
    {"temperature": 0.8, "seed": 9, "top_p": 0.9, "logit_bias": {"300": 4, "400": -100}},
    {"max_tokens": 200, "ignore_eos": True},
]
QUESTIONS = ["用一句话解释 MoE 架构", "What is attention?"]


def largest(server, name):
    """Of the replicas that have decoded."""
    return max(value for (metric, _), value in server.metrics().items() if metric == name)


def replies(server):
    found = []
    for question in QUESTIONS:
        for case in CASES:
            body = json.loads(chat(server, question, **case))
            stream = streamed(chat(server, question, stream=True, **case))
            whole = {choice["index"]: {"content": choice["message"]["content"] or "",
                                       "reason": choice["finish_reason"],
                                       "logprobs": ((choice.get("logprobs") or {}).get("content") or [])}
                     for choice in body["choices"]}
            assert stream == whole, case
            found.append((whole, body["usage"]["completion_tokens"], body["usage"]["prompt_tokens"]))
    return found


@pytest.mark.parametrize("separated", [True, False])
def test_replies_are_those_without_mtp(tmp_path, separated):
    with Server(write_pair(tmp_path / "plain", separated=separated)) as server:
        plain = replies(server)
        server.idle()
        assert largest(server, "sglang:spec_accept_length") == 1
    with Server(write_pair(tmp_path / "mtp", separated=separated, settings=DRAFTS)) as server:
        assert replies(server) == plain
        assert largest(server, "sglang:spec_accept_length") > 1.1
        assert largest(server, "sglang:spec_accept_rate") > 0.2
        assert largest(server, "sglang:ae_sep_mtp_num_steps") > 0.3
        jobs = [(g["prompt_ids"], len(g["output_ids"])) for g in SHORT + LONG[:1]]
        assert ([tokens for tokens, _ in server.many(lambda job: server.hashes(*job), jobs)]
                == server.many(lambda job: server.tokens(*job), jobs))
        server.idle()


def test_the_experts_of_the_mtp_layer_are_loaded_by_expert_hosts(tmp_path):
    def loaded(server):
        """Gigabytes of each expert rank."""
        return [float(found) for found in
                re.findall(r"experts 0\.\.31: weights loaded .*: ([\d.]+) GB", server.output())]
    with Server(write_pair(tmp_path / "plain")) as server:
        plain = loaded(server)
    with Server(write_pair(tmp_path / "mtp", settings=DRAFTS)) as server:
        mtp = loaded(server)
        tokens = server.tokens(SHORT[0]["prompt_ids"], 8)
        assert len(tokens) == 8
        # 576 values of 2 bytes for each prompt token, of the 6 layers and the MTP layer.
        expected = len(SHORT[0]["prompt_ids"]) * 1152 * 7
        assert server.metric("sglang:ae_sep_kv_transfer_bytes") == expected
    assert len(plain) == len(mtp) == 1
    assert mtp[0] > 1.15 * plain[0], "the MTP layer's experts are missing"  # 6 MoE layers for 5


def test_a_checkpoint_without_the_layer_is_refused(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json", "model.safetensors.index.json",
                 "generation_config.json", "model-00001-of-00003.safetensors",
                 "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"):
        (model / file).symlink_to(f"{MODEL}/{file}")
    config = json.loads(open(MODEL + "/config.json").read()) | {"num_nextn_predict_layers": 0}
    (model / "config.json").write_text(json.dumps(config))
    server = Server(write_pair(tmp_path / "pair", settings=DRAFTS), "--model-path", str(model), wait=False)
    assert server.process.wait(20) == 2
    assert "model has no MTP layer" in server.output()


def test_kill_of_an_expert_host_while_drafting_changes_nothing(tmp_path):
    jobs = [(g["prompt_ids"], len(g["output_ids"])) for g in SHORT] * 4
    with Server(write_pair(tmp_path, settings=DRAFTS)) as server:
        expected = server.many(lambda job: server.tokens(*job), jobs[:16]) * 4
        experts = max(server.hosts())
        futures = [server.pool.submit(server.tokens, *job) for job in jobs]
        os.kill(server.hosts()[experts], signal.SIGKILL)
        assert [future.result() for future in futures] == expected
        server.idle()
