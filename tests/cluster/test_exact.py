"""Host processes give what hosts in one process give, and what the goldens say."""
import pytest

from harness import Server, goldens, write_pair

SHORT, LONG = goldens()


def all_hashes(server):
    """Tokens and logits hashes of the goldens and of 20 sampled requests, 16 at a time."""
    jobs = [(g["prompt_ids"], len(g["output_ids"]), {}) for g in SHORT + LONG]
    jobs += [(SHORT[seed % 16]["prompt_ids"], 24,
              {"temperature": 0.9, "top_p": 0.95, "seed": seed, "ignore_eos": True})
             for seed in range(20)]
    return server.many(lambda job: server.hashes(job[0], job[1], **job[2]), jobs)


def test_processes_equal_one_process_and_colocated(tmp_path):
    separated, colocated = write_pair(tmp_path / "s"), write_pair(tmp_path / "c", separated=False)
    with Server(separated, "--in-process") as server:
        in_process = all_hashes(server)
    with Server(separated) as server:
        assert all_hashes(server) == in_process
        server.idle()
    with Server(colocated) as server:
        assert all_hashes(server) == in_process


@pytest.mark.parametrize("fault", ["expert_dropped", "kv_block_zeroed", "combine_lost",
                                   "rounding_moved"])
def test_a_planted_fault_is_seen(tmp_path, fault):
    pair = write_pair(tmp_path)
    jobs = [(g["prompt_ids"], len(g["output_ids"])) for g in SHORT]
    with Server(pair) as server:
        right = server.many(lambda job: server.hashes(*job), jobs)
    with Server(pair, env={"AERIE_TEST_FAULT": fault}) as server:
        assert server.many(lambda job: server.hashes(*job), jobs) != right


def golden_tokens(server, cases):
    return server.many(lambda g: server.tokens(g["prompt_ids"], len(g["output_ids"])), cases)


@pytest.mark.parametrize("separated", [True, False])
def test_float32_gives_every_golden_token(tmp_path, separated):
    pair = write_pair(tmp_path, separated=separated, model={"dtype": "float32"})
    with Server(pair) as server:
        for case, tokens in zip(SHORT + LONG, golden_tokens(server, SHORT + LONG)):
            assert tokens == case["output_ids"]


def fed(case):
    """One request for each output token, with the golden prefix before it."""
    ids = case["prompt_ids"] + case["output_ids"]
    return [(ids[:n], ids[n]) for n in range(len(case["prompt_ids"]), len(ids))]


def test_bfloat16_gives_the_golden_tokens_when_fed_the_golden_prefix(tmp_path):
    with Server(write_pair(tmp_path)) as server:
        jobs = [job for case in SHORT for job in fed(case)]
        right = sum(server.many(lambda job: server.tokens(job[0], 1, ignore_eos=True) == [job[1]], jobs))
        assert len(jobs) == 336 and right >= 334, f"{right} of {len(jobs)}"
        for case in LONG:
            for prefix, token in fed(case):
                assert server.tokens(prefix, 1, ignore_eos=True) == [token]


def test_prefill_that_is_not_absorbed_gives_the_golden_answers(tmp_path):
    """It rounds differently, so it is held to the goldens."""
    expanded = {"enable_deterministic_inference": False}
    f32 = write_pair(tmp_path / "f32", model={"dtype": "float32"}, settings=expanded)
    bf16 = write_pair(tmp_path / "bf16", settings=expanded)
    with Server(f32) as server:
        for case, tokens in zip(SHORT + LONG, golden_tokens(server, SHORT + LONG)):
            assert tokens == case["output_ids"]
    jobs = [(g["prompt_ids"], 1) for g in LONG]
    with Server(bf16) as server:
        hashes = server.many(lambda job: server.hashes(*job), jobs)
        for case in LONG:
            for prefix, token in fed(case):
                assert server.tokens(prefix, 1, ignore_eos=True) == [token]
    with Server(write_pair(tmp_path / "absorbed")) as server:
        assert server.many(lambda job: server.hashes(*job), jobs) != hashes, "absorbed ran"


# (name, keys of write_pair)
LAYOUTS = [
    ("tp 2", dict(cards=2, tp=2, ep=2)),
    ("tp 4", dict(cards=4, tp=4, ep=4)),
    ("cp 2", dict(cards=2, cp=2, ep=2)),
    ("tp 2, cp 2, ep 2 × expert_dp 2", dict(cards=4, tp=2, cp=2, ep=2, expert_dp=2)),
    ("ep 3", dict(nodes=3, cards=3, dp=3, ep=3)),
    ("ep 8, 2 P replicas", dict(cards=8, tp=4, dp=2, ep=8)),
    ("P tp 2, D tp 1 cp 2", dict(cards=2, tp=2, ep=2, ae={"decode_tp": 1, "decode_cp": 2})),
    ("one attention role, experts apart", dict(nodes=2, attention=("node-0",), decode=("node-1",))),
    ("off, 2 replicas of tp 2", dict(separated=False, nodes=1, cards=4, tp=2, ep=2)),
    ("off, 2 nodes, one expert copy over both", dict(separated=False, nodes=2, cards=2, ep=4)),
    ("D and E share cards", dict(nodes=2, cards=2, tp=2, ep=2, attention=None, decode=("node-1",))),
]


@pytest.mark.parametrize("name,keys", LAYOUTS, ids=[name for name, _ in LAYOUTS])
def test_layouts(tmp_path, name, keys):
    with Server(write_pair(tmp_path / "f32", model={"dtype": "float32"}, **keys)) as server:
        for case, tokens in zip(SHORT + LONG[:2], golden_tokens(server, SHORT + LONG[:2])):
            assert tokens == case["output_ids"]
        server.idle()
    with Server(write_pair(tmp_path / "bf16", **keys)) as server:
        jobs = [job for case in SHORT for job in fed(case)]
        right = sum(server.many(lambda job: server.tokens(job[0], 1, ignore_eos=True) == [job[1]], jobs))
        assert right >= 0.98 * len(jobs), f"{right} of {len(jobs)}"
