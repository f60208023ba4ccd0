// Included by attend.h and attend_avx2.h, in their namespaces.

// 2^r for 0 ≤ r < 1, the highest power first: the polynomial whose largest relative error is least
// (1.4e-7 in float32), with 1 at 0.
constexpr float POW2[6] = {1.86713017e-3f, 9.01702978e-3f, 5.57999127e-2f, .240164444f, .693151295f, 1.f};
constexpr float LOG2E = 1.44269504f;
