#include "host/backend/software/ptx/compile/emit.h"

/* Two values, each for the lanes of a half. */
static void halves(struct ptx_text *t, uint32_t bits) {
  ptx_say(t,
          "define internal <32 x i%u> @halves%u(i%u %%low, i%u %%high) alwaysinline nounwind {\n"
          "%%a = insertelement <32 x i%u> poison, i%u %%low, i32 0\n"
          "%%b = insertelement <32 x i%u> %%a, i%u %%high, i32 16\n"
          "%%r = shufflevector <32 x i%u> %%b, <32 x i%u> poison, <32 x i32> <",
          bits, bits, bits, bits, bits, bits, bits, bits, bits, bits);
  for (uint32_t i = 0; i < PTX_LANES; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", i / 16 * 16);
  ptx_say(t, ">\nret <32 x i%u> %%r\n}\n", bits);
}

/* Functions of emit_memory.c for addresses of so many bits. */
static void addresses(struct ptx_text *t, uint32_t a, const char *how) {
  /* Lanes that do not access get the address of one that does. */
  ptx_say(t,
          "define internal <32 x i%u> @some%u(<32 x i%u> %%a, i32 %%m) %s nounwind {\n"
          "%%i = call i32 @llvm.cttz.i32(i32 %%m, i1 true)\n%%o = extractelement <32 x i%u> %%a, i32 %%i\n"
          "%%x = call <32 x i%u> @halves%u(i%u %%o, i%u %%o)\n%%l = bitcast i32 %%m to <32 x i1>\n"
          "%%r = select <32 x i1> %%l, <32 x i%u> %%a, <32 x i%u> %%x\nret <32 x i%u> %%r\n}\n",
          a, a, a, how, a, a, a, a, a, a, a, a);
  /* Whether the lanes of each half have a constant step. */
  ptx_say(t,
          "define internal i1 @steps%u(<32 x i%u> %%v, i%u %%step) %s nounwind {\n"
          "%%o = extractelement <32 x i%u> %%v, i32 0\n%%p = extractelement <32 x i%u> %%v, i32 16\n"
          "%%x = call <32 x i%u> @halves%u(i%u %%o, i%u %%p)\n%%diff = sub <32 x i%u> %%v, %%x\n"
          "%%b = call <32 x i%u> @halves%u(i%u %%step, i%u %%step)\n%%c = mul <32 x i%u> %%b, <",
          a, a, a, how, a, a, a, a, a, a, a, a, a, a, a, a);
  for (uint32_t i = 0; i < PTX_LANES; i++) ptx_say(t, "%si%u %u", i == 0 ? "" : ", ", a, i % 16);
  ptx_say(t,
          ">\n%%d = xor <32 x i%u> %%diff, %%c\n"
          "%%e = call i%u @llvm.vector.reduce.or.v32i%u(<32 x i%u> %%d)\n"
          "%%r = icmp eq i%u %%e, 0\nret i1 %%r\n}\n",
          a, a, a, a, a);
  /*
   * Writes the places of 32 lanes in a range. False: one of them is not in it, or not aligned. A place or its
   * distance from the last one that is allowed is negative then.
   */
  ptx_say(t,
          "define internal i1 @anywhere%u(ptr %%out, <32 x i%u> %%x, i%u %%from, i64 %%base, i64 %%size, "
          "i64 %%end, i64 %%low) %s nounwind {\n"
          "%%y = call <32 x i%u> @halves%u(i%u %%from, i%u %%from)\n%%z = add <32 x i%u> %%x, %%y\n",
          a, a, a, how, a, a, a, a, a);
  if (a == 32) ptx_say(t, "%%zz = zext <32 x i32> %%z to <32 x i64>\n");
  ptx_say(t,
          "%%bb = call <32 x i64> @halves64(i64 %%base, i64 %%base)\n%%p = sub <32 x i64> %%%s, %%bb\n"
          "store <32 x i64> %%p, ptr %%out, align 64\n"
          "%%room = icmp uge i64 %%size, %%end\n%%most = sub i64 %%size, %%end\n"
          "%%m = call <32 x i64> @halves64(i64 %%most, i64 %%most)\n%%a = sub <32 x i64> %%m, %%p\n"
          "%%b = or <32 x i64> %%a, %%p\n%%c = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %%b)\n"
          "%%d = icmp sge i64 %%c, 0\n%%e = call i64 @llvm.vector.reduce.or.v32i64(<32 x i64> %%p)\n"
          "%%f = or i64 %%e, %%base\n%%g = and i64 %%f, %%low\n%%h = icmp eq i64 %%g, 0\n"
          "%%i = and i1 %%d, %%h\n%%r = and i1 %%room, %%i\nret i1 %%r\n}\n",
          a == 32 ? "zz" : "z");
}

/* Eight of 32 lanes, or two vectors as one. */
static void shuffle(struct ptx_text *t, const char *to, const char *type, uint32_t lanes, const char *a,
                    const char *b, uint32_t from, uint32_t count) {
  ptx_say(t, "%%%s = shufflevector <%u x %s> %%%s, <%u x %s> %s, <%u x i32> <", to, lanes, type, a, lanes,
          type, b, count);
  for (uint32_t i = 0; i < count; i++) ptx_say(t, "%si32 %u", i == 0 ? "" : ", ", from + i);
  ptx_say(t, ">\n");
}

/* 32 halves to floats and back, to the nearest: eight by one instruction. LLVM would convert them one by one.
 */
static void convert(struct ptx_text *t, bool widen) {
  const char *from = widen ? "i16" : "float", *to = widen ? "float" : "i16";
  ptx_say(t, "define internal <32 x %s> @%s(<32 x %s> %%a) alwaysinline nounwind {\n", to,
          widen ? "widen" : "narrow", from);
  for (uint32_t k = 0; k < 4; k++) {
    char part[8];
    snprintf(part, sizeof part, "p%u", k);
    shuffle(t, part, from, 32, "a", "poison", k * 8, 8);
    if (widen)
      ptx_say(
          t, "%%h%u = bitcast <8 x i16> %%p%u to <8 x half>\n%%q%u = fpext <8 x half> %%h%u to <8 x float>\n",
          k, k, k, k);
    else
      ptx_say(t,
              "%%h%u = call <8 x i16> @llvm.x86.vcvtps2ph.256(<8 x float> %%p%u, i32 0)\n%%q%u = freeze <8 x "
              "i16> %%h%u\n",
              k, k, k, k);
  }
  shuffle(t, "r0", to, 8, "q0", "%q1", 0, 16);
  shuffle(t, "r1", to, 8, "q2", "%q3", 0, 16);
  shuffle(t, "r", to, 16, "r0", "%r1", 0, 32);
  ptx_say(t, "ret <32 x %s> %%r\n}\n", to);
}

void ptx_emit_prelude(struct ptx_text *t, bool small) {
  static const uint32_t widths[3] = {16, 32, 64};
  for (uint32_t i = 0; i < 3; i++) halves(t, widths[i]);
  convert(t, true);
  convert(t, false);
  const char *how = small ? "noinline" : "alwaysinline";
  addresses(t, 32, how);
  addresses(t, 64, how);
  /* Whether two places, with `end` bytes behind each, are in a range and aligned. */
  ptx_say(
      t,
      "define internal i1 @within(i64 %%f, i64 %%n, i64 %%base, i64 %%size, i64 %%end, i64 %%low) "
      "alwaysinline "
      "nounwind {\n%%room = icmp uge i64 %%size, %%end\n%%most = sub i64 %%size, %%end\n"
      "%%a = icmp ule i64 %%f, %%most\n%%b = icmp ule i64 %%n, %%most\n%%c = or i64 %%f, %%n\n"
      "%%d = or i64 %%c, %%base\n%%e = and i64 %%d, %%low\n%%g = icmp eq i64 %%e, 0\n%%h = and i1 %%a, %%b\n"
      "%%i = and i1 %%room, %%g\n%%r = and i1 %%h, %%i\nret i1 %%r\n}\n");
  ptx_say(t, "declare i32 @llvm.vector.reduce.or.v32i32(<32 x i32>)\n"
             "declare i64 @llvm.vector.reduce.or.v32i64(<32 x i64>)\n"
             "declare i32 @llvm.cttz.i32(i32, i1)\n"
             "declare <8 x i16> @llvm.x86.vcvtps2ph.256(<8 x float>, i32)\n"
             "declare <32 x float> @llvm.fma.v32f32(<32 x float>, <32 x float>, <32 x float>)\n"
             "declare <32 x double> @llvm.fma.v32f64(<32 x double>, <32 x double>, <32 x double>)\n"
             "declare <32 x float> @llvm.sqrt.v32f32(<32 x float>)\n"
             "declare <32 x double> @llvm.sqrt.v32f64(<32 x double>)\n");
}
