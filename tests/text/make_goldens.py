#!/usr/bin/env python3
"""Writes the golden files beside this script: what the Python libraries `tokenizers` and `jinja2` give
for the texts of cases.py. The C++ tests compare with them, without Python.
usage: tests/text/make_goldens.py        (needs tokenizers and jinja2)"""
import json
from pathlib import Path

import cases
import reference

HERE = Path(__file__).resolve().parent


def write(name, header, rows):
    """One row a line, so that a change shows as the lines that changed."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    path = HERE / name
    path.write_text(json.dumps(header)[:-1] + ',"cases":[\n' + lines + "\n]}\n", encoding="utf-8")
    print(f"{path.name}: {len(rows)} cases, {path.stat().st_size / 1e6:.2f} MB")


def main():
    for name, model_dir in cases.TOKENIZERS.items():
        tokenizer = reference.tokenizer(model_dir)
        rows = [cases.input_field(data) | {"ids": reference.encode(tokenizer, data)}
                for data in cases.texts()]
        rows += [{"ids": ids, "decoded": reference.decode(tokenizer, ids, False),
                  "without_special": reference.decode(tokenizer, ids, True)}
                 for ids in cases.id_lists(tokenizer.get_vocab_size())]
        write(f"golden_tokens_{name}.json", {"model_dir": str(model_dir)}, rows)
    rows = [{"template": name, "variables": variables} | reference.render(source, variables)
            for name, source in cases.templates().items() for variables in cases.conversations()]
    write("golden_templates.json", {"templates": cases.templates()}, rows)
    rows = [{"source": source} | reference.render(source, cases.SNIPPET_VARIABLES)
            for source in cases.snippets()]
    write("golden_snippets.json", {"variables": cases.SNIPPET_VARIABLES}, rows)


if __name__ == "__main__":
    main()
