"""Sixteen float32 numbers at a time: the vector instructions that the kernels are written in.

Numba unrolls short loops before it can vectorise them, which costs a factor of two to six here. This module says what
is meant instead, with a type `Vector` for sixteen float32 numbers and a few free functions on it; `felb.kernels.loops`
adds the inner loops in which a pass spends its time. LLVM maps sixteen numbers to one AVX-512 register, two of AVX or
four of SSE and NEON, so the same code runs everywhere.

Numba notices changes of a cached function only in the file of that function. After an edit here or in
`felb.kernels.loops`, remove the compiled kernels (``make clean``).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

from felb.kernels.schedule import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence

_F32, _I32 = ir.FloatType(), ir.IntType(32)
_LANES_F32 = ir.VectorType(_F32, LANES)
_LANES_I32 = ir.VectorType(_I32, LANES)
_LANES_I1 = ir.VectorType(ir.IntType(1), LANES)
_ZERO = ir.Constant(_LANES_F32, [0.0] * LANES)

# -- the type and its arithmetic ---------------------------------------------------------------------------------------


class VectorType(types.Type):
    """The Numba type of sixteen float32 numbers held in registers."""

    def __init__(self) -> None:
        super().__init__(name="felb.Vector")


Vector = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, fe_type: Any) -> None:
        super().__init__(manager, fe_type, _LANES_F32)


def _define_operator(symbol: Any, instruction: str) -> None:
    """Let ``x symbol y`` on vectors be one LLVM instruction."""

    class Operator(ConcreteTemplate):
        cases = [signature(Vector, Vector, Vector)]  # noqa: RUF012  (Numba's way of declaring it)

    infer_global(symbol)(Operator)

    @lower_builtin(symbol, Vector, Vector)
    def lower(_context: Any, builder: Any, _sig: Any, args: Sequence[Any]) -> Any:
        return getattr(builder, instruction)(*args)


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
_define_operator(operator.mul, "fmul")
_define_operator(operator.truediv, "fdiv")


@intrinsic
def splat(typingctx: Any, x: Any) -> Any:
    """Return sixteen copies of the float32 number x."""

    def codegen(_context: Any, b: Any, _sig: Any, args: Sequence[Any]) -> Any:
        return emit_splat(b, args[0])

    return Vector(types.float32), codegen


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x·y + z, fused where the processor can."""

    def codegen(_context: Any, b: Any, _sig: Any, args: Sequence[Any]) -> Any:
        return emit_fma(b, *args)

    return Vector(Vector, Vector, Vector), codegen


