"""The inputs of the comparisons with Python: texts, token ids, conversations and template snippets.
All of it is the same in every run."""
import itertools
import json
import random
import unicodedata
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TOKENIZERS = {"demo": Path("models/demo"), "deepseek_v3": Path("tests/text/deepseek-v3-tokenizer")}

ATOMS = [
    "a", "the", " ", "  ", "\n", "\r\n", "\t", "1", "123", "4567", "3.14159", "你好", "世界", "ひらがな", "カタカナ",
    "한국어", "é", "e\u0301", "👩\u200d👩\u200d👧", "🏳️\u200d🌈", "👍🏽", "🇩🇪", ".", "...", '"', "'s", "'", "_", "$", "(", ")",
    "{}", "[0]", "->", "==", "!=", "//", "#", "@", "def f(x):\n    return x\n", "int main() { return 0; }",
    "<div class=\"a\">", "\x00", "\x1f", "\x7f", "\u0085", "\u00a0", "\u3000", "\u200b", "\u2028", "\ufeff",
    "\ufffd", "<", "<|", "｜", "<｜", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>", "<｜begin▁of▁sentence｜>",
    "<think>", "</think>", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "ﷺ", "ß", "ǅ", "𝒳", "²", "½",
    "Ⅷ", "٣", "עברית", "العربية", "ไทย", "हिन्दी", "-", "--", "=", "\u180e", "ŉ", "Hello", " world", " don't", "ĠĊ",
]
SENTENCES = [
    "The quick brown fox jumps over the lazy dog, 3 times.", "Once upon a time there was 1 king and 2 queens.",
    "I'm sure they've said we'll go; she'd rather not.", "深圳是一座位于中国南部的城市，2024年人口超过1700万。",
    "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。", "그는 학교에 갔습니다. 오늘은 2025년 1월 1일입니다.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.", "for (int i = 0; i < n; ++i) { sum += a[i] * b[i]; }",
    "SELECT id, name FROM users WHERE age >= 18 ORDER BY name;", "https://example.org/path?query=1&x=%20#frag",
    "import numpy as np\nx = np.zeros((3, 4), dtype=np.float32)\n", "{\"role\": \"user\", \"content\": [1, 2.5, null]}",
    "$$E = mc^2$$ and $\\int_0^\\infty e^{-x^2} dx = \\frac{\\sqrt{\\pi}}{2}$", "😀😃😄 👨‍👩‍👧‍👦 ❤️ ✨🎉",
    "    indented\n\tand tabbed\n\n\n  twice  \n", "0123456789 00 1,234,567.89 1e-10 0xFF 3/4",
]


def random_text(rng):
    def code():
        while True:
            c = rng.choice([rng.randrange(128), rng.randrange(0x800), rng.randrange(0xd800),
                            rng.randrange(0xe000, 0x20000)])
            # Python's tables decide what exists; libraries differ in what newer versions added.
            if unicodedata.category(chr(c)) not in ("Cn", "Cs"):
                return chr(c)
    return "".join(code() for _ in range(rng.randrange(1, 30)))


def texts():
    """2,400 byte strings, most of them UTF-8."""
    rng = random.Random(20240601)
    result = [b""] + [s.encode() for s in ATOMS + SENTENCES]
    for a, b in itertools.product(SENTENCES, SENTENCES):
        result.append((a + rng.choice(["", " ", "\n", "\n\n", "<｜User｜>"]) + b[: rng.randrange(1, len(b))]).encode())
    while len(result) < 1400:
        result.append("".join(rng.choice(ATOMS) for _ in range(rng.randrange(1, 20))).encode())
    while len(result) < 1600:
        result.append((rng.choice(ATOMS) * rng.choice([2, 3, 7, 31, 33, 64, 200])).encode()[:600])
    while len(result) < 2000:
        result.append(random_text(rng).encode())
    while len(result) < 2200:  # UTF-8 with holes
        data = bytearray("".join(rng.choice(ATOMS) for _ in range(rng.randrange(2, 15))).encode())
        for _ in range(rng.randrange(1, 4)):
            if data:
                del data[rng.randrange(len(data))]
        result.append(bytes(data))
    while len(result) < 2400:
        result.append(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 40))))
    return result


