"""Vector code: sixteen float32 numbers at a time, and the four inner loops in which a pass spends its time."""

from __future__ import annotations

import operator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

from felb.kernels.schedule import LANES

if TYPE_CHECKING:
    from collections.abc import Sequence


# Numba unrolls short loops before it can vectorise them, which costs a factor of two to six here. This module says what
# is meant instead, with a type `Vector` for sixteen float32 numbers, a few free functions on it, and the inner loops.
# LLVM maps sixteen numbers to one AVX-512 register, two of AVX or four of SSE and NEON: the same code runs everywhere.
#
# Numba notices changes of a cached function only in the file of that function. After an edit here, remove the compiled
# kernels (``make clean``).

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


# -- The four inner loops in which a pass spends its time: gather, scatter, multiply, add outer products -------------
#
# A row of k numbers is held as *parts*: as many runs of 16 as fit, then one of 4, 8 or 16 for the rest, filled up with
# zeros (20 = 16 + 4; 50 = 48 + 4, two of them zero). How many there are must be known when code is generated. It comes
# as the *length of a tuple*, ``width = (0,) * fours`` (see `felb.kernels.schedule.width_of`): a length belongs to the
# type of a tuple, so Numba compiles, dispatches and caches one version for each width without further help.
#
# Rows are laid out in one of two ways. In a *block*, parts follow each other. In a *table*, which is looked up in
# random order, the runs of 16 of all rows come first, each in cache lines of its own, and then the last parts of all
# rows, so that a lookup touches as few cache lines as it can.

PANEL = 8
"""Parts of a row that an inner loop handles at once; wider rows are handled panel after panel."""

_I64 = ir.IntType(64)


@intrinsic
def gather(
    typingctx: Any, indices: Any, at: Any, end: Any, bound: Any, table: Any, block: Any, row: Any, width: Any
) -> Any:
    """Add the rows of `table` named by ``indices[at:end]``, up to the first index >= `bound`, to one row of `block`.

    Returns the position of that index, so that the next tile of columns can go on from there.
    """

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        table_at, block_at = data_of(context, b, sig, args, 4), data_of(context, b, sig, args, 5)
        for panel in _panels(_parts(width)):
            totals = [_Total(b, part) for part in panel]
            for total in totals:
                total.set(emit_load(b, block_at, total.part.in_block(b, args[6]), total.part.lanes))
            with _OnesBelow(context, b, sig, args) as ones:
                for total in totals:
                    at = total.part.in_table(b, ones.index, size_of(context, b, sig, args, 4))
                    total.set(b.fadd(total.get(), emit_load(b, table_at, at, total.part.lanes)))
            for total in totals:
                emit_store(b, total.get(), block_at, total.part.in_block(b, args[6]))
        return ones.reached

    return types.int64(indices, types.int64, types.int64, types.int64, table, block, types.int64, width), codegen


@intrinsic
def scatter(
    typingctx: Any, indices: Any, at: Any, end: Any, bound: Any, table: Any, block: Any, row: Any, width: Any
) -> Any:
    """Add one row of `block` to the rows of `table` named by ``indices[at:end]``, up to the first index >= `bound`.

    Both hold float32 or both hold int32. Returns the position of that index, so that the next tile of columns can go on
    from there.
    """

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        table_at, block_at = data_of(context, b, sig, args, 4), data_of(context, b, sig, args, 5)
        add = partial(emit_add_integers, b) if isinstance(sig.args[4].dtype, types.Integer) else b.fadd
        for panel in _panels(_parts(width)):
            values = [emit_load(b, block_at, part.in_block(b, args[6]), part.lanes) for part in panel]
            with _OnesBelow(context, b, sig, args) as ones:
                for value, part in zip(values, panel, strict=True):
                    at = part.in_table(b, ones.index, size_of(context, b, sig, args, 4))
                    emit_store(b, add(emit_load(b, table_at, at, part.lanes), value), table_at, at)
        return ones.reached

    return types.int64(indices, types.int64, types.int64, types.int64, table, block, types.int64, width), codegen


@intrinsic
def multiply(typingctx: Any, block: Any, first: Any, gram: Any, k: Any, out: Any, width: Any) -> Any:
    """Set ``out[r] = block[r] @ gram``, where `gram` is a block of k rows, for `rows_at_once` rows from `first` on."""

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        block_at, gram_at, out_at = (data_of(context, b, sig, args, i) for i in (0, 2, 4))
        parts = _parts(width)
        rows = [b.add(args[1], _int(i)) for i in range(_at_once(len(parts)))]
        starts = [b.mul(row, _int(_stride(width))) for row in rows]
        _add_products(
            b, parts, terms=args[3], lines=rows, out_at=out_at, fresh=True, vectors_at=gram_at,
            factors=lambda d: [b.load(b.gep(block_at, [b.add(start, d)])) for start in starts],
        )  # fmt: skip
        return context.get_dummy_value()

    return types.void(block, types.int64, gram, types.int64, out, width), codegen


@intrinsic
def rows_at_once(typingctx: Any, width: Any) -> Any:
    """Return how many rows `multiply` handles at once: 2, 4 or 8."""
    return types.int64(width), lambda *_: _int(_at_once(len(_parts(width))))


