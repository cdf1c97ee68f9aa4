"""Tools, reasoning and logprobs with the real OpenAI client, against the server that repeats what it
is told: the user's words are the model's answer, markers of tool calls and reasoning too."""
import asyncio
import json

import openai
import pytest

from conftest import KEY

WEATHER = {"type": "function", "function": {
    "name": "weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}
NOW = {"type": "function", "function": {"name": "now"}}


def call(name, arguments):
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"


def calls(*all_calls):
    return "<｜tool▁calls▁begin｜>" + "".join(all_calls) + "<｜tool▁calls▁end｜>"


def say(client, text, **fields):
    return client.chat.completions.create(
        model="echo", messages=[{"role": "user", "content": text}], **fields)


def joined(stream):
    """The message that a stream's deltas make, and its finish reason."""
    content, reasoning, made, finish = "", "", [], None
    for chunk in stream:
        if not chunk.choices:
            continue
        delta = chunk.choices[0].delta
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
        for part in delta.tool_calls or []:
            if part.index == len(made):
                made.append([part.id, part.function.name, part.function.arguments])
            else:
                made[part.index][2] += part.function.arguments
        finish = chunk.choices[0].finish_reason or finish
    return content, reasoning, made, finish


def test_tools(echo):
    text = "Let me look.\n" + calls(call("weather", '{"city": "北京"}'), call("now", ""))
    reply = say(echo, text, tools=[WEATHER, NOW])
    choice = reply.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "Let me look."
    first, second = choice.message.tool_calls
    assert first.id.startswith("call_") and first.type == "function" and first.id != second.id
    assert first.function.name == "weather"
    assert json.loads(first.function.arguments) == {"city": "北京"}
    assert (second.function.name, second.function.arguments) == ("now", "{}")
    content, _, made, finish = joined(say(echo, text, tools=[WEATHER, NOW], stream=True))
    assert content == choice.message.content and finish == "tool_calls"
    assert [part[1:] for part in made] == [[c.function.name, c.function.arguments]
                                           for c in choice.message.tool_calls]


def test_a_tool_loop(echo):
    reply = say(echo, calls(call("weather", '{"city": "Rome"}')), tools=[WEATHER])
    message = reply.choices[0].message
    history = [{"role": "user", "content": "Rome?"}, message,
               {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"},
               {"role": "user", "content": "It is sunny."}]
    again = echo.chat.completions.create(model="echo", messages=history, tools=[WEATHER])
    assert again.choices[0].message.content == "It is sunny."


def test_unknown_tools_stay_text(echo):
    message = say(echo, calls(call("absent", "{}")), tools=[WEATHER]).choices[0].message
    assert message.tool_calls is None and message.content == "absent {}"


def test_tool_choice(echo):
    text = calls(call("now", "{}"))
    reply = say(echo, text, tools=[NOW], tool_choice="none")
    assert reply.choices[0].message.tool_calls is None
    assert reply.choices[0].finish_reason == "stop"
    for wrong in ({"tools": [NOW], "tool_choice": {"type": "function", "function": {"name": "x"}}},
                  {"tool_choice": "required"}):
        with pytest.raises(openai.BadRequestError) as error:
            say(echo, text, **wrong)
        assert error.value.param == "tool_choice"
    one = say(echo, calls(call("now", "{}"), call("now", "{}")), tools=[NOW],
              parallel_tool_calls=False)
    assert len(one.choices[0].message.tool_calls) == 1


def test_reasoning(echo):
    text, thinks = "why\n</think>\n\nso", {"chat_template_kwargs": {"thinking": True}}
    reply = say(echo, text, extra_body=thinks)
    assert reply.choices[0].message.reasoning_content == "why"
    assert reply.choices[0].message.content == "so"
    assert 0 < reply.usage.completion_tokens_details.reasoning_tokens < reply.usage.completion_tokens
    content, reasoning, _, _ = joined(say(echo, text, extra_body=thinks, stream=True))
    assert (content, reasoning) == ("so", "why")
    reply = say(echo, text, extra_body=thinks | {"separate_reasoning": False})
    assert reply.choices[0].message.content == text


def test_logprobs(echo):
    reply = say(echo, "One two 🦅", logprobs=True, top_logprobs=1)
    content = reply.choices[0].logprobs.content
    assert b"".join(bytes(token.bytes) for token in content[:-1]).decode() == "One two 🦅"
    assert content[0].logprob == -0.5 and content[0].top_logprobs[0].logprob == -0.5
    streamed = []
    for chunk in say(echo, "One two 🦅", logprobs=True, top_logprobs=1, stream=True):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert streamed == content


def test_fifty_at_a_time(echo_url):
    async def run():
        client = openai.AsyncOpenAI(base_url=echo_url + "/v1", api_key=KEY, max_retries=0)
        replies = await asyncio.gather(*[
            client.chat.completions.create(
                model="echo", messages=[{"role": "user", "content": f"number {i}"}])
            for i in range(50)])
        return [reply.choices[0].message.content for reply in replies]

    assert asyncio.run(run()) == [f"number {i}" for i in range(50)]