def input_field(data):
    """How a golden file holds a text: as it is where it is UTF-8."""
    try:
        return {"text": data.decode("utf-8")}
    except UnicodeDecodeError:
        return {"hex": data.hex()}


def id_lists(vocab_size):
    """400 lists of ids, whatever bytes they make."""
    rng = random.Random(20240602)
    return [[rng.randrange(vocab_size) for _ in range(rng.randrange(1, 24))] for _ in range(400)]


def templates():
    result = {}
    for name, model_dir in TOKENIZERS.items():
        result[name] = json.loads((ROOT / model_dir / "tokenizer_config.json").read_text())["chat_template"]
    for path in sorted((HERE / "templates").glob("*.jinja")):
        result[path.stem] = path.read_text()
    return result


TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "Weather of a city, in °C", "parameters": {
            "type": "object", "properties": {"city": {"type": "string", "enum": ["Zürich", "北京"]},
                                             "days": {"type": "integer", "minimum": 1, "default": 1.0}},
            "required": ["city"], "additionalProperties": False}}},
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {}}},
]


def _call(name, arguments, id="call_1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def _message_lists():
    system = {"role": "system", "content": "  You are helpful.\n"}
    user = {"role": "user", "content": "Hi there"}
    answer = {"role": "assistant", "content": "Hello! How can I help?"}
    call_text = {"role": "assistant", "content": None, "tool_calls": [_call("get_weather", "{\"city\": \"北京\"}")]}
    call_object = {"role": "assistant", "content": "Let me see.", "tool_calls": [
        _call("get_weather", {"city": "Zürich", "days": 2, "f": 1.0, "n": None, "b": [True, {}]}),
        _call("now", {}, "call_2")]}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "12 °C"}
    yield [user]
    yield [system, user]
    yield [system, {"role": "system", "content": "Second."}, user]
    yield [user, answer, {"role": "user", "content": "And\n\nnow?  "}]
    yield [system, user, answer, user, answer]
    yield [user, call_text, result]
    yield [user, call_text, result, answer]
    yield [system, user, call_object, result, result, answer, user]
    yield [user, call_object, {"role": "tool", "content": {"temperature": 1.5, "text": "a\"b"}}]
    yield [user, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}, user]
    yield [user, {"role": "assistant", "content": "<think>so</think>no", "tool_calls": None}]
    yield [user, {"role": "assistant", "content": "Sure, ", "prefix": True}]
    yield [{"role": "user", "content": "{{ x }} {% if %} <｜User｜> \\n 'q' \"r\" 😀 \u2028"}]
    yield [{"role": "user", "content": [{"type": "text", "text": "part"}, "plain"]}]
    yield [{"role": "assistant", "content": ""}, user]
    yield [{"role": "nobody", "content": "x"}]
    yield []


def conversations():
    for messages in _message_lists():
        for options in ({"add_generation_prompt": True},
                        {"add_generation_prompt": True, "thinking": True, "tools": TOOLS},
                        {"add_generation_prompt": False, "tools": None}):
            yield {"messages": messages, "bos_token": "<｜begin▁of▁sentence｜>",
                   "eos_token": "<｜end▁of▁sentence｜>"} | options


SNIPPET_VARIABLES = {
    "d": {"a": 1, "b": [1, "x", None], "c": {"k": "é"}},
    "messages": [
        {"role": "system", "content": "Be good."}, {"role": "user", "content": " Hi there "},
        {"role": "assistant", "content": None, "tool_calls": [_call("f", {"x": 1.0, "y": "ü"})]},
        {"role": "tool", "content": "42"}],
    "tools": None, "add_generation_prompt": True, "bos_token": "<B>", "eos_token": "<E>",
}


def snippets():
    return json.loads((HERE / "snippets.json").read_text())