@intrinsic
def add_outer(typingctx: Any, block: Any, count: Any, gram: Any, width: Any) -> Any:
    """Add ``Σ_r block[r, :]ᵀ block[r, :]`` over the first `count` rows to `gram`, on and below the diagonal.

    Above the diagonal, `gram` is left incomplete.
    """

    def codegen(context: Any, b: Any, sig: Any, args: Sequence[Any]) -> Any:
        block_at, gram_at = data_of(context, b, sig, args, 0), data_of(context, b, sig, args, 2)
        parts = _parts(width)
        for last, part in enumerate(parts):  # the lines of the sum that end in this part
            step = min(part.lanes, _at_once(last + 1))
            stop = _int(part.first + part.lanes)
            with cgutils.for_range_slice(b, _int(part.first), stop, _int(step), _I64) as (first, _):
                lines = [b.add(first, _int(i)) for i in range(step)]

                def factors(r: Any, lines: list[Any] = lines) -> list[Any]:
                    start = b.mul(r, _int(_stride(width)))
                    return [b.load(b.gep(block_at, [b.add(start, line)])) for line in lines]

                _add_products(
                    b, parts[: last + 1], terms=args[1], lines=lines, out_at=gram_at, fresh=False,
                    vectors_at=block_at, factors=factors,
                )  # fmt: skip
        return context.get_dummy_value()

    return types.void(block, types.int64, gram, width), codegen


# -- how the code above is generated -----------------------------------------------------------------------------------


class _Part(NamedTuple):
    """A run of 16, 8 or 4 numbers of a row."""

    first: int
    lanes: int
    stride: int  # numbers in a row
    whole: int  # numbers in the runs of 16 of a row

    def in_block(self, b: Any, row: Any) -> Any:
        return b.add(b.mul(row, _int(self.stride)), _int(self.first))

    def in_table(self, b: Any, row: Any, size: Any) -> Any:
        if self.first < self.whole:
            return b.add(b.mul(row, _int(self.whole)), _int(self.first))
        before = b.mul(b.udiv(size, _int(self.stride)), _int(self.whole))
        return b.add(before, b.mul(row, _int(self.lanes)))


class _Total:
    """A sum of one part, in a variable that LLVM keeps in a register."""

    def __init__(self, b: Any, part: _Part) -> None:
        self._b, self.part = b, part
        self._variable = cgutils.alloca_once(b, lanes_type(part.lanes))

    def get(self) -> Any:
        return self._b.load(self._variable)

    def set(self, x: Any) -> None:
        self._b.store(x, self._variable)


class _OnesBelow:
    """The loop ``while at < end and indices[at] < bound`` of `gather` and `scatter`; the with-block is its body."""

    def __init__(self, context: Any, b: Any, sig: Any, args: Sequence[Any]) -> None:
        self._b, (_, self._at, self._end, self._bound, *_) = b, args
        self._indices_at = data_of(context, b, sig, args, 0)
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


def _add_products(
    b: Any, parts: list[_Part], *, terms: Any, lines: list[Any], out_at: Any, fresh: bool, vectors_at: Any, factors: Any
) -> None:
    """Add ``Σ_{t < terms} factors(t)[i] · vectors[t, :]`` to row ``lines[i]`` of a block, or set it so if `fresh`."""
    for panel in _panels(parts):
        totals = [[_Total(b, part) for part in panel] for _ in lines]
        for line, row in zip(lines, totals, strict=True):
            for total in row:
                old = emit_load(b, out_at, total.part.in_block(b, line), total.part.lanes)
                total.set(ir.Constant(old.type, [0.0] * total.part.lanes) if fresh else old)
        with cgutils.for_range_slice(b, _int(0), terms, _int(1), _I64) as (t, _):
            vectors = [emit_load(b, vectors_at, part.in_block(b, t), part.lanes) for part in panel]
            for factor, row in zip(factors(t), totals, strict=True):
                repeated = emit_splat(b, factor)
                for total, x in zip(row, vectors, strict=True):
                    total.set(emit_fma(b, emit_low(b, repeated, total.part.lanes), x, total.get()))
        for line, row in zip(lines, totals, strict=True):
            for total in row:
                emit_store(b, total.get(), out_at, total.part.in_block(b, line))


def _parts(width: Any) -> list[_Part]:
    whole, rest = LANES * (width.count // 4), 4 * (width.count % 4)
    starts = [*range(0, whole, LANES), *([whole] if rest else [])]
    return [_Part(start, LANES if start < whole else rest, whole + rest, whole) for start in starts]


def _stride(width: Any) -> int:
    return 4 * int(width.count)


def _int(x: int) -> Any:
    return ir.Constant(_I64, x)


def _panels(parts: list[_Part]) -> list[list[_Part]]:
    return [parts[i : i + PANEL] for i in range(0, len(parts), PANEL)]


def _at_once(n_parts: int) -> int:
    # As many lines of n parts as leave some of the 32 registers of AVX-512 for operands. All of these divide a block
    # of rows and a part.
    return 8 if n_parts <= 3 else 4 if n_parts <= 6 else 2
