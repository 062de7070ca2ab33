"""Trees of settings and arrays: flattened and rebuilt, saved and loaded without any change."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from pdno import UserError
from pdno.work import checkpoint
from pdno.work.checkpoint import load_state, save_state
from pdno.work.state import State, flatten, unflatten

DTYPES = ["float64", "float32", "int64", "int32", "uint8", "bool"]

words = st.text(st.characters(codec="utf-8", exclude_characters="."), max_size=5)
names = st.one_of(words, st.lists(words, min_size=2, max_size=3).map(".".join))
plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=5,
)
arrays = npst.arrays(st.sampled_from(DTYPES).map(np.dtype), npst.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))


def without_clashes(state: State) -> State:
    """Drop the arrays that have the name of an array of a part."""
    own = {name: v for name, v in state.arrays.items() if "." not in name or name.split(".")[0] not in state.parts}
    return State(state.settings, own, state.parts)


leaves = st.builds(State, st.dictionaries(words, plain, max_size=3), st.dictionaries(names, arrays, max_size=3))
trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        State,
        st.dictionaries(words, plain, max_size=3),
        st.dictionaries(names, arrays, max_size=3),
        st.dictionaries(words, inner, max_size=3),
    ).map(without_clashes),
    max_leaves=4,
)


def assert_equal(one: State, two: State) -> None:
    assert one.settings == two.settings
    assert one.arrays.keys() == two.arrays.keys()
    for name, values in one.arrays.items():
        assert values.dtype == two.arrays[name].dtype
        assert values.shape == two.arrays[name].shape
        np.testing.assert_array_equal(values, two.arrays[name])
    assert one.parts.keys() == two.parts.keys()
    for name, part in one.parts.items():
        assert_equal(part, two.parts[name])


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(state=trees)
def test_unflatten_is_the_inverse_of_flatten(state) -> None:
    flat, metadata = flatten(state)
    assert_equal(unflatten(flat, metadata), state)
    assert_equal(unflatten(flat, json.loads(json.dumps(metadata))), state)
    assert flatten(unflatten(flat, metadata))[1] == metadata


@settings(max_examples=50, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(state=trees)
def test_files_keep_the_tree(tmp_path, state) -> None:
    path = tmp_path / "model.safetensors"
    save_state(path, "model", state)
    assert_equal(load_state(path, "model"), state)
    first = path.read_bytes()
    save_state(path, "model", load_state(path, "model"))
    assert path.read_bytes() == first


def test_names_in_the_file_are_dotted_paths(tmp_path) -> None:
    network = State({"kind": "fno"}, {"blocks.0.weight": np.ones((2, 3), "f4")})
    state = State({"name": "sum"}, {"seen": np.arange(3)}, {"mean": State({}, {"bias": np.zeros(2)}, {"network": network})})
    save_state(tmp_path / "m", "model", state)
    tensors, metadata = checkpoint.load(tmp_path / "m", "model")
    assert set(tensors) == {"seen", "mean.bias", "mean.network.blocks.0.weight"}
    assert metadata["settings"] == {"name": "sum"}
    assert metadata["parts"]["mean"]["parts"]["network"]["settings"] == {"kind": "fno"}
    loaded = load_state(tmp_path / "m", "model")
    assert set(loaded.parts["mean"].parts["network"].arrays) == {"blocks.0.weight"}
    loaded.arrays["seen"] += 1  # arrays are writable


def test_parts_and_arrays_may_have_one_name() -> None:
    state = State({}, {"a": np.zeros(1), "b.c": np.ones(2)}, {"a": State({}, {"": np.zeros(3)}), "c": State({"x": 1})})
    assert_equal(unflatten(*flatten(state)), state)


def test_empty_parts_are_kept() -> None:
    state = State({}, {}, {"mean": State({}), "residual": State({}, {}, {"scale": State({})})})
    assert_equal(unflatten(*flatten(state)), state)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (State({}, {}, {"a.b": State({})}), "the part 'a.b' of a model has a dot in its name"),
        (State({}, {"a.b": np.zeros(1)}, {"a": State({})}), "the array 'a.b' has the name of an array of the part 'a'"),
        (State({}, {}, {"x": State({}, {"a.": np.zeros(1)}, {"a": State({})})}), "the array 'a.' has the name"),
    ],
)
def test_names_that_could_be_confused_are_refused(state, words, tmp_path) -> None:
    with pytest.raises(UserError, match=words):
        flatten(state)
    with pytest.raises(UserError, match=words):
        save_state(tmp_path / "m", "model", state)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "metadata", [{}, {"settings": {}}, {"settings": {}, "parts": []}, {"settings": 1, "parts": {"a": None}}]
)
def test_files_without_a_tree_are_refused(tmp_path: Path, metadata: dict[str, Any]) -> None:
    checkpoint.save(tmp_path / "m", "model", {}, metadata)
    with pytest.raises(UserError, match="its content is not described correctly"):
        load_state(tmp_path / "m", "model")


def test_the_previous_file_is_kept_on_demand(tmp_path) -> None:
    for number in (1, 2):
        save_state(tmp_path / "m", "model", State({"number": number}), previous=True)
    assert load_state(tmp_path / "m", "model").settings == {"number": 2}
    assert load_state(tmp_path / "m.previous", "model").settings == {"number": 1}
