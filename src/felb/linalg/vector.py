"""Sixteen float32 numbers at a time: the vector instructions that the kernels are written in.

Numba unrolls short loops before it can vectorise them, which costs a factor of two to six here. This module says what
is meant instead: a type `Vector` for sixteen float32 numbers, a few free functions on it, and the four inner loops in
which a pass spends its time. LLVM maps sixteen numbers to one AVX-512 register, two AVX ones or four of SSE and NEON,
so the same code runs everywhere.

Tables (V, AᵀU, blocks of rows) have rows of ``LANES · NV`` numbers, NV = ⌈k / LANES⌉, of which those beyond k are zero.
NV must be known when the code is generated. It comes as the *length of a tuple* (``width = (0,) * NV``): a length is
part of the type of a tuple, so Numba compiles, dispatches and caches one version for each NV without further help.

Numba notices changes of a cached function only in the file of that function. After an edit here, remove the compiled
kernels (``make clean``).
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

from felb.linalg.schedule import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence

PANEL = 8
"""Vectors of a row that an inner loop handles at once; wider rows are handled panel after panel."""

_F32, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
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
        return _splat(b, args[0])

    return Vector(types.float32), codegen


@intrinsic
def fma(typingctx: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x·y + z, fused where the processor can."""

    def codegen(_context: Any, b: Any, _sig: Any, args: Sequence[Any]) -> Any:
        return _fma(b, *args)

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
        return _load(b, _data(context, b, sig, args, 0), args[1])

    return Vector(array, types.int64), codegen


@intrinsic
def store(typingctx: Any, array: Any, at: Any, x: Any) -> Any:
    """Write sixteen numbers to a contiguous array from flat position `at` on."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        _store(b, args[2], _data(context, b, sig, args, 0), args[1])
        return context.get_dummy_value()

    return types.void(array, types.int64, Vector), codegen


@intrinsic
def load_first(typingctx: Any, array: Any, at: Any, count: Any) -> Any:
    """Return the `count` <= 16 numbers from flat position `at` on, then zeros; what lies beyond is not touched."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        pointer = _pointer(b, _data(context, b, sig, args, 0), args[1])
        kind = ir.FunctionType(_LANES_F32, [pointer.type, _I32, _LANES_I1, _LANES_F32])
        function = cgutils.get_or_insert_function(b.module, kind, f"llvm.masked.load.v{LANES}f32.p0")
        return b.call(function, [pointer, ir.Constant(_I32, 4), _first(b, args[2]), _ZERO])

    return Vector(array, types.int64, types.int64), codegen


