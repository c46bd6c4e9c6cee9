"""Operations on integers, against indexing and floor division."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from model.nn.ops.integers import divide, lookup, remainder, sum_rows, take

LARGEST = 2**52 - 1


@given(st.integers(0, LARGEST), st.integers(1, LARGEST))
def test_divide_equals_floor_division(x: int, y: int) -> None:
    for value in {x, min(x // y * y, LARGEST), max(x // y * y - 1, 0)}:
        assert divide(torch.tensor([value]), torch.tensor([y])).item() == value // y
        assert divide(torch.tensor([value]), y).item() == value // y


def test_lookup_equals_indexing() -> None:
    table, index = torch.randn(5, 3), torch.tensor([[0, 4], [2, 2]])
    assert torch.equal(lookup(table, index), table[index])
    assert torch.equal(lookup(table[:, 0], index), table[:, 0][index])


class Rows(nn.Module):
    """A module of `lookup` and `take` alone."""

    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """Look up in the first matrix, and take rows of each."""
        return lookup(x[0], index), take(x, index)


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
def test_exported_lookups_are_single_operators(tmp_path: Path) -> None:
    x, index = torch.randn(2, 5, 3), torch.tensor([[0, 4, 4, 1], [2, 2, 0, 3]])
    expected = torch.stack([x[0][index[0]], x[1][index[1]]])
    assert torch.equal(take(x, index), expected)
    program = torch.onnx.export(Rows().eval(), (x, index), dynamo=True, verbose=False)
    assert program is not None
    found = [node.op_type for node in program.model.graph]
    assert found.count("GatherND") == 1
    assert not {"Reshape", "Expand", "GatherElements"} & set(found)
    program.save(tmp_path / "rows.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "rows.onnx", providers=["CPUExecutionProvider"])
    names = (value.name for value in session.get_inputs())
    looked_up, taken = session.run(None, dict(zip(names, (x.numpy(), index.numpy()), strict=True)))
    assert np.array_equal(looked_up, x[0][index].numpy())
    assert np.array_equal(taken, expected.numpy())


class Divide(nn.Module):
    """A module of `divide` alone."""

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Divide by integers, and by a constant."""
        return divide(x, y), divide(x, 2**15)


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
def test_exported_division_is_exact_for_large_integers(tmp_path: Path) -> None:
    values = np.random.default_rng(0).integers(1, LARGEST, 1000)
    x, y = np.concatenate((values // 3 * 3, values)), np.concatenate((np.full(1000, 3), values[::-1] % 2**20 + 1))
    program = torch.onnx.export(Divide().eval(), (torch.from_numpy(x), torch.from_numpy(y)), dynamo=True, verbose=False)
    assert program is not None
    program.save(tmp_path / "divide.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "divide.onnx", providers=["CPUExecutionProvider"])
    inputs = dict(zip((value.name for value in session.get_inputs()), (x, y), strict=True))
    by_tensor, by_constant = session.run(None, inputs)
    assert (by_tensor == x // y).all()
    assert (by_constant == x // 2**15).all()


@pytest.mark.parametrize("divisor", [1, 2**12, 2**32, 3, 2**31 - 1])
def test_traced_remainder_equals_the_operator(divisor: int) -> None:
    random = np.random.default_rng(0).integers(-(2**62), 2**62, 1000)
    x = torch.from_numpy(np.concatenate((np.arange(-3, 4), [divisor - 1, divisor, divisor + 1, 2**62], random)))
    by = torch.tensor(divisor)
    expected = x.numpy() % divisor
    functions: list[Callable[[Tensor], Tensor]] = [lambda x: remainder(x, divisor), lambda x: remainder(x, by)]
    for compute in functions:
        traced: Any = torch.jit.trace(compute, x[:3])
        assert "remainder" not in str(traced.graph)
        assert (traced(x).numpy() == expected).all()
        assert (compute(x).numpy() == expected).all()


class SumRows(nn.Module):
    """A module of `sum_rows` alone."""

    def __init__(self, *, in_int8: bool) -> None:
        super().__init__()
        self.in_int8 = in_int8

    def forward(self, x: Tensor) -> Tensor:
        """Sum rows."""
        return sum_rows(x, in_int8=self.in_int8)


@pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning")
@pytest.mark.parametrize("count", [1, 5, 64])
@pytest.mark.parametrize(
    ("in_int8", "operators"), [(True, {"MatMulInteger", "Squeeze", "Cast"}), (False, {"Cast", "ReduceSum"})]
)
def test_sums_of_rows_are_exact(tmp_path: Path, count: int, operators: set[str], *, in_int8: bool) -> None:
    """Extreme values included. Kernels add pairs in 16 bits; a factor of one cannot overflow them."""
    x = np.random.default_rng(0).integers(-128, 128, (4, count, 5), dtype=np.int8)
    x[0], x[1], x[2, ::2] = 127, -128, -128
    expected = x.sum(axis=1, dtype=np.int64)
    module = SumRows(in_int8=in_int8).eval()
    assert (module(torch.from_numpy(x)).numpy() == expected).all()
    assert (torch.export.export(module, (torch.from_numpy(x),)).module()(torch.from_numpy(x)).numpy() == expected).all()
    program = torch.onnx.export(module, (torch.from_numpy(x),), dynamo=True, verbose=False)
    assert program is not None
    assert {node.op_type for node in program.model.graph} == operators
    program.save(tmp_path / "sum.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "sum.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: x})
    assert found.dtype == np.float32
    assert (found == expected).all()
