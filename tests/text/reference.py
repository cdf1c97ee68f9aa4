"""The Python libraries that aerie must equal, set up as transformers sets them up."""
import json
from datetime import datetime
from pathlib import Path

import jinja2
import jinja2.ext
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment


ROOT = Path(__file__).resolve().parent.parent.parent


def tokenizer(model_dir):
    return tokenizers.Tokenizer.from_file(str(ROOT / model_dir / "tokenizer.json"))


def encode(tokenizer, data):
    text = data.decode("utf-8", errors="replace")
    return tokenizer.encode(text, add_special_tokens=False).ids


def decode(tokenizer, ids, skip_special):
    return tokenizer.decode(ids, skip_special_tokens=skip_special)


class Generation(jinja2.ext.Extension):
    """{% generation %}: marks the assistant's text; the text itself is printed as it is."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_print"), [], [], body).set_lineno(line)

    @staticmethod
    def _print(caller):
        return caller()


def environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    return env


ENVIRONMENT = environment()


def render(source, variables):
    """{"text": …}, or {"error": …} whose wording is Python's own."""
    try:
        return {"text": ENVIRONMENT.from_string(source).render(**variables)}
    except Exception as e:  # whatever a template can raise
        return {"error": f"{type(e).__name__}: {e}"}
