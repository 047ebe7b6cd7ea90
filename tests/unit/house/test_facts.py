"""Tables of facts and their twins."""

import json
import tomllib

import pytest

from gpu_plan.planner.plain.facts import facts, twin_of, write_twin
from tests.support.fact_twins import TABLES


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_twin_is_that_of_its_table(table):
    assert twin_of(table).read_bytes() == write_twin(table), "the table was changed: run `make readme`"
    assert facts(table) == tomllib.loads(table.read_text(encoding="utf-8"))


def test_a_twin_of_other_bytes_is_not_read(tmp_path):
    table = tmp_path / "some.toml"
    table.write_text("[a]\nb = 1\n")
    assert facts(table) == {"a": {"b": 1}}
    twin = twin_of(table)
    twin.write_bytes(write_twin(table))
    digest, _, text = twin.read_bytes().partition(b"\n")
    assert json.loads(text) == {"a": {"b": 1}}
    twin.write_bytes(digest + b'\n{"a": {"b": 7}}')
    assert facts(table) == {"a": {"b": 7}}  # which is how one sees that it is read
    table.write_text("[a]\nb = 2\n")
    assert facts(table) == {"a": {"b": 2}}
    table.write_bytes(b"[a]\r\nb = 2\r\n")
    assert facts(table) == {"a": {"b": 2}}
