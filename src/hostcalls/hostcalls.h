// Linear algebra that StableHLO has no sound form for, as functions on the host that programs for a CPU plugin call by
// name. All are batched over the leading dimensions, row-major, for f32, f64, c64 and c128 (one type a call); they
// compute in f64 or c128. Names of decompositions and packed forms are LAPACK's.
#pragma once

#include "pjrt/client.h"

namespace tpupilot::hostcalls {

using pjrt::HostCall;

// Makes the functions known to the client's plugin under "tpupilot.<name>". Once per plugin and process, before its
// first program is compiled or read from disk; again is free. Nothing happens where the device is not the host.
void register_all(pjrt::Client& client);

// A[m, n] -> packed[m, n], tau[min(m, n)]: R in the upper triangle, the reflectors below.
void geqrf(const HostCall& call);
// packed[m, n], tau[k] -> the first columns of H1 H2 .. Hk, as many as the result has.
void orgqr(const HostCall& call);
// packed[r, n], tau[k], C[m, n] -> Q C or C Q, with the conjugate transpose of the r x r matrix Q if "transpose";
// "left".
void ormqr(const HostCall& call);
// A[n, n] -> values[n] ascending (, vectors[n, n]). Reads the lower triangle, or the upper one if not "lower".
void eigh(const HostCall& call);
// A[m, n] -> S[k] descending, or U, S, Vh; whether the full ones is in the shapes of U and Vh.
void svd(const HostCall& call);
// A[n, n] -> complex values[n] (, vectors[n, n] of norm 1 whose largest component is real).
void eig(const HostCall& call);
// A[n, n] -> LD[n, n], pivots[n] (s32), info (s32): Bunch-Kaufman of the lower triangle, symmetric or "hermitian".
// info is the row (from 1) of the first zero block of D, which is an error if "check_errors".
void ldl_factor(const HostCall& call);
// LD[n, n], pivots[n], B[n, k] -> X[n, k].
void ldl_solve(const HostCall& call);

}  // namespace tpupilot::hostcalls
