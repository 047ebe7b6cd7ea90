"""The config reader: real configs pass, everything else ends in one line, with work in proportion to its size."""

import json
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gpu_plan.planner.errors import InputError, PlanError
from gpu_plan.planner.model.catalog_index import load_index
from gpu_plan.planner.model.config_reader import MAX_BYTES, canonical_bytes, parse_config
from gpu_plan.planner.model.config_sizes import BOUNDS, validate_config
from tests.support.counting import steps

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "vocab_size": 128256,
    "rope_scaling": {"factor": 8.0, "original_max_position_embeddings": 8192},
}


def _read(raw: bytes) -> dict | str:
    """The config, or the message of the refusal; any other exception is the bug these tests look for."""
    try:
        config = parse_config(raw, "config.json")
        validate_config(config, "config.json")
    except PlanError as error:
        return str(error)
    return config


@pytest.mark.parametrize("entry", load_index().values(), ids=lambda entry: entry.id)
def test_every_shipped_config_is_accepted(entry):
    config = parse_config(entry.path.read_bytes(), entry.file)
    validate_config(config, entry.file)
    assert config == json.loads(entry.path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"", "empty"),
        (b" \n", "empty"),
        (b"\xff\xfe{", "not UTF-8"),
        (b'{"model_type": "llama"', "line 1, column 23"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "NaN"),
        (b'{"model_type": "llama", "hidden_size": Infinity}', "hidden_size is inf: write a whole number"),
        (b'{"model_type": "llama", "hidden_size": 1e999}', "1e999"),
        (b'{"model_type": "llama", "x": ' + b"9" * 5000 + b"}", "5000 digits"),
        (b"[1]", "a JSON list"),
        (b'"text"', "a JSON string"),
        (b"null", "a JSON null"),
        (b"{}", "neither model_type nor architectures"),
        (b'{"model_type": 3}', "model_type is 3"),
        (b'{"architectures": "LlamaForCausalLM"}', "architectures is 'LlamaForCausalLM'"),
        (b'{"model_type": "\\ud800"}', "surrogate"),
        (b'{"model_type": "llama", "x": ' + b"[" * 80 + b"]" * 80 + b"}", "nested too deeply"),
    ],
)
def test_refusals_name_the_file_and_the_fault(raw, said):
    message = _read(raw)
    assert isinstance(message, str)
    assert "config.json" in message
    assert said in message
    assert "\n" not in message


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "nest": lambda size: b"[" * size,
    "nested objects": lambda size: b'{"a":' * (size // 5),
    "wide list": lambda size: b'{"model_type":"x","a":[' + b"[]," * (size // 3 - 20) + b"1]}",
    "wide object": lambda size: b'{"model_type":"x",' + b",".join(b'"%d":{}' % i for i in range(size // 13)) + b"}",
    "sizes": lambda size: b'{"model_type":"x","hidden_sizes":[' + b"9," * (size // 2 - 50) + b"1]}",
    "open string": lambda size: b'{"model_type":"x","a":"' + b"\\" * (size - 100),
    "long number": lambda size: b'{"model_type":"x","hidden_size":' + b"9" * (size - 100) + b"}",
}
"""Bytes that no one publishes, of nearly the size given."""


@pytest.mark.parametrize("make", HOSTILE.values(), ids=HOSTILE)
def test_hostile_bytes_take_work_in_proportion(make):
    """Twice the bytes take twice the steps, never four times; none more where the depth or a number ends it."""
    raw, twice = make(10_000), make(20_000)
    first, second = steps(lambda: _read(raw)), steps(lambda: _read(twice))
    assert first < 60 * len(raw)
    assert second < 2.1 * first + 1000  # what is refused at once takes some hundred steps to say, or none to count


WIDENS = {"wide list", "wide object", "sizes"}  # Read to the end; `proportion` has them at a smaller size.


@pytest.mark.parametrize(
    "make",
    [pytest.param(make, id=name, marks=[pytest.mark.slow] * (name in WIDENS)) for name, make in HOSTILE.items()],
)
def test_hostile_megabytes_end(make):
    """As large as any file is read: in a config, or in one line."""
    raw = make(MAX_BYTES)
    assert MAX_BYTES * 0.8 < len(raw) <= MAX_BYTES
    result = _read(raw)
    assert isinstance(result, dict) or (result and "\n" not in result)


def test_an_oversized_nest_is_not_read():
    raw = b"[" * 2 * MAX_BYTES
    assert "10,000,000 bytes long" in _read(raw)
    assert steps(lambda: _read(raw)) < 500


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": "4096"}, "hidden_size is '4096': write a whole number"),
        ({"hidden_size": 4096.0}, "hidden_size is 4096.0: write a whole number, 4096"),
        ({"hidden_size": -4096}, "hidden_size is -4096: write a number of at least 1"),
        ({"hidden_size": 0}, "hidden_size is 0"),
        ({"hidden_size": [4096]}, "hidden_size is a list of 1"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers is 1000000000000: write at most 2,000"),
        ({"vocab_size": 10**18}, "vocab_size"),
        ({"num_experts": -1}, "num_experts is -1"),
        ({"text_config": {"hidden_size": -1}}, "text_config.hidden_size is -1"),
        ({"vision_config": {"encoder": {"depth": 10**9}}}, "vision_config.encoder.depth"),
        ({"text_config": 7}, "text_config is 7: write an object"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes': write true or false"),
        ({"d_model": 1.5}, "d_model is 1.5"),
        ({"n_layer": 99999}, "n_layer is 99999"),
        ({"depths": [2, 2, -6, 2]}, "depths[2] is -6"),
        ({"hidden_sizes": [1] * 20_000}, "hidden_sizes lists 20,000 values"),
        ({"layer_types": ["full_attention"] * 5000}, "layer_types has 5,000 layers"),
        ({"mlp_ratio": 0.0}, "mlp_ratio is 0.0: write a number above 0"),
    ],
)
def test_sizes_that_make_no_sense_are_named(change, said):
    with pytest.raises(InputError) as caught:
        validate_config(LLAMA | change, "my/config.json")
    assert "my/config.json: " in str(caught.value)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [{"vocab_size": None}, {"mlp_ratio": 4.5}, {"num_heads": [1, 2, 4]}, {"id2label": {"dim": "-1"}}],
)
def test_what_real_configs_hold_is_allowed(change):
    validate_config(LLAMA | change, "config.json")


@given(st.sampled_from(sorted(BOUNDS)), st.integers(min_value=10**10))
def test_no_size_key_takes_an_astronomical_value(key, value):
    with pytest.raises(InputError, match=key):
        validate_config({key: value}, "config.json")


def test_canonical_bytes_ignore_the_order_of_keys():
    turned = dict(reversed(LLAMA.items()))
    assert canonical_bytes(turned) == canonical_bytes(LLAMA)
    assert canonical_bytes(LLAMA | {"vocab_size": 1}) != canonical_bytes(LLAMA)


@given(st.binary(max_size=400))
@example(b'{"model_type": "a", "b": {"c": [')
@example(b"\xef\xbb\xbf{}")
def test_any_bytes_give_a_config_or_one_line(raw):
    result = _read(raw)
    assert isinstance(result, dict) or (result and "\n" not in result)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(min_value=-(10**45), max_value=10**45) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(sorted(BOUNDS)), inner, max_size=4),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from([*sorted(BOUNDS), "text_config", "layer_types"]), VALUES, max_size=6))
def test_any_values_give_a_config_or_one_line(values):
    result = _read(json.dumps({"model_type": "llama"} | values).encode())
    assert isinstance(result, dict) or (result and "\n" not in result)


ENTRIES = sorted(load_index())


@given(st.sampled_from(ENTRIES), st.integers(0, 4000), st.integers(0, 40), st.binary(max_size=12))
def test_damaged_real_configs_give_a_config_or_one_line(model_id, place, cut, put):
    raw = load_index()[model_id].path.read_bytes()
    place %= len(raw)
    result = _read(raw[:place] + put + raw[place + cut :])
    assert isinstance(result, dict) or (result and "\n" not in result)