@intrinsic
def select_greater(typingctx: Any, x: Any, y: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where x > y, else `no`."""

    def codegen(_context: Any, b: Any, _sig: Any, args: Sequence[Any]) -> Any:
        x, y, yes, no = args
        return b.select(b.fcmp_ordered(">", x, y), yes, no)

    return Vector(Vector, Vector, Vector, Vector), codegen


@intrinsic
def maximum(typingctx: Any, x: Any, y: Any) -> Any:
    """Return the larger of x and y in each lane."""

    def codegen(_context: Any, b: Any, _sig: Any, args: Sequence[Any]) -> Any:
        return b.select(b.fcmp_ordered(">", *args), *args)

    return Vector(Vector, Vector), codegen


@intrinsic
def minimum(typingctx: Any, x: Any, y: Any) -> Any:
    """Return the smaller of x and y in each lane."""

    def codegen(_context: Any, b: Any, _sig: Any, args: Sequence[Any]) -> Any:
        return b.select(b.fcmp_ordered("<", *args), *args)

    return Vector(Vector, Vector), codegen


@intrinsic
def load(typingctx: Any, array: Any, at: Any) -> Any:
    """Return the sixteen numbers of a contiguous array from flat position `at` on."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        return emit_load(b, data_of(context, b, sig, args, 0), args[1])

    return Vector(array, types.int64), codegen


@intrinsic
def store(typingctx: Any, array: Any, at: Any, x: Any) -> Any:
    """Write sixteen numbers to a contiguous array from flat position `at` on."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        emit_store(b, args[2], data_of(context, b, sig, args, 0), args[1])
        return context.get_dummy_value()

    return types.void(array, types.int64, Vector), codegen


@intrinsic
def load_first(typingctx: Any, array: Any, at: Any, count: Any) -> Any:
    """Return the `count` <= 16 numbers from flat position `at` on, then zeros; what lies beyond is not touched."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        pointer = _pointer(b, data_of(context, b, sig, args, 0), args[1])
        kind = ir.FunctionType(_LANES_F32, [pointer.type, _I32, _LANES_I1, _LANES_F32])
        function = cgutils.get_or_insert_function(b.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
        return b.call(function, [pointer, ir.Constant(_I32, 4), _first(b, args[2]), _ZERO])

    return Vector(array, types.int64, types.int64), codegen


@intrinsic
def store_first(typingctx: Any, array: Any, at: Any, x: Any, count: Any) -> Any:
    """Write the first `count` <= 16 numbers of x from flat position `at` on; what lies beyond is not touched."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        pointer = _pointer(b, data_of(context, b, sig, args, 0), args[1])
        kind = ir.FunctionType(ir.VoidType(), [_LANES_F32, pointer.type, _I32, _LANES_I1])
        function = cgutils.get_or_insert_function(b.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        b.call(function, [args[2], pointer, ir.Constant(_I32, 4), _first(b, args[3])])
        return context.get_dummy_value()

    return types.void(array, types.int64, Vector, types.int64), codegen


# -- the same, for code that generates code ----------------------------------------------------------------------------


def lanes_type(lanes: int) -> Any:
    """Return LLVM's type of some float32 numbers in a register."""
    return ir.VectorType(_F32, lanes)


def data_of(context: Any, b: Any, sig: Any, args: Sequence[Any], position: int) -> Any:
    """Return the address of the first element of the array among the arguments."""
    return context.make_array(sig.args[position])(context, b, args[position]).data


def size_of(context: Any, b: Any, sig: Any, args: Sequence[Any], position: int) -> Any:
    """Return the number of elements of the array among the arguments."""
    return context.make_array(sig.args[position])(context, b, args[position]).nitems


def emit_load(b: Any, base: Any, at: Any, lanes: int = LANES) -> Any:
    """Load numbers from anywhere, aligned or not."""
    return b.load(_pointer(b, base, at, lanes), align=4)


def emit_store(b: Any, x: Any, base: Any, at: Any) -> None:
    """Store numbers anywhere, aligned or not."""
    b.store(x, _pointer(b, base, at, x.type.count), align=4)


def emit_splat(b: Any, x: Any, lanes: int = LANES) -> Any:
    """Repeat a number of any type in as many lanes."""
    nothing = ir.Constant(ir.VectorType(x.type, lanes), ir.Undefined)
    everywhere = ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes)
    return b.shuffle_vector(b.insert_element(nothing, x, ir.Constant(_I32, 0)), nothing, everywhere)


def emit_low(b: Any, x: Any, lanes: int) -> Any:
    """Take the first lanes of a vector; they are a register of their own, so this costs nothing."""
    if lanes == LANES:
        return x
    return b.shuffle_vector(x, x, ir.Constant(ir.VectorType(_I32, lanes), list(range(lanes))))


def emit_add_integers(b: Any, x: Any, y: Any) -> Any:
    """Add lanes that hold 32-bit integers in place of float32 numbers."""
    integers = ir.VectorType(_I32, x.type.count)
    return b.bitcast(b.add(b.bitcast(x, integers), b.bitcast(y, integers)), x.type)


def emit_fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    """Compute x·y + z in as many lanes as they have."""
    # fmuladd, not fma: without such an instruction, LLVM turns the latter into a call of a function for each lane.
    kind = ir.FunctionType(x.type, [x.type] * 3)
    return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.fmuladd.v{x.type.count}f32"), [x, y, z])


def _pointer(b: Any, base: Any, at: Any, lanes: int = LANES) -> Any:
    return b.bitcast(b.gep(base, [at]), lanes_type(lanes).as_pointer())


def _first(b: Any, count: Any) -> Any:
    """Return the mask of the first `count` lanes."""
    limit = emit_splat(b, b.trunc(count, _I32))
    return b.icmp_signed("<", ir.Constant(_LANES_I32, list(range(LANES))), limit)
