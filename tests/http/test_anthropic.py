"""The real Anthropic client: against the model where any answer will do, else against the server that
repeats what it is told."""
import anthropic
import pytest

from conftest import KEY, URL, anthropic_client, request
from test_formats import call, calls

WEATHER = {"name": "weather", "description": "The weather of a city",
           "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
THINKS = {"type": "enabled", "budget_tokens": 2000}


@pytest.fixture(scope="module")
def client():
    return anthropic_client(URL)


@pytest.fixture(scope="module")
def echo(echo_url):
    return anthropic_client(echo_url)


def say(client, text, **fields):
    return client.messages.create(
        **({"model": "m", "max_tokens": 200, "messages": [{"role": "user", "content": text}]} | fields))


def test_message_of_the_model(client):
    message = say(client, "What is a mixture-of-experts model?", max_tokens=24, temperature=0)
    assert message.id.startswith("msg_") and message.role == "assistant"
    assert message.content[0].type == "text" and message.content[0].text
    assert message.stop_reason in ("end_turn", "max_tokens")
    assert 0 < message.usage.output_tokens <= 24
    with client.messages.stream(
            model="m", max_tokens=24, temperature=0,
            messages=[{"role": "user", "content": "What is a mixture-of-experts model?"}]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == message.content[0].text
    assert final.stop_reason == message.stop_reason
    assert final.usage.output_tokens == message.usage.output_tokens


def test_count_tokens(client):
    messages = [{"role": "user", "content": "One two three"}]
    count = client.messages.count_tokens(model="m", messages=messages, system="Be brief",
                                         tools=[WEATHER])
    message = client.messages.create(model="m", max_tokens=1, messages=messages, system="Be brief",
                                     tools=[WEATHER])
    usage = message.usage
    assert count.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


def test_max_tokens_is_clamped(client):
    assert say(client, "Hi", max_tokens=10_000_000, stop_sequences=["e", "a", "."]).content is not None


def test_blocks(echo):
    text = "why\n</think>\n\nLet me look.\n" + calls(call("weather", '{"city": "北京"}'))
    message = say(echo, text, tools=[WEATHER], thinking=THINKS)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[0].thinking == "why" and message.content[1].text == "Let me look."
    assert message.content[2].input == {"city": "北京"} and message.content[2].name == "weather"
    assert message.stop_reason == "tool_use"
    with echo.messages.stream(model="m", max_tokens=200, tools=[WEATHER], thinking=THINKS,
                              messages=[{"role": "user", "content": text}]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert [block.type for block in final.content] == ["thinking", "text", "tool_use"]
    assert final.content[0].thinking == "why" and final.content[1].text == "Let me look."
    assert final.content[2].input == {"city": "北京"}
    assert final.stop_reason == "tool_use"


def test_a_tool_loop(echo):
    first = say(echo, calls(call("weather", '{"city": "Rome"}')), tools=[WEATHER])
    message = say(echo, "", tools=[WEATHER], messages=[
        {"role": "user", "content": "Rome?"},
        {"role": "assistant", "content": first.content},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": first.content[0].id, "is_error": True,
             "content": [{"type": "text", "text": "no such city"}]},
            {"type": "text", "text": "It is sunny."}]}])
    assert message.content[0].text == "It is sunny."


def test_stop_sequence(echo):
    message = say(echo, "one two STOP three", stop_sequences=["STOP"])
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == "STOP"
    assert message.content[0].text == "one two "


def test_errors(client):
    with pytest.raises(anthropic.BadRequestError) as error:
        say(client, "Hi", max_tokens=0)
    assert error.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.BadRequestError):
        say(client, "Hi", tool_choice={"type": "any"})
    with pytest.raises(anthropic.NotFoundError):
        client.messages.batches.list()


def test_probes():
    assert request(URL, "HEAD", "/")[0] == 200
    assert request(URL, "GET", "/v1/models", headers={"x-api-key": KEY})[0] == 200
