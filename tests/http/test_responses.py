"""The Responses API with the real OpenAI client, against the server that repeats what it is told."""
import json

import openai
import pytest

from test_formats import call, calls

WEATHER = {"type": "function", "name": "weather", "strict": False,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


def test_text(echo):
    response = echo.responses.create(model="m", input="One two 🦅", instructions="Be kind")
    assert response.output_text == "One two 🦅" and response.status == "completed"
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    with echo.responses.stream(model="m", input="One two 🦅") as stream:
        text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == response.output_text == final.output_text


def test_tools_and_conversation(echo):
    text = "Look.\n" + calls(call("weather", '{"city": "Rome"}'))
    first = echo.responses.create(model="m", input=text, tools=[WEATHER])
    message, made = first.output
    assert message.content[0].text == "Look." and made.name == "weather"
    assert json.loads(made.arguments) == {"city": "Rome"}
    with echo.responses.stream(model="m", input=text, tools=[WEATHER]) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output[1].arguments == made.arguments
    again = echo.responses.create(model="m", previous_response_id=first.id, tools=[WEATHER], input=[
        {"type": "function_call_output", "call_id": made.call_id, "output": "sunny"},
        {"role": "user", "content": "It is sunny."}])
    assert again.output_text == "It is sunny." and again.previous_response_id == first.id


def test_limit_and_errors(echo):
    response = echo.responses.create(model="m", input="One two three four", max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    with pytest.raises(openai.NotFoundError):
        echo.responses.create(model="m", input="x", previous_response_id="resp_0")
    with pytest.raises(openai.BadRequestError):
        echo.responses.create(model="m", input="x", tools=[{"type": "web_search_preview"}])
