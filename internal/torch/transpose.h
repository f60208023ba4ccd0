// Included by a file with AVX-512 as its target, in a namespace of its own.

// Rows r[i] of 16 dwords become columns.
inline void transpose16(__m512i r[16]) {
  __m512i t[16];
  for (int i = 0; i < 8; i++) {
    t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int j = 0; j < 4; j++) {
    __m512i ab = _mm512_shuffle_i32x4(r[j], r[4 + j], 0x88), ba = _mm512_shuffle_i32x4(r[j], r[4 + j], 0xdd);
    __m512i cd = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0x88), dc = _mm512_shuffle_i32x4(r[8 + j], r[12 + j], 0xdd);
    t[j] = _mm512_shuffle_i32x4(ab, cd, 0x88);
    t[8 + j] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
    t[4 + j] = _mm512_shuffle_i32x4(ba, dc, 0x88);
    t[12 + j] = _mm512_shuffle_i32x4(ba, dc, 0xdd);
  }
  for (int i = 0; i < 16; i++) r[i] = t[i];
}
