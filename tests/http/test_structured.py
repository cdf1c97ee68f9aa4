"""Structured output: the real clients against a server with a model. What it says is nonsense, and yet
obeys."""
import json
import re
from typing import Literal

import anthropic
import openai
import pydantic
import pytest

from conftest import URL, anthropic_client, openai_client, request

HELLO = [{"role": "user", "content": "Who are you?"}]
WEATHER = {"type": "function", "function": {
    "name": "weather", "parameters": {
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]},
                                         "days": {"type": "integer"}},
        "required": ["city", "days"], "additionalProperties": False}}}
NOW = {"type": "function", "function": {"name": "now", "parameters": {
    "type": "object", "properties": {}, "additionalProperties": False}}}


class Part(pydantic.BaseModel):
    kind: Literal["bolt", "nut"]
    sizes: list[Literal[1, 2, 3]] = pydantic.Field(max_length=3)


class Order(pydantic.BaseModel):
    first: Part
    urgent: bool


@pytest.fixture(scope="module")
def client():
    return openai_client(URL)


@pytest.fixture(scope="module")
def claude():
    return anthropic_client(URL)


def say(client, **fields):
    return client.chat.completions.create(
        **({"model": "m", "messages": HELLO, "max_tokens": 100, "temperature": 0} | fields))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_parse_with_a_pydantic_model(client, seed):
    reply = client.chat.completions.parse(
        model="m", messages=HELLO, response_format=Order, temperature=1, seed=seed, max_tokens=400)
    assert isinstance(reply.choices[0].message.parsed, Order)
    assert reply.choices[0].finish_reason == "stop"


def test_a_stream_is_the_same(client):
    fields = {"extra_body": {"regex": "[a-z]{5,20}( [a-z]{5,20}){3}"}, "temperature": 1, "seed": 5}
    whole = say(client, **fields).choices[0].message.content
    assert re.fullmatch("[a-z]{5,20}( [a-z]{5,20}){3}", whole)
    parts = [chunk.choices[0].delta.content or "" for chunk in say(client, stream=True, **fields)]
    assert "".join(parts) == whole


def test_every_way_to_say_it(client):
    schema = {"enum": ["yes", "no"]}
    for fields, pattern in (
            ({"response_format": {"type": "json_schema",
                                  "json_schema": {"name": "answer", "schema": schema}}}, '"(yes|no)"'),
            ({"extra_body": {"json_schema": json.dumps(schema)}}, '"(yes|no)"'),
            ({"extra_body": {"ebnf": 'root ::= "yes" | "no"'}}, "yes|no"),
            ({"extra_body": {"structural_tag": {"type": "structural_tag", "format": {
                "type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "[0-9]{2}"},
                "end": "</a>"}}}}, "<a>[0-9]{2}</a>"),
            ({"response_format": {"type": "json_object"}}, r"\{[\s\S]*")):
        content = say(client, **fields).choices[0].message.content
        assert re.fullmatch(pattern, content), (fields, content)
    native = json.loads(request(URL, "POST", "/generate", json.dumps(
        {"text": "Hi", "sampling_params": {"regex": "[0-9]{3}", "max_new_tokens": 20}}))[2])
    assert re.fullmatch("[0-9]{3}", native["text"])
    assert native["meta_info"]["finish_reason"]["type"] == "stop"
    made = client.responses.create(model="m", input="Hi", text={"format": {
        "type": "json_schema", "name": "answer", "schema": schema}})
    assert made.output_text in ('"yes"', '"no"')


def test_a_tool_must_be_called(client):
    for choice, names in (("required", {"weather", "now"}),
                          ({"type": "function", "function": {"name": "weather"}}, {"weather"})):
        reply = say(client, tools=[WEATHER, NOW], tool_choice=choice, parallel_tool_calls=False)
        message = reply.choices[0].message
        assert reply.choices[0].finish_reason == "tool_calls" and not message.content
        call, = message.tool_calls
        assert call.function.name in names
        arguments = json.loads(call.function.arguments)
        if call.function.name == "weather":
            assert arguments["city"] in ("Rome", "Oslo") and isinstance(arguments["days"], int)
        else:
            assert arguments == {}


def test_with_reasoning_it_begins_behind_it(client):
    thinks = {"chat_template_kwargs": {"thinking": True}, "regex": "[0-9]{4}"}
    think_end = json.loads(request(URL, "POST", "/tokenize", json.dumps(
        {"prompt": "</think>", "add_special_tokens": False}))[2])["tokens"]
    message = say(client, extra_body=thinks, logit_bias={think_end[-1]: 100}).choices[0].message
    assert re.fullmatch("[0-9]{4}", message.content)
    # Where it never ends there is no content, and no end of the answer but the limit.
    reply = say(client, extra_body=thinks, logit_bias={think_end[-1]: -100}, max_tokens=30)
    assert not reply.choices[0].message.content and reply.choices[0].finish_reason == "length"


def test_anthropic(claude):
    tools = [{"name": tool["function"]["name"], "input_schema": tool["function"]["parameters"]}
             for tool in (WEATHER, NOW)]
    for choice, names in (({"type": "any", "disable_parallel_tool_use": True}, {"weather", "now"}),
                          ({"type": "tool", "name": "weather"}, {"weather"})):
        message = claude.messages.create(model="m", max_tokens=100, temperature=0, messages=HELLO,
                                         tools=tools, tool_choice=choice)
        block, = message.content
        assert message.stop_reason == "tool_use" and block.type == "tool_use" and block.name in names


def test_a_bad_grammar_is_refused(client, claude):
    for fields, param in (
            ({"extra_body": {"regex": "("}}, "regex"),
            ({"extra_body": {"regex": "a\0b"}}, "regex"),
            ({"extra_body": {"ebnf": "root ::= missing"}}, "ebnf"),
            ({"extra_body": {"regex": "(" * 5000 + "a" + ")" * 5000}}, "regex"),
            ({"extra_body": {"json_schema": {"anyOf": [{"const": i} for i in range(5000)]}}},
             "json_schema"),
            ({"response_format": {"type": "json_schema", "json_schema": {
                "name": "a", "schema": {"$ref": "#/$defs/missing"}}}}, "response_format"),
            ({"extra_body": {"regex": "a", "ebnf": 'root ::= "a"'}}, "ebnf")):
        with pytest.raises(openai.BadRequestError) as error:
            say(client, **fields)
        assert error.value.param == param
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="m", max_tokens=9, messages=HELLO, tool_choice={"type": "any"})