@intrinsic
def store_first(typingctx: Any, array: Any, at: Any, x: Any, count: Any) -> Any:
    """Write the first `count` <= 16 numbers of x from flat position `at` on; what lies beyond is not touched."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        pointer = _pointer(b, _data(context, b, sig, args, 0), args[1])
        kind = ir.FunctionType(ir.VoidType(), [_LANES_F32, pointer.type, _I32, _LANES_I1])
        function = cgutils.get_or_insert_function(b.module, kind, f"llvm.masked.store.v{LANES}f32.p0")
        b.call(function, [args[2], pointer, ir.Constant(_I32, 4), _first(b, args[3])])
        return context.get_dummy_value()

    return types.void(array, types.int64, Vector, types.int64), codegen


# -- the four inner loops ----------------------------------------------------------------------------------------------


@intrinsic
def gather(
    typingctx: Any, indices: Any, at: Any, end: Any, bound: Any, table: Any, sums: Any, row: Any, width: Any
) -> Any:
    """Add the rows of `table` named by ``indices[at:end]``, up to the first index >= `bound`, to one row of `sums`.

    Returns the position of that index, so that the next tile of columns can go on from there.
    """
    stride = LANES * width.count

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        table_at, sums_at = _data(context, b, sig, args, 4), _data(context, b, sig, args, 5)
        row_at = b.mul(args[6], _int(stride))
        for panel in _panels(width.count):
            totals = [cgutils.alloca_once(b, _LANES_F32) for _ in panel]
            for total, v in zip(totals, panel, strict=True):
                b.store(_load(b, sums_at, b.add(row_at, _int(LANES * v))), total)
            with _OnesBelow(context, b, sig, args) as ones:
                base = b.mul(ones.index, _int(stride))
                for total, v in zip(totals, panel, strict=True):
                    b.store(b.fadd(b.load(total), _load(b, table_at, b.add(base, _int(LANES * v)))), total)
            for total, v in zip(totals, panel, strict=True):
                _store(b, b.load(total), sums_at, b.add(row_at, _int(LANES * v)))
        return ones.reached

    return types.int64(indices, types.int64, types.int64, types.int64, table, sums, types.int64, width), codegen


@intrinsic
def scatter(
    typingctx: Any, indices: Any, at: Any, end: Any, bound: Any, table: Any, rows: Any, row: Any, width: Any
) -> Any:
    """Add one row of `rows` to the rows of `table` named by ``indices[at:end]``, up to the first index >= `bound`.

    Returns the position of that index, so that the next tile of columns can go on from there.
    """
    stride = LANES * width.count

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        table_at, rows_at = _data(context, b, sig, args, 4), _data(context, b, sig, args, 5)
        row_at = b.mul(args[6], _int(stride))
        for panel in _panels(width.count):
            values = [_load(b, rows_at, b.add(row_at, _int(LANES * v))) for v in panel]
            with _OnesBelow(context, b, sig, args) as ones:
                base = b.mul(ones.index, _int(stride))
                for value, v in zip(values, panel, strict=True):
                    place = b.add(base, _int(LANES * v))
                    _store(b, b.fadd(_load(b, table_at, place), value), table_at, place)
        return ones.reached

    return types.int64(indices, types.int64, types.int64, types.int64, table, rows, types.int64, width), codegen


@intrinsic
def tile_rows(typingctx: Any, width: Any) -> Any:
    """Return how many rows `multiply_rows` and `add_outer` handle at once: 2, 4 or 8, as the registers allow."""

    def codegen(_context: Any, _b: Any, _sig: Any, _args: Sequence[Any]) -> Any:
        return _int(_tile_rows(width.count))

    return types.int64(width), codegen


@intrinsic
def multiply_rows(typingctx: Any, rows: Any, first: Any, gram: Any, k: Any, out: Any, width: Any) -> Any:
    """Set ``out[r] = rows[r] @ gram``, where `gram` has k rows, for the `tile_rows` rows from `first` on."""
    stride = LANES * width.count

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        rows_at, gram_at, out_at = (_data(context, b, sig, args, i) for i in (0, 2, 4))
        starts = [b.mul(b.add(args[1], _int(i)), _int(stride)) for i in range(_tile_rows(width.count))]
        for panel in _panels(width.count):
            sums = [[cgutils.alloca_once(b, _LANES_F32) for _ in panel] for _ in starts]
            for total in (total for line in sums for total in line):
                b.store(_ZERO, total)
            with cgutils.for_range_slice(b, _int(0), args[3], _int(1), _I64) as (d, _):
                base = b.mul(d, _int(stride))
                gram_row = [_load(b, gram_at, b.add(base, _int(LANES * v))) for v in panel]
                for start, line in zip(starts, sums, strict=True):
                    factor = _splat(b, b.load(b.gep(rows_at, [b.add(start, d)])))
                    for total, g in zip(line, gram_row, strict=True):
                        b.store(_fma(b, factor, g, b.load(total)), total)
            for start, line in zip(starts, sums, strict=True):
                for total, v in zip(line, panel, strict=True):
                    _store(b, b.load(total), out_at, b.add(start, _int(LANES * v)))
        return context.get_dummy_value()

    return types.void(rows, types.int64, gram, types.int64, out, width), codegen


@intrinsic
def add_outer(typingctx: Any, rows: Any, stop: Any, gram: Any, first: Any, width: Any) -> Any:
    """Add ``Σ_{r < stop} rows[r, d] · rows[r, :]`` to ``gram[d, :]`` for the `tile_rows` numbers d from `first` on."""
    stride = LANES * width.count

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        rows_at, gram_at = _data(context, b, sig, args, 0), _data(context, b, sig, args, 2)
        starts = [b.mul(b.add(args[3], _int(i)), _int(stride)) for i in range(_tile_rows(width.count))]
        for panel in _panels(width.count):
            sums = [[cgutils.alloca_once(b, _LANES_F32) for _ in panel] for _ in starts]
            for start, line in zip(starts, sums, strict=True):
                for total, v in zip(line, panel, strict=True):
                    b.store(_load(b, gram_at, b.add(start, _int(LANES * v))), total)
            with cgutils.for_range_slice(b, _int(0), args[1], _int(1), _I64) as (r, _):
                base = b.mul(r, _int(stride))
                row = [_load(b, rows_at, b.add(base, _int(LANES * v))) for v in panel]
                for i, line in enumerate(sums):
                    place = b.add(base, b.add(args[3], _int(i)))
                    factor = _splat(b, b.load(b.gep(rows_at, [place])))
                    for total, x in zip(line, row, strict=True):
                        b.store(_fma(b, factor, x, b.load(total)), total)
            for start, line in zip(starts, sums, strict=True):
                for total, v in zip(line, panel, strict=True):
                    _store(b, b.load(total), gram_at, b.add(start, _int(LANES * v)))
        return context.get_dummy_value()

    return types.void(rows, types.int64, gram, types.int64, width), codegen


# -- how the code above is generated -----------------------------------------------------------------------------------


class _OnesBelow:
    """The loop ``while at < end and indices[at] < bound`` of `gather` and `scatter`; the body is the with-block."""

    def __init__(self, context: Any, b: Any, sig: Any, args: Sequence[Any]) -> None:
        self._b, (_, self._at, self._end, self._bound, *_) = b, args
        self._indices_at = _data(context, b, sig, args, 0)
        self._extend = b.sext if sig.args[0].dtype.signed else b.zext
        self._position = cgutils.alloca_once(b, _I64)
        self._in_row, self._in_tile, self._body, self._done = (b.append_basic_block() for _ in range(4))

    def __enter__(self) -> _OnesBelow:
        b = self._b
        b.store(self._at, self._position)
        b.branch(self._in_row)
        b.position_at_end(self._in_row)
        b.cbranch(b.icmp_signed("<", b.load(self._position), self._end), self._in_tile, self._done)
        b.position_at_end(self._in_tile)
        self.index = self._extend(b.load(b.gep(self._indices_at, [b.load(self._position)])), _I64)
        b.cbranch(b.icmp_signed("<", self.index, self._bound), self._body, self._done)
        b.position_at_end(self._body)
        return self

    def __exit__(self, *_: object) -> None:
        b = self._b
        b.store(b.add(b.load(self._position), _int(1)), self._position)
        b.branch(self._in_row)
        b.position_at_end(self._done)
        self.reached = b.load(self._position)


def _panels(n_vectors: int) -> list[range]:
    return [range(v, min(v + PANEL, n_vectors)) for v in range(0, n_vectors, PANEL)]


def _tile_rows(n_vectors: int) -> int:
    # As many as leave some of the 32 registers of AVX-512 for the operands; 8, 4 and 2 divide every block of rows.
    return 8 if n_vectors <= 3 else 4 if n_vectors <= 6 else 2


def _int(x: int) -> Any:
    return ir.Constant(_I64, x)


def _data(context: Any, b: Any, sig: Any, args: Sequence[Any], position: int) -> Any:
    """Return the address of the first element of the array among the arguments."""
    return context.make_array(sig.args[position])(context, b, args[position]).data


def _pointer(b: Any, base: Any, at: Any) -> Any:
    return b.bitcast(b.gep(base, [at]), _LANES_F32.as_pointer())


def _load(b: Any, base: Any, at: Any) -> Any:
    return b.load(_pointer(b, base, at), align=4)


def _store(b: Any, x: Any, base: Any, at: Any) -> None:
    b.store(x, _pointer(b, base, at), align=4)


def _splat(b: Any, x: Any) -> Any:
    one = b.insert_element(ir.Constant(_LANES_F32, ir.Undefined), x, ir.Constant(_I32, 0))
    return b.shuffle_vector(one, ir.Constant(_LANES_F32, ir.Undefined), ir.Constant(_LANES_I32, [0] * LANES))


def _first(b: Any, count: Any) -> Any:
    """Return the mask of the first `count` lanes."""
    narrow = b.insert_element(ir.Constant(_LANES_I32, ir.Undefined), b.trunc(count, _I32), ir.Constant(_I32, 0))
    limit = b.shuffle_vector(narrow, ir.Constant(_LANES_I32, ir.Undefined), ir.Constant(_LANES_I32, [0] * LANES))
    return b.icmp_signed("<", ir.Constant(_LANES_I32, list(range(LANES))), limit)


def _fma(b: Any, x: Any, y: Any, z: Any) -> Any:
    # fmuladd, not fma: without such an instruction, LLVM turns the latter into a call of a function for each lane.
    kind = ir.FunctionType(_LANES_F32, [_LANES_F32] * 3)
    return b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.fmuladd.v{LANES}f32"), [x, y, z])
