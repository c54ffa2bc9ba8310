"""The most multiply-adds that a core does: a loop over vectors that never leave their registers.

A product of large matrices does not always show it: torch multiplies by Intel's library, which is
slower on other makers' processors.
"""

import ctypes
import time

import llvmlite.binding as llvm
from llvmlite import ir

CHAINS = 12  # sums apart from each other: two units that take four cycles each need eight
WIDTH = 16  # numbers of a vector; a processor with shorter vectors takes several
STEPS = 5_000_000


def _loop() -> str:
    """Return the loop in LLVM's language: n times, multiply every sum by x and add y."""
    vector, count = ir.VectorType(ir.FloatType(), WIDTH), ir.IntType(64)
    module = ir.Module()
    three = ir.FunctionType(vector, [vector] * 3)
    fma = ir.Function(module, three, f"llvm.fma.v{WIDTH}f32")
    function = ir.Function(module, ir.FunctionType(ir.FloatType(), [count]), "loop")
    top, again, end = (function.append_basic_block(name) for name in ("top", "again", "end"))
    ir.IRBuilder(top).branch(again)
    build = ir.IRBuilder(again)
    x, y = (ir.Constant(vector, [value] * WIDTH) for value in (0.999, 0.001))
    i = build.phi(count)
    sums = [build.phi(vector) for _ in range(CHAINS)]
    following = [build.call(fma, [s, x, y]) for s in sums]
    j = build.add(i, count(1))
    build.cbranch(build.icmp_signed("<", j, function.args[0]), again, end)
    i.add_incoming(count(0), top)
    i.add_incoming(j, again)
    for k, (s, t) in enumerate(zip(sums, following, strict=True)):
        s.add_incoming(ir.Constant(vector, [float(k)] * WIDTH), top)
        s.add_incoming(t, again)
    build = ir.IRBuilder(end)
    total = following[0]
    for t in following[1:]:
        total = build.fadd(total, t)
    build.ret(build.extract_element(total, ir.IntType(32)(0)))
    return str(module)


def peak() -> float:
    """Return the best 10^9 operations per CPU second; a multiply-add is two."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    machine = target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_loop()), machine)
    engine.finalize_object()
    run = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_int64)(engine.get_function_address("loop"))
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        run(STEPS)
        best = min(best, time.process_time() - start)
    return 2 * CHAINS * WIDTH * STEPS / best / 1e9


if __name__ == "__main__":
    print(f"{peak():.0f} GFLOPS")
